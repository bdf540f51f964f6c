/** The buffers of a function's kernels: what each value, and each partial sum of a row, is stored in. */
import { CompileError } from '../errors.js';
import { DRAFT } from '../ir/function.js';
import type { Node, NodeOf, Value } from '../ir/graph/graph.js';
import { stateDecl } from '../ir/graph/versions.js';
import { type BufferDecl, ROW_SUM_BLOCK } from '../ir/kernel.js';
import { isFloat, isSymbol, printType } from '../ir/types.js';
import type { FusedGraph } from './fuseGroups.js';
import type { SumNode } from './groupRules.js';
import { checkpointTensor, type OrderedTensor, type PackedWeights } from './lowerWeights.js';
import { columnsOf, viewOf } from './placedValues.js';

/** Letters of a name, without its suffix: what many layers have a part in is named for the first. */
const MAX_NAME = 100;

/** Names of kernels and buffers, [a-z][a-z0-9_]*: each is given once, and repeated ones get a suffix. */
export class KernelNames {
  private readonly taken = new Set<string>();
  /** The suffix from which on names of a base may be free. */
  private readonly tried = new Map<string, number>();

  /** Keeps `name` for whoever asks for it by other means. */
  reserve(name: string): void {
    this.taken.add(name);
  }

  unique(hint: string): string {
    const cleaned = hint
      .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, '_')
      .replace(/^_+|_+$/g, '');
    const base = (/^[a-z]/.test(cleaned) ? cleaned : `v_${cleaned}`).slice(0, MAX_NAME);
    for (let i = this.tried.get(base) ?? 0; ; i++) {
      const name = i === 0 ? base : `${base}_${i}`;
      if (this.taken.has(name)) continue;
      this.taken.add(name);
      this.tried.set(base, i + 1);
      return name;
    }
  }
}

/** Declares buffers at their first use. Tables and constants that kernels read are declared as weights too. */
export class Buffers {
  private readonly defs: ReadonlyMap<Value, Node>;
  private readonly names: KernelNames;
  private readonly weights: PackedWeights;
  /** The values that the caller reads, behind views. */
  private readonly returned: ReadonlySet<Value>;
  private readonly isDraft: boolean;
  private readonly decls = new Map<string, BufferDecl>();
  private readonly ofValues = new Map<Value, string>();
  private readonly ofRowSums = new Map<Node, string>();

  constructor(fused: FusedGraph, defs: ReadonlyMap<Value, Node>, names: KernelNames, weights: PackedWeights) {
    this.defs = defs;
    this.names = names;
    this.weights = weights;
    const { name: own, states, params, results } = fused.graph;
    this.isDraft = own === DRAFT;
    this.returned = new Set(results.map((v) => viewOf(v, defs, fused).base));
    for (const state of states) this.declareState(state);
    for (const [value, { state }] of fused.versions) this.ofValues.set(value, state.name);
    for (const param of params) this.declareValue(param, 'input');
  }

  get all(): readonly BufferDecl[] {
    return [...this.decls.values()];
  }

  /** The buffer of a stored value, parameter, checkpoint table or literal vector. */
  of(v: Value): string {
    const known = this.ofValues.get(v);
    if (known !== undefined) return known;
    const node = this.defs.get(v);
    const stored = v.kind === 'weight' || node?.op === 'pair_halves' ? checkpointTensor(this.defs, v) : undefined;
    if (stored !== undefined) return this.declareTable(v, stored);
    if (node?.op === 'vector') return this.declareConstant(v, node);
    if (node?.op === 'row_scales') return this.declareScales(v, node);
    return this.declareValue(v, this.returned.has(v) ? 'output' : 'arena');
  }

  /**
   * The partial sums of the rows that `node` reduces: one for every ROW_SUM_BLOCK columns. The largest of a whole row
   * is one number, because loops, which find it, have whole rows.
   */
  ofRowSum(node: SumNode): string {
    const known = this.ofRowSums.get(node);
    if (known !== undefined) return known;
    const operand = node.operands.x;
    const [rows] = operand.type.shape;
    const columns = columnsOf(operand);
    if (rows === undefined || !isSymbol(rows) || typeof columns !== 'number')
      throw new CompileError(`%${node.result.name}: row sums need symbolic rows`);
    const isWhole = node.op === 'reduce_max' && operand.type.shape.length === 2;
    const parts = isWhole ? 1 : Math.ceil(columns / ROW_SUM_BLOCK);
    const name = this.declare(`${node.result.name}_parts`, { dtype: 'f32', rows, columns: parts, space: 'arena' });
    this.ofRowSums.set(node, name);
    return name;
  }

  /** Declares a buffer of no value under a name like `hint`, and returns its name. */
  declare(hint: string, decl: Omit<BufferDecl, 'name'>): string {
    const name = this.names.unique(hint);
    this.decls.set(name, { name, ...decl });
    return name;
  }

  /** All versions of a state are one buffer, which has the name of the state. */
  private declareState(state: Value): void {
    const { name } = state;
    this.names.reserve(name);
    this.decls.set(name, { ...stateDecl(state), space: 'state' });
  }

  private declareValue(v: Value, space: BufferDecl['space']): string {
    const [rows] = v.type.shape;
    const columns = columnsOf(v);
    if (rows === undefined || columns === undefined)
      throw new CompileError(
        `%${v.name}: no buffer can hold ${printType(v.type)}; ` +
          'the first extent must be a named one, the others fixed or one named',
      );
    const name = this.declare(v.name, { dtype: v.type.dtype, rows, columns, space });
    this.ofValues.set(v, name);
    return name;
  }

  private declareTable(v: Value, { tensor, order }: OrderedTensor): string {
    const { dtype } = tensor.type;
    const [rows, columns = 1] = v.type.shape;
    if (typeof rows !== 'number' || typeof columns !== 'number')
      throw new CompileError(`@${tensor.name}: a table needs fixed extents`);
    if (!isFloat(dtype)) throw new CompileError(`@${tensor.name}: ${dtype} tables are not supported`);
    const name = this.declare(`${tensor.name}_table`, { dtype, rows, columns, space: 'weight' });
    this.ofValues.set(v, name);
    this.weights.declareTable(name, tensor.name, dtype, rows, columns, order);
    return name;
  }

  /**
   * A name for what the compiler makes, among the weights of all functions: those of the model make the same by the
   * same names, and `draft` makes others.
   */
  private ofAll(hint: string): string {
    return this.isDraft ? `${DRAFT}_${hint}` : hint;
  }

  private declareScales(v: Value, node: NodeOf<'row_scales'>): string {
    const name = this.names.unique(this.ofAll(v.name));
    const rows = this.weights.declareScales(name, node);
    this.decls.set(name, { name, dtype: 'f32', rows, columns: 1, space: 'weight' });
    this.ofValues.set(v, name);
    return name;
  }

  private declareConstant(v: Value, { attributes: { label, values } }: NodeOf<'vector'>): string {
    const decl = { dtype: 'f32', rows: values.length, columns: 1, space: 'weight' } as const;
    const name = this.declare(this.ofAll(label), decl);
    this.ofValues.set(v, name);
    this.weights.declareConstant(name, values);
    return name;
  }
}
