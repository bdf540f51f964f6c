/**
 * Contractions with one left operand become a gemm kernel. Its segments are the matrices that it multiplies with: one,
 * or two whose products meet in an expression, so that both have to be in one tile.
 */
import type { Node, NodeOf, Value } from '../ir/graph/graph.js';
import type { ProductOp } from '../ir/ops/index.js';
import type { GemmKernel, Output, Pairing, Segment } from '../ir/kernel.js';
import type { WeightFormat } from '../ir/storage.js';
import { CompileError } from './compileError.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import type { AnchorOf, GroupOf } from './groups.js';
import { groupPath } from './kernelNames.js';
import { lastExtent, type KernelHead, type Lowering } from './lowering.js';
import { lowerOutputs, rotates } from './lowerPrograms.js';

export function lowerGemm(lowering: Lowering, group: GroupOf<'gemm'>, head: KernelHead): GemmKernel {
  const { names, weights } = lowering;
  const first = at(group.anchors, 0);
  const left = first.operands.x;
  const format = weights.formatOf(group.anchors.flatMap((anchor) => lowering.weightsOf(anchor)));
  const experts = expertsOf(lowering, first);
  const { rounding } = first.attributes;
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
    segments,
  };
}

/** How the rows of a contraction are rounded. */
export const roundingOf = ({ attributes: { rounding } }: NodeOf<ProductOp>): Pick<GemmKernel, 'rounding'> =>
  defined({ rounding: rounding === undefined ? undefined : { columns: rounding } });

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
    first.op === 'expert_linear' ? experts : undefined,
  );
  return { weight, columns: lastExtent(first.result), pairing, outputs };
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
