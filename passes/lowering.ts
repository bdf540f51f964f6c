/** What the kernels of one function are lowered with: graph, groups, and the names, buffers and weights so far. */
import { CompileError } from '../errors.js';
import { definitions, isOp, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import type { Kernel, Totals } from '../ir/kernel.js';
import type { OpName, ProductOp } from '../ir/ops/index.js';
import { extentsOf } from '../ir/types.js';
import type { FusedGraph } from './fuseGroups.js';
import { Buffers, KernelNames } from './lowerBuffers.js';
import { ScalarLowering } from './lowerScalars.js';
import { matchWeight, type WeightMatch, PackedWeights, type WeightStorage } from './lowerWeights.js';
import type { Group } from './placedValues.js';

/** What a kernel of any anchor has. */
export type LoweredHead = Pick<Kernel, 'name' | 'path' | 'ops'>;

/** Which product of its segment an anchor's result is. */
export type Accumulators = ReadonlyMap<Value, 0 | 1>;

export const NO_ACCUMULATORS: Accumulators = new Map();

/** The context that groups are lowered in, one after another. Buffers and weights are declared as kernels name them. */
export class Lowering {
  readonly fused: FusedGraph;
  readonly defs: ReadonlyMap<Value, Node>;
  readonly names = new KernelNames();
  readonly weights: PackedWeights;
  readonly buffers: Buffers;
  readonly scalars: ScalarLowering;
  private readonly starts = new Map<Value, string>();
  private readonly totals = new Map<Value, Totals>();

  /** `states`: names that no buffer takes. */
  constructor(fused: FusedGraph, storage: WeightStorage, states: readonly string[]) {
    this.fused = fused;
    this.defs = definitions(fused.graph);
    for (const name of states) this.names.reserve(name);
    this.weights = new PackedWeights(storage, this.defs);
    this.buffers = new Buffers(fused, this.defs, this.names, this.weights);
    this.scalars = new ScalarLowering(
      fused.graph,
      fused,
      (v) => this.buffers.of(v),
      (node) => this.buffers.ofRowSum(node),
    );
  }

  /** Where the head leaves the totals of the rows of `logits`, which it stores. */
  totalsOf(logits: Value): Totals {
    const known = this.totals.get(logits);
    if (known !== undefined) return known;
    const head = this.defs.get(logits);
    if (head?.op !== 'head_logits')
      throw new CompileError(`totals of the rows of %${logits.name}, which no head computes`);
    const [rows] = extentsOf(head.operands.x.type.shape, 2);
    const declare = (name: string): string =>
      this.buffers.declare(`${logits.name}_${name}`, { dtype: 'f32', rows, columns: 1, space: 'arena' });
    const totals = { top: declare('top'), sum: declare('sum') };
    this.totals.set(logits, totals);
    return totals;
  }

  /** Where the rows of each of `count` experts begin, in the order of the pairs of `experts`. */
  startsOf(experts: Value, count: number): string {
    const known = this.starts.get(experts);
    if (known !== undefined) return known;
    const shape = { rows: count + 1, columns: 1 } as const;
    const starts = this.buffers.declare(`${experts.name}_starts`, { dtype: 'i32', ...shape, space: 'arena' });
    this.starts.set(experts, starts);
    return starts;
  }

  /** The stored value behind the views of `v`. */
  base(v: Value): Value {
    return this.scalars.view(v).base;
  }

  /** The buffer of the stored value behind the views of `v`. */
  bufferBehind(v: Value): string {
    return this.buffers.of(this.base(v));
  }

  /** The tensor of the checkpoint behind the right operand of a contraction. */
  weightOf({ operands: { w } }: NodeOf<ProductOp>): WeightMatch {
    return matchWeight(this.defs, w);
  }

  /** The tensors of the checkpoint behind the right operand of a contraction: one, or one for each expert or head. */
  weightsOf(contraction: NodeOf<ProductOp>): readonly WeightMatch[] {
    const isStacked = contraction.op === 'expert_linear' || contraction.op === 'head_linear';
    const stacked = isStacked ? this.defs.get(contraction.operands.w) : undefined;
    return stacked?.op === 'concat'
      ? stacked.operands.matrices.map((v) => matchWeight(this.defs, v))
      : [this.weightOf(contraction)];
  }
}

/** The extent of the last axis, which is fixed: columns, the width of a head, k of a left operand. */
export function lastExtent(v: Value): number {
  const last = v.type.shape.at(-1);
  if (typeof last !== 'number') throw new CompileError(`%${v.name}: the last extent must be fixed`);
  return last;
}

/** The only anchor that is an `op`. */
export function onlyAnchor<Op extends OpName>(anchors: readonly Node[], op: Op, { path }: LoweredHead): NodeOf<Op> {
  const [found, ...more] = anchors.filter((node) => isOp(node, op));
  if (found !== undefined && more.length === 0) return found;
  const count = found === undefined ? 0 : more.length + 1;
  throw new CompileError(`${path}: '${op}' of the same value is wanted once, it is there ${count}×`);
}

/** `layers.0.attention.qkv` for contractions at …q, …k and …v; attention itself is `….attention.mix`. */
export function groupPath(group: Group): string {
  const nodes = group.anchors.length > 0 ? group.anchors : group.members;
  const paths = [...new Set(nodes.map((n) => n.path))];
  // A loop is named for where it begins: its last ops may belong to the scopes around it, or to the next layer.
  if (group.anchors.length === 0) return paths.find((p) => paths.every((q) => !q.startsWith(`${p}.`))) ?? paths[0]!;
  if (group.kind === 'attention') return `${paths[0]!}.mix`;
  if (group.kind === 'scan') return `${paths[0]!}.scan`;
  if (group.kind === 'logprob' || paths.length === 1) return paths[0]!;
  const split = paths.map((p) => p.split('.'));
  let common = 0;
  while (split.every((s) => s.length > common + 1 && s[common] === split[0]![common])) common++;
  const tails = split.map((s) => s.slice(common).join('_'));
  const tail = tails.join(tails.every((t) => t.length === 1) ? '' : '_');
  return [...split[0]!.slice(0, common), tail].join('.');
}
