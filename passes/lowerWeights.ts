/** Turns load-time expressions over checkpoint tensors into packing instructions, and keeps what a function loads. */
import { CompileError } from '../errors.js';
import type { Node, NodeOf, Value } from '../ir/graph/graph.js';
import { GROUP_SIZES, type GroupSize } from '../ir/groups.js';
import type { ConstantVector, Pairing, WeightDecl, WeightSource } from '../ir/kernel.js';
import { isQuads } from '../ir/quads.js';
import type { RotaryOrder } from '../ir/rotaryOrder.js';
import {
  type FormatName,
  isBlockFormat,
  isCodeFormat,
  isFormatIn,
  type Layout,
  type WeightFormat,
} from '../ir/storage.js';
import { isFloat } from '../ir/types.js';
import { defined } from '../system/defined.js';

/** How contraction weights are stored for the target's micro-kernels. */
export interface WeightStorage {
  readonly layout: Exclude<Layout, 'rows'>;
  /** `stored`: as the checkpoint stores them; f32 where the matrices of one kernel are stored differently. */
  readonly format: FormatName | 'stored';
  /**
   * Widest pairing block, in columns. Default 16, a CPU vector; tensor cores need 8, the column group of a fragment.
   */
  readonly pairingWidth?: number;
}

/** A tensor [rows, k], whose column c is multiplied by columnScale[c] if given. Names are checkpoint tensors. */
export interface WeightMatch extends WeightSource {
  readonly columnScale?: string;
  readonly columnOffset?: number;
  /** Narrowest format that holds the matrix exactly; or codes to which it is rounded, or as which it is stored. */
  readonly format: WeightFormat;
  readonly from?: WeightDecl['from'];
  /** Of u4. */
  readonly group?: GroupSize;
}

/**
 * Reads W, cast(W), cast(W)·cast(norm) or cast(W)·(cast(norm) + literal), the forms that foldNormWeights produces, or
 * codes of one of them.
 */
export function matchWeight(defs: ReadonlyMap<Value, Node>, v: Value): WeightMatch {
  const direct = checkpointTensor(defs, v);
  if (direct !== undefined) return matrix(direct);
  const node = defs.get(v);
  switch (node?.op) {
    case 'blocks':
      return { ...matchWeight(defs, node.operands.w), format: node.attributes.format };
    case 'grouped':
      return { ...matchWeight(defs, node.operands.w), format: 'u4', from: 'codes', group: groupIn(node) };
    case 'microscaled':
      return { ...matchWeight(defs, node.operands.w), format: 'mxfp4' };
    case 'codes':
      return { ...matchWeight(defs, node.operands.w), ...node.attributes };
    case 'mul': {
      const a = checkpointTensor(defs, node.operands.a);
      const by = columnFactors(defs, node.operands.b);
      if (a?.tensor.type.shape.length === 2 && by !== undefined) return { ...matrix(a), ...by, format: 'f32' };
      break;
    }
    default:
  }
  throw new CompileError(
    `%${v.name}: the weight packer does not support this load-time expression; ` +
      'it takes a matrix, or a matrix times a norm weight',
  );
}

function groupIn({ attributes: { group } }: NodeOf<'grouped'>): GroupSize {
  const found = GROUP_SIZES.find((size) => size === group);
  if (found === undefined) throw new CompileError(`there are no groups of ${group} columns`);
  return found;
}

/** A norm weight, to which a literal may be added. */
function columnFactors(
  defs: ReadonlyMap<Value, Node>,
  v: Value,
): Pick<WeightMatch, 'columnScale' | 'columnOffset'> | undefined {
  const plain = checkpointTensor(defs, v);
  if (plain !== undefined)
    return plain.tensor.type.shape.length === 1 && plain.order === undefined
      ? { columnScale: plain.tensor.name }
      : undefined;
  const sum = defs.get(v);
  if (sum?.op !== 'add') return undefined;
  const { a, b } = sum.operands;
  for (const [term, other] of [
    [a, b],
    [b, a],
  ] as const) {
    const literal = defs.get(other);
    const inner = checkpointTensor(defs, term);
    if (literal?.op === 'const' && inner?.tensor.type.shape.length === 1 && inner.order === undefined)
      return { columnScale: inner.tensor.name, columnOffset: literal.attributes.value };
  }
  return undefined;
}

/** A tensor, and the order in which its rows are read if it is not their own. */
export interface OrderedTensor {
  readonly tensor: Value;
  readonly order?: RotaryOrder;
}

/** The tensor behind casts to f32 and one change of the order of its rows; undefined if `v` is something else. */
export function checkpointTensor(defs: ReadonlyMap<Value, Node>, v: Value): OrderedTensor | undefined {
  if (v.kind === 'weight') return { tensor: v };
  const node = defs.get(v);
  if (node?.op === 'cast' && node.attributes.dtype === 'f32') return checkpointTensor(defs, node.operands.x);
  const inner = node?.op === 'pair_halves' ? checkpointTensor(defs, node.operands.x) : undefined;
  if (inner === undefined || inner.order !== undefined || node?.op !== 'pair_halves') return undefined;
  const { headDim, rotated, interleaved } = node.attributes;
  return { ...inner, order: { headDim, rotated, interleaved } };
}

const inOrder = (order: RotaryOrder | undefined): Pick<WeightSource, 'order'> => (order === undefined ? {} : { order });

function matrix({ tensor: v, order }: OrderedTensor): WeightMatch {
  const [rows] = v.type.shape;
  if (typeof rows !== 'number') throw new CompileError(`@${v.name}: a matrix needs fixed extents`);
  const { dtype } = v.type;
  if (!isFloat(dtype)) throw new CompileError(`@${v.name}: a matrix holds floats, not ${dtype}`);
  return { tensor: v.name, rows, format: dtype, ...inOrder(order) };
}

/** Lanes of a pairing block: the widest of 16, 8, 4, 2, 1 that divides `half` and is at most `most`. */
export function pairingWidth(half: number, most = 16): number {
  return (
    [16, 8, 4, 2].filter((width) => width <= most).find((width) => !Number.isFinite(half) || half % width === 0) ?? 1
  );
}

/** What the kernels of a function read of weights, in order of first use. */
export class PackedWeights {
  private readonly storage: WeightStorage;
  private readonly defs: ReadonlyMap<Value, Node>;
  private readonly decls = new Map<string, WeightDecl>();
  private readonly vectors: ConstantVector[] = [];

  constructor(storage: WeightStorage, defs: ReadonlyMap<Value, Node>) {
    this.storage = storage;
    this.defs = defs;
  }

  get all(): readonly WeightDecl[] {
    return [...this.decls.values()];
  }

  get constants(): readonly ConstantVector[] {
    return this.vectors;
  }

  /** The format of all matrices of one kernel: register tiles of a kernel read one format. */
  formatOf(matches: readonly WeightMatch[]): WeightFormat {
    const { format, layout } = this.storage;
    const [first = 'f32', ...rest] = new Set(matches.map((match) => match.format));
    if ((isCodeFormat(first) || isBlockFormat(first)) && rest.length === 0) return first;
    const groups = new Set(matches.map(({ group }) => group));
    if (first === 'mxfp4' && rest.length === 0) return first;
    if (first === 'u4' && rest.length === 0 && groups.size === 1) return first;
    if (format !== 'stored') return format;
    return rest.length === 0 && isFormatIn(layout, first) ? first : 'f32';
  }

  /** The pairing with the widest blocks of columns that the target takes. */
  rotate(headDim: number): Pairing {
    return { kind: 'rotate', headDim, width: pairingWidth(headDim / 2, this.storage.pairingWidth) };
  }

  interleave(): Pairing {
    return { kind: 'interleave', width: pairingWidth(Infinity, this.storage.pairingWidth) };
  }

  /**
   * The right operand of a contraction over `k` columns. Paired matrices have the same norm weight folded in. `byHead`:
   * each head has a matrix of its own, which tiles of AMX do not take.
   */
  declareMatrix(
    name: string,
    k: number,
    matches: readonly WeightMatch[],
    format: WeightFormat,
    pairing: Pairing,
    experts?: number,
    byHead = false,
  ): void {
    const { columnScale, columnOffset, from, group } = matches[0]!;
    const isGrouped = format === 'u4' && group !== undefined;
    this.decls.set(name, {
      name,
      layout: isGrouped
        ? 'groups'
        : format === 'mxfp4'
          ? 'microscaled'
          : isQuads(format) && !isFormatIn(this.storage.layout, format)
            ? 'quads'
            : byHead && this.storage.layout === 'vnni'
              ? 'panels'
              : this.storage.layout,
      format,
      k,
      pairing,
      ...defined({ experts }),
      sources: matches.map(({ tensor, rows, order }) => ({ tensor, rows, ...inOrder(order) })),
      ...defined({ columnScale, columnOffset }),
      ...(from === 'codes' && (isGrouped || isCodeFormat(format)) ? { from } : {}),
      ...(isGrouped ? { group } : {}),
    });
  }

  /** The scales of the rows of a matrix of codes over `k` columns. Returns their number. */
  declareScales(name: string, { operands: { w }, attributes: { format, from } }: NodeOf<'row_scales'>): number {
    const { tensor, rows, order, columnScale, columnOffset } = matchWeight(this.defs, w);
    const [, k] = w.type.shape;
    this.decls.set(name, {
      name,
      layout: 'rows',
      format: 'f32',
      scalesOf: { format, k: Number(k) },
      k: 1,
      pairing: { kind: 'none' },
      sources: [{ tensor, rows, ...inOrder(order) }],
      ...defined({ columnScale, columnOffset }),
      ...(from === 'codes' ? { from } : {}),
    });
    return rows;
  }

  /** A tensor [rows, k] whose rows are looked up. */
  declareTable(name: string, tensor: string, format: FormatName, rows: number, k: number, order?: RotaryOrder): void {
    this.decls.set(name, {
      name,
      layout: 'rows',
      format,
      sources: [{ tensor, rows, ...inOrder(order) }],
      k,
      pairing: { kind: 'none' },
    });
  }

  /** A vector that the compiler makes. It is loaded as if the checkpoint had it. */
  declareConstant(name: string, values: readonly number[]): void {
    const tensor = `constant.${name}`;
    this.declareTable(name, tensor, 'f32', values.length, 1);
    this.vectors.push({ name: tensor, values });
  }
}
