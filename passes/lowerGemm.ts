/**
 * Contractions with one left operand become a gemm kernel. Its segments are the matrices that it multiplies with: one,
 * or two whose products meet in an expression, so that both have to be in one tile.
 */
import { CompileError } from '../errors.js';
import { isOp, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import type { GemmKernel, LoopKernel, Output, Pairing, Segment } from '../ir/kernel.js';
import { OPS, type ProductOp } from '../ir/ops/index.js';
import { operands as operandsOf, type Scalar } from '../ir/scalar.js';
import type { WeightFormat } from '../ir/storage.js';
import { type Dim, extentsOf } from '../ir/types.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import {
  type Accumulators,
  groupPath,
  type LoweredHead,
  lastExtent,
  type Lowering,
  NO_ACCUMULATORS,
} from './lowering.js';
import type { AnchorOf, Group, GroupOf } from './placedValues.js';

export function lowerGemm(lowering: Lowering, group: GroupOf<'gemm'>, head: LoweredHead): GemmKernel {
  const { names, weights } = lowering;
  const first = at(group.anchors, 0);
  const left = first.operands.x;
  const format = weights.formatOf(group.anchors.flatMap((anchor) => lowering.weightsOf(anchor)));
  const experts = expertsOf(lowering, first);
  const { rounding } = roundingOf(first);
  const segments = splitSegments(lowering, group).map((anchors, i) => {
    // Where rows are rounded, each matrix keeps its blocks.
    const own = rounding === undefined ? format : weights.formatOf(anchors.flatMap((each) => lowering.weightsOf(each)));
    return lowerSegment(lowering, group, anchors, names.unique(`${head.name}_w${i}`), own);
  });
  const a = lowering.bufferBehind(left);
  return {
    ...head,
    anchor: 'gemm',
    rows: group.rows,
    k: lastExtent(left),
    a,
    ...roundingOf(first),
    ...experts,
    ...headsOf(first),
    segments,
  };
}

/** How the rows of a contraction are rounded. */
export function roundingOf(node: NodeOf<ProductOp>): Pick<GemmKernel, 'rounding'> {
  const rounding = node.op === 'head_linear' ? undefined : node.attributes.rounding;
  return defined({ rounding: rounding === undefined ? undefined : { columns: rounding } });
}

/** The heads whose columns have depths of their own. */
function headsOf(node: AnchorOf<'gemm'>): Pick<GemmKernel, 'heads'> {
  if (node.op !== 'head_linear') return {};
  const [, heads] = extentsOf(node.operands.x.type.shape, 3);
  return { heads: Number(heads) };
}

/** The experts whose matrices the products read. */
function expertsOf(lowering: Lowering, node: AnchorOf<'gemm'>): Pick<GemmKernel, 'experts'> {
  if (node.op !== 'expert_linear') return {};
  const { experts: count } = node.attributes;
  return { experts: { count, starts: lowering.startsOf(node.operands.experts, count) } };
}

/** Linear nodes whose results are combined in one expression share a segment. Each of the others has its own. */
function splitSegments(
  lowering: Lowering,
  { anchors, members }: GroupOf<'gemm'>,
): readonly (readonly AnchorOf<'gemm'>[])[] {
  const sets = anchors.map((anchor) => new Set([anchor]));
  for (const member of members) {
    const [first, ...others] = sets.filter((set) =>
      [...set].some((anchor) => dependsOn(lowering, member, anchor, members)),
    );
    for (const other of others) {
      for (const anchor of other) first?.add(anchor);
      sets.splice(sets.indexOf(other), 1);
    }
  }
  return sets.map((set) => anchors.filter((anchor) => set.has(anchor)));
}

/** Whether `node` is computed from the product of `anchor`, within the kernel. */
function dependsOn({ scalars, defs }: Lowering, node: Node, anchor: Node, members: readonly Node[]): boolean {
  const isBehind = (of: Node): boolean =>
    of.inputs.some((v) => {
      const { base, via } = scalars.view(v);
      if (base === anchor.result) return via === undefined;
      const inner = defs.get(base);
      return inner !== undefined && members.includes(inner) && isBehind(inner);
    });
  return isBehind(node);
}

function lowerSegment(
  lowering: Lowering,
  group: GroupOf<'gemm'>,
  anchors: readonly AnchorOf<'gemm'>[],
  weight: string,
  format: WeightFormat,
): Segment {
  const { members } = group;
  if (anchors.length > 2)
    throw new CompileError(
      `${groupPath(group)}: ${anchors.length} contractions meet in one expression; at most two can share a kernel`,
    );
  const first = at(anchors, 0);
  const accumulators = new Map(anchors.map(({ result }) => [result, result === first.result ? 0 : 1] as const));
  const belongs = (v: Value): boolean => {
    if (accumulators.has(v)) return true;
    const node = lowering.defs.get(v);
    if (node === undefined || !members.includes(node)) return false;
    return anchors.some((anchor) => dependsOn(lowering, node, anchor, members));
  };
  const outputs = lowerOutputs(lowering, group, accumulators, belongs);
  const pairing = pairingOf(lowering, group, anchors, outputs);
  const each = anchors.map((anchor) => lowering.weightsOf(anchor));
  const experts = lowering.weightsOf(first).length;
  // The matrices of one expert lie together.
  const matches = Array.from({ length: experts }, (_, expert) => each.map((own) => at(own, expert))).flat();
  if (new Set(matches.map(({ columnScale, columnOffset = 0 }) => `${columnScale} ${columnOffset}`)).size > 1)
    throw new CompileError(`${groupPath(group)}: paired matrices have different folded norms`);
  lowering.weights.declareMatrix(
    weight,
    lastExtent(first.operands.x),
    matches,
    format,
    pairing,
    first.op === 'linear' ? undefined : experts,
    first.op === 'head_linear',
  );
  const { heads = 1 } = headsOf(first);
  return { weight, columns: heads * lastExtent(first.result), pairing, outputs };
}

/** How columns are laid out, so that those that an expression combines are in one tile. */
function pairingOf(
  lowering: Lowering,
  group: GroupOf<'gemm'>,
  [first, second]: readonly AnchorOf<'gemm'>[],
  outputs: readonly Output[],
): Pairing {
  if (first === undefined) return { kind: 'none' };
  const { members } = group;
  const rotated = new Set(
    members
      .filter((node) => node.op === 'rotate_half' && dependsOn(lowering, node, first, members))
      .map((node) => lastExtent(node.result)),
  );
  if (second !== undefined && rotated.size === 0) return lowering.weights.interleave();
  if (!rotates(outputs)) return { kind: 'none' };
  const [headDim] = rotated;
  if (headDim === undefined)
    throw new CompileError(`${groupPath(group)}: a rotation of another kernel's result is not supported`);
  if (rotated.size > 1 || second !== undefined)
    throw new CompileError(
      `${groupPath(group)}: %${first.result.name} is rotated in heads of ${[...rotated].join(' and of ')}` +
        `${second === undefined ? '' : ` and is combined with %${second.result.name}`}; ` +
        'one kernel rotates one matrix, in heads of one width',
    );
  return lowering.weights.rotate(headDim);
}

// Scalar programs that end in memory: what kernels of contractions and loops store, and loops themselves.

/** The stores and row sums of `group` among the values that belong to a segment, as programs over `accumulators`. */
export function lowerOutputs(
  { scalars, buffers, fused }: Lowering,
  group: Group,
  accumulators: Accumulators,
  belongs: (v: Value) => boolean,
): readonly Output[] {
  const stores = [...group.stored]
    .filter((v) => belongs(v))
    .map((v): Output => ({ kind: 'store', buffer: buffers.of(v), value: scalars.lower(v, group, accumulators) }));
  const sums = group.members
    .filter((node) => isOp(node, 'sum', 'mean', 'reduce_max'))
    .filter((node) => !fused.unread.has(node) && belongs(scalars.view(node.operands.x).base))
    .map((node): Output => {
      const buffer = buffers.ofRowSum(node);
      const value = scalars.lower(node.operands.x, group, accumulators);
      return { kind: 'rowSum', ...(node.op === 'reduce_max' ? { by: 'max' as const } : {}), buffer, value };
    });
  return [...stores, ...sums];
}

/** Whether one of the programs rotates heads. */
export const rotates = (outputs: readonly Output[]): boolean => outputs.some(({ value }) => mentionsRotation(value));

const mentionsRotation = (s: Scalar): boolean => s.op === 'rotateHalf' || operandsOf(s).some(mentionsRotation);

/** A group without an anchor: elementwise ops, gathers and row sums over one domain. */
export function lowerLoop(lowering: Lowering, group: GroupOf<'loop'>, head: LoweredHead): LoopKernel {
  const columns = columnsOfDomain(group, head, 'a loop');
  const outputs = lowerOutputs(lowering, group, NO_ACCUMULATORS, () => true);
  const rotation = group.members.find((node) => OPS[node.op].fuse === 'rotation');
  const heads = rotation !== undefined && rotates(outputs) ? { headDim: lastExtent(rotation.result) } : {};
  return { ...head, anchor: 'loop', rows: group.rows, columns, ...heads, outputs };
}

/** Rows go to where the slots say, in the memory that all versions of the state share. */
export function lowerWrite(lowering: Lowering, group: GroupOf<'write'>, head: LoweredHead): LoopKernel {
  const columns = columnsOfDomain(group, head, 'a write');
  const outputs = group.anchors.map((write) => storeOfWrite(lowering, group, write));
  return { ...head, anchor: 'loop', rows: group.rows, columns, outputs };
}

function storeOfWrite(
  { scalars, buffers }: Lowering,
  group: GroupOf<'write'>,
  { operands: { x: old, rows, slot } }: NodeOf<'write_rows'>,
): Output {
  const { base: index, via } = scalars.view(slot);
  if (via !== undefined) throw new CompileError(`%${slot.name}: slots that are a gather are not supported`);
  const value = scalars.lower(rows, group, NO_ACCUMULATORS);
  return { kind: 'store', buffer: buffers.of(old), via: buffers.of(index), value };
}

function columnsOfDomain({ columns }: Group, { path }: LoweredHead, what: string): Dim {
  if (columns === undefined) throw new CompileError(`${path}: ${what} needs columns`);
  return columns;
}
