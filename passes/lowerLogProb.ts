/**
 * Scores of a head become two kernels: a contraction that keeps a few numbers of every block of the vocabulary and
 * stores no logit, and a reduction of those parts to scores.
 */
import { defined } from '../system/defined.js';
import { isOp, type NodeOf } from '../ir/graph/graph.js';
import { LOGPROB_BLOCK, partWidth, type Draw, type LogProbKernel, type LogProbReduceKernel } from '../ir/kernel.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import { CompileError } from './compileError.js';
import { at } from '../system/at.js';
import type { GroupOf } from './groups.js';
import { roundingOf } from './lowerGemm.js';
import { lastExtent, NO_ACCUMULATORS, type KernelHead, type Lowering } from './lowering.js';

export function lowerLogProb(
  lowering: Lowering,
  group: GroupOf<'logprob'>,
  head: KernelHead,
): readonly [LogProbKernel, LogProbReduceKernel] {
  const { names, weights, buffers, scalars } = lowering;
  const { rows } = group;
  const node = at(group.anchors, 0);
  const { x, scale } = node.operands;
  const target = group.anchors.find((anchor) => isOp(anchor, 'logprob', 'is_argmax'))?.operands.target;
  if (target === undefined)
    throw new CompileError(`${head.path}: the most likely token comes with the log-probability of a target`);
  const k = lastExtent(x);
  const match = lowering.weightOf(node);
  const vocab = match.rows;
  const weight = names.unique(`${head.name}_w0`);
  weights.declareMatrix(weight, k, [match], weights.formatOf([match]), { kind: 'none' });
  const drawn = group.anchors.find((anchor) => isOp(anchor, 'draw', 'draw_logprob'));
  const columns = partWidth({ draw: drawn }) * Math.ceil(vocab / LOGPROB_BLOCK);
  const parts = buffers.declare(`${head.name}_parts`, { dtype: 'f32', rows, columns, space: 'arena' });
  const logits = group.anchors.find(({ op }) => op === 'head_logits')?.result;
  const totals = logits === undefined ? undefined : lowering.totalsOf(logits);
  const shared = { vocab, target: buffers.of(target), parts, rows };
  const result = (op: ScoreOp): string => resultOf(lowering, group, head, op);
  return [
    {
      ...head,
      anchor: 'logprob',
      ...shared,
      k,
      a: lowering.bufferBehind(x),
      ...roundingOf(node),
      weight,
      rowScale: scalars.lower(scale, undefined, NO_ACCUMULATORS),
      ...defined({ cap: node.attributes.cap }),
      ...(drawn === undefined ? {} : { draw: drawOf(lowering, drawn) }),
      ...(logits === undefined ? {} : { logits: buffers.of(logits) }),
    },
    {
      name: names.unique(`${head.name}_reduce`),
      path: `${head.path}.reduce`,
      ops: ['logprob'],
      anchor: 'logprobReduce',
      ...shared,
      logProb: result('logprob'),
      isArgmax: result('is_argmax'),
      ...(drawn === undefined ? {} : { draw: { token: result('draw'), logProb: result('draw_logprob') } }),
      ...defined({ totals }),
    },
  ];
}

/** The buffer of a score. A score that the graph does not ask for is stored all the same. */
function resultOf(
  { buffers }: Lowering,
  { anchors, rows }: GroupOf<'logprob'>,
  { name }: KernelHead,
  op: ScoreOp,
): string {
  const anchor = anchors.find((node) => node.op === op);
  if (anchor !== undefined) return buffers.of(anchor.result);
  const dtype = op === 'logprob' || op === 'draw_logprob' ? 'f32' : 'i32';
  return buffers.declare(`${name}_${op}`, { dtype, rows, columns: 1, space: 'arena' });
}

/** Where the settings of a draw are found, by row. */
const drawOf = (lowering: Lowering, { operands }: NodeOf<'draw' | 'draw_logprob'>): Draw => ({
  inverseTemperature: lowering.bufferBehind(operands.inverseTemperature),
  low: lowering.bufferBehind(operands.low),
  high: lowering.bufferBehind(operands.high),
});
