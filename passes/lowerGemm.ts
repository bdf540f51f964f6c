/**
 * Contractions with one left operand become a gemm kernel. Its segments are the matrices that it multiplies with: one,
 * or two whose products meet in an expression, so that both have to be in one tile.
 */
import type { Node, Value } from '../ir/graph/graph.js';
import type { GemmKernel, Output, Pairing, Segment } from '../ir/kernel.js';
import type { WeightFormat } from '../ir/storage.js';
import { CompileError } from './compileError.js';
import type { Group } from './groups.js';
import { groupPath } from './kernelNames.js';
import { lastExtent, type KernelHead, type Lowering } from './lowering.js';
import { lowerOutputs, rotates } from './lowerPrograms.js';

export function lowerGemm(lowering: Lowering, group: Group, head: KernelHead): GemmKernel {
  const { names, weights } = lowering;
  const left = group.anchors[0]!.operands[0]!;
  const format = weights.formatOf(group.anchors.flatMap((anchor) => lowering.weightsOf(anchor)));
  const experts = expertsOf(lowering, group);
  const { rounding } = group.anchors[0]!.attributes;
  const segments = splitSegments(lowering, group).map((anchors, i) => {
    // Where rows are rounded, each matrix keeps its blocks.
    const own =
      typeof rounding === 'number' ? weights.formatOf(anchors.flatMap((each) => lowering.weightsOf(each))) : format;
    return lowerSegment(lowering, group, anchors, names.unique(`${head.name}_w${i}`), own);
  });
  const a = lowering.bufferBehind(left);
  return {
    ...head,
    anchor: 'gemm',
    rows: group.rows,
    k: lastExtent(left),
    a,
    ...roundingOf(group.anchors[0]!),
    ...experts,
    segments,
  };
}

/** How the rows of a contraction are rounded. */
export const roundingOf = ({ attributes }: Node): Pick<GemmKernel, 'rounding'> =>
  typeof attributes['rounding'] === 'number' ? { rounding: { columns: attributes['rounding'] } } : {};

/** The experts whose matrices the group's products read. */
function expertsOf(lowering: Lowering, { anchors }: Group): Pick<GemmKernel, 'experts'> {
  const { operands, attributes } = anchors[0]!;
  const chosen = operands[2];
  if (chosen === undefined) return {};
  const count = Number(attributes['experts']);
  return { experts: { count, starts: lowering.startsOf(chosen, count) } };
}

/** Linear nodes whose results are combined in one expression share a segment. Each of the others has its own. */
function splitSegments(lowering: Lowering, group: Group): readonly (readonly Node[])[] {
  const sets: Set<Node>[] = group.anchors.map((anchor) => new Set([anchor]));
  for (const member of group.members) {
    const touched = sets.filter((set) => [...set].some((anchor) => dependsOn(lowering, member, anchor, group)));
    for (const other of touched.slice(1)) {
      other.forEach((anchor) => touched[0]!.add(anchor));
      sets.splice(sets.indexOf(other), 1);
    }
  }
  return sets.map((set) => group.anchors.filter((anchor) => set.has(anchor)));
}

/** Whether `node` is computed from the product of `anchor`, within the kernel. */
function dependsOn({ scalars, defs }: Lowering, node: Node, anchor: Node, group: Group): boolean {
  const isBehind = (of: Node): boolean =>
    of.operands.some((v) => {
      const { base, via } = scalars.view(v);
      if (base === anchor.result) return via === undefined;
      const inner = defs.get(base);
      return inner !== undefined && group.members.includes(inner) && isBehind(inner);
    });
  return isBehind(node);
}

function lowerSegment(
  lowering: Lowering,
  group: Group,
  anchors: readonly Node[],
  weight: string,
  format: WeightFormat,
): Segment {
  if (anchors.length > 2)
    throw new CompileError(
      `${groupPath(group)}: ${anchors.length} contractions meet in one expression; at most two can share a kernel`,
    );
  const accumulators = new Map(anchors.map((anchor, i) => [anchor.result, i === 0 ? 0 : 1] as const));
  const belongs = (v: Value): boolean => {
    if (accumulators.has(v)) return true;
    const node = lowering.defs.get(v);
    if (node === undefined || !group.members.includes(node)) return false;
    return anchors.some((anchor) => dependsOn(lowering, node, anchor, group));
  };
  const outputs = lowerOutputs(lowering, group, accumulators, belongs);
  const columns = lastExtent(anchors[0]!.result);
  const pairing = pairingOf(lowering, group, anchors, outputs);
  const each = anchors.map((anchor) => lowering.weightsOf(anchor));
  // The matrices of one expert lie together.
  const matches = each[0]!.flatMap((_, expert) => each.map((own) => own[expert]!));
  if (new Set(matches.map(({ columnScale, columnOffset = 0 }) => `${columnScale} ${columnOffset}`)).size > 1)
    throw new CompileError(`${groupPath(group)}: paired matrices have different folded norms`);
  const isOfExperts = anchors[0]!.op === 'expert_linear';
  lowering.weights.declareMatrix(
    weight,
    lastExtent(anchors[0]!.operands[0]!),
    matches,
    format,
    pairing,
    isOfExperts ? each[0]!.length : undefined,
  );
  return { weight, columns, pairing, outputs };
}

/** How columns are laid out, so that those that an expression combines are in one tile. */
function pairingOf(lowering: Lowering, group: Group, anchors: readonly Node[], outputs: readonly Output[]): Pairing {
  const rotated = new Set(
    group.members
      .filter((node) => node.op === 'rotate_half' && dependsOn(lowering, node, anchors[0]!, group))
      .map((node) => lastExtent(node.result)),
  );
  if (anchors.length === 2 && rotated.size === 0) return lowering.weights.interleave();
  if (!rotates(outputs)) return { kind: 'none' };
  const [headDim] = rotated;
  if (headDim === undefined)
    throw new CompileError(`${groupPath(group)}: a rotation of another kernel's result is not supported`);
  if (rotated.size > 1 || anchors.length > 1)
    throw new CompileError(
      `${groupPath(group)}: %${anchors[0]!.result.name} is rotated in ` +
        `heads of ${[...rotated].join(' and of ')}` +
        `${anchors.length > 1 ? ` and is combined with %${anchors[1]!.result.name}` : ''}; ` +
        'one kernel rotates one matrix, in heads of one width',
    );
  return lowering.weights.rotate(headDim);
}
