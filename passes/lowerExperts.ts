/** The kernels that choose experts and put rows in their order. */
import { isOp, type Node, type NodeOf } from '../ir/graph/graph.js';
import type { SortByExpertKernel, RouteKernel } from '../ir/kernel.js';
import { CompileError } from './compileError.js';
import type { GroupOf } from './groups.js';
import { lastExtent, onlyAnchor, type KernelHead, type Lowering } from './lowering.js';

/** The anchors that are an `op`, one for each of `count` slots. */
function bySlot<Op extends 'expert_weight' | 'expert_place'>(
  anchors: readonly Node[],
  op: Op,
  count: number,
  head: KernelHead,
): readonly NodeOf<Op>[] {
  const nodes = anchors.filter((node) => isOp(node, op));
  return Array.from({ length: count }, (_, slot) =>
    onlyAnchor(
      nodes.filter(({ attributes }) => attributes.slot === slot),
      op,
      head,
    ),
  );
}

export function lowerRoute(lowering: Lowering, { anchors, rows }: GroupOf<'route'>, head: KernelHead): RouteKernel {
  const { buffers } = lowering;
  const top = onlyAnchor(anchors, 'top_experts', head);
  const { logits } = top.operands;
  const chosen = lastExtent(top.result);
  const weights = bySlot(anchors, 'expert_weight', chosen, head);
  const isNormalized = weights.every(({ attributes }) => attributes.normalized);
  const isAlike = ({ operands, attributes }: NodeOf<'expert_weight'>): boolean =>
    operands.experts === top.result && attributes.normalized === isNormalized;
  if (!weights.every(isAlike))
    throw new CompileError(`${head.path}: weights are those of the experts that are chosen from the same logits`);
  return {
    ...head,
    anchor: 'route',
    rows,
    count: lastExtent(logits),
    chosen,
    normalized: isNormalized,
    logits: lowering.bufferBehind(logits),
    experts: buffers.of(top.result),
    weights: weights.map(({ result }) => buffers.of(result)),
  };
}

export function lowerSortByExpert(
  lowering: Lowering,
  { anchors, rows }: GroupOf<'sortByExpert'>,
  head: KernelHead,
): SortByExpertKernel {
  const { buffers } = lowering;
  const order = onlyAnchor(anchors, 'expert_rows', head);
  const { experts } = order.operands;
  const chosen = lastExtent(experts);
  const count = order.attributes.experts;
  return {
    ...head,
    anchor: 'sortByExpert',
    rows,
    count,
    chosen,
    experts: lowering.bufferBehind(experts),
    order: buffers.of(order.result),
    places: bySlot(anchors, 'expert_place', chosen, head).map(({ result }) => buffers.of(result)),
    starts: lowering.startsOf(experts, count),
  };
}
