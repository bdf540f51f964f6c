/** The kernels that choose experts and put rows in their order. */
import type { Node } from '../ir/graph/graph.js';
import type { SortByExpertKernel, RouteKernel } from '../ir/kernel.js';
import { CompileError } from './compileError.js';
import type { Group } from './groups.js';
import { lastExtent, type KernelHead, type Lowering } from './lowering.js';

/** The nodes called `op`, one for each of `count` slots. */
function bySlot({ anchors }: Group, op: Node['op'], count: number, { path }: KernelHead): readonly Node[] {
  return Array.from({ length: count }, (_, slot) => {
    const found = anchors.filter((node) => node.op === op && node.attributes['slot'] === slot);
    if (found.length !== 1)
      throw new CompileError(`${path}: '${op}' of slot ${slot} is wanted once, it is there ${found.length}×`);
    return found[0]!;
  });
}

function only({ anchors }: Group, op: Node['op'], { path }: KernelHead): Node {
  const found = anchors.filter((node) => node.op === op);
  if (found.length !== 1)
    throw new CompileError(`${path}: '${op}' of the same value is wanted once, it is there ${found.length}×`);
  return found[0]!;
}

export function lowerRoute(lowering: Lowering, group: Group, head: KernelHead): RouteKernel {
  const { buffers } = lowering;
  const top = only(group, 'top_experts', head);
  const [logits] = top.operands;
  const chosen = lastExtent(top.result);
  const weights = bySlot(group, 'expert_weight', chosen, head);
  const normalized = weights[0]!.attributes['normalized'] === true;
  if (weights.some(({ operands, attributes }) => operands[1] !== top.result || attributes['normalized'] !== normalized))
    throw new CompileError(`${head.path}: weights are those of the experts that are chosen from the same logits`);
  return {
    ...head,
    anchor: 'route',
    rows: group.rows,
    count: lastExtent(logits!),
    chosen,
    normalized,
    logits: lowering.bufferBehind(logits!),
    experts: buffers.of(top.result),
    weights: weights.map(({ result }) => buffers.of(result)),
  };
}

export function lowerSortByExpert(lowering: Lowering, group: Group, head: KernelHead): SortByExpertKernel {
  const { buffers } = lowering;
  const order = only(group, 'expert_rows', head);
  const [experts] = order.operands;
  const chosen = lastExtent(experts!);
  const count = Number(order.attributes['experts']);
  return {
    ...head,
    anchor: 'sortByExpert',
    rows: group.rows,
    count,
    chosen,
    experts: lowering.bufferBehind(experts!),
    order: buffers.of(order.result),
    places: bySlot(group, 'expert_place', chosen, head).map(({ result }) => buffers.of(result)),
    starts: lowering.startsOf(experts!, count),
  };
}
