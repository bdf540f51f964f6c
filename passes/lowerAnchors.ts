/** Recognized attention becomes a kernel of its own: fixed heads of one width, and a mask in one of three forms. */
import { CompileError } from '../errors.js';
import { isOp, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import {
  type AttentionKernel,
  type DrawBuffers,
  LOGPROB_BLOCK,
  type LogProbKernel,
  type LogProbReduceKernel,
  partWidth,
  type RouteKernel,
  type SampleKernel,
  type SortByExpertKernel,
} from '../ir/kernel.js';
import type { Mask } from '../ir/mask.js';
import { maskOf, scalesOf, tailOf } from '../ir/ops/attention.js';
import { groupsOf } from '../ir/ops/experts.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import { mapInputs, MAX_SAMPLE_VOCAB } from '../ir/sampleInputs.js';
import { extentsOf } from '../ir/types.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import { roundingOf } from './lowerGemm.js';
import { type LoweredHead, lastExtent, type Lowering, NO_ACCUMULATORS, onlyAnchor } from './lowering.js';
import type { GroupOf } from './placedValues.js';

export function lowerAttention(
  lowering: Lowering,
  { anchors, rows, stored }: GroupOf<'attention'>,
  head: LoweredHead,
): AttentionKernel {
  const node = at(anchors, 0);
  const [result, ...more] = stored;
  if (result === undefined || more.length > 0)
    throw new CompileError(`${head.path}: attention must have exactly one stored result`);
  const { q, k, v, sink, queryRow, slopes } = node.operands;
  if (slopes !== undefined && node.attributes.mask === 'bias')
    throw new CompileError(`${head.path}: slopes of heads want a mask that is proved to be a tree or a path`);
  const buffer = (operand: Value): string => lowering.bufferBehind(operand);
  const [scales, tail] = [scalesOf(node.operands), tailOf(node.operands)];
  return {
    ...head,
    anchor: 'attention',
    rows,
    ...shapeOf(node, head.path),
    q: buffer(q),
    k: buffer(k),
    v: buffer(v),
    ...defined({ scales: scales && { k: buffer(scales.k), v: buffer(scales.v) } }),
    ...defined({ tail: tail && { q: buffer(tail.q), k: buffer(tail.k), headDim: lastExtent(tail.k) } }),
    out: lowering.buffers.of(result),
    ...defined({ slopes: slopes && buffer(slopes), slopeFactor: node.attributes.slopeFactor }),
    mask: lowerMask(node, buffer),
    ...defined({ sink: sink && buffer(sink) }),
    ...defined({ queryRow: queryRow && buffer(queryRow) }),
  };
}

/** Heads and scale of an attention node. Kernels are made for these numbers. */
function shapeOf(
  { operands: { q, k, v }, attributes: { scale, cap } }: NodeOf<'attention'>,
  path: string,
): Pick<AttentionKernel, 'heads' | 'kvHeads' | 'headDim' | 'valueDim' | 'scale' | 'cap'> {
  const [, heads, headDim] = extentsOf(q.type.shape, 3);
  const [, kvHeads] = extentsOf(k.type.shape, 3);
  const [, , width] = extentsOf(v.type.shape, 3);
  if ([heads, headDim, kvHeads, width].some((each) => typeof each !== 'number'))
    throw new CompileError(`${path}: attention needs fixed head counts`);
  const valueDim = width === headDim ? {} : { valueDim: Number(width) };
  return {
    heads: Number(heads),
    kvHeads: Number(kvHeads),
    headDim: Number(headDim),
    ...valueDim,
    scale,
    ...defined({ cap }),
  };
}

/** The mask of an attention node, in buffers. */
function lowerMask({ operands, attributes }: NodeOf<'attention'>, buffer: (operand: Value) => string): Mask {
  const mask = maskOf(operands, attributes);
  const { window, chunk } = attributes;
  switch (mask.kind) {
    case 'column': {
      const subtreeEnd = buffer(mask.subtreeEnd);
      return {
        kind: 'column',
        subtreeEnd,
        ...defined({ window, chunk, position: mask.position && buffer(mask.position) }),
      };
    }
    case 'path': {
      const [begin, position, key] = [buffer(mask.begin), buffer(mask.position), buffer(mask.key)];
      return { kind: 'path', begin, position, key, ...defined({ window, chunk }) };
    }
    case 'bias':
      return { kind: 'bias', buffer: buffer(mask.bias) };
    default:
      return mask satisfies never;
  }
}

// Scores of a head become two kernels: a contraction that keeps a few numbers of every block of the vocabulary and
// stores no logit, and a reduction of those parts to scores.

export function lowerLogProb(
  lowering: Lowering,
  group: GroupOf<'logprob'>,
  head: LoweredHead,
): readonly [LogProbKernel, LogProbReduceKernel] {
  const { names, weights, buffers, scalars } = lowering;
  const { rows } = group;
  const node = at(group.anchors, 0);
  const { x, scale, bias } = node.operands;
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
      ...defined({ bias: bias && buffers.of(bias) }),
      ...defined({ cap: node.attributes.cap }),
      ...defined({ draw: drawn && drawOf(lowering, drawn) }),
      ...defined({ logits: logits && buffers.of(logits) }),
    },
    {
      name: names.unique(`${head.name}_reduce`),
      path: `${head.path}.reduce`,
      ops: ['logprob'],
      anchor: 'logprobReduce',
      ...shared,
      logProb: result('logprob'),
      isArgmax: result('is_argmax'),
      ...defined({
        draw: drawn && {
          token: result('draw'),
          logProb: result('draw_logprob'),
          ...defined({ ids: drawn.operands.ids && buffers.of(drawn.operands.ids) }),
        },
      }),
      ...defined({ totals }),
    },
  ];
}

/** The buffer of a score. A score that the graph does not ask for is stored all the same. */
function resultOf(
  { buffers }: Lowering,
  { anchors, rows }: GroupOf<'logprob'>,
  { name }: LoweredHead,
  op: ScoreOp,
): string {
  const anchor = anchors.find((node) => node.op === op);
  if (anchor !== undefined) return buffers.of(anchor.result);
  const dtype = op === 'logprob' || op === 'draw_logprob' ? 'f32' : 'i32';
  return buffers.declare(`${name}_${op}`, { dtype, rows, columns: 1, space: 'arena' });
}

/** Where the settings of a draw are found, by row. */
const drawOf = (lowering: Lowering, { operands }: NodeOf<'draw' | 'draw_logprob'>): DrawBuffers => ({
  inverseTemperature: lowering.bufferBehind(operands.inverseTemperature),
  low: lowering.bufferBehind(operands.low),
  high: lowering.bufferBehind(operands.high),
  ...defined({ ids: operands.ids && lowering.buffers.of(operands.ids) }),
});

// Ops that choose from the same logits become one kernel.

export function lowerSample(lowering: Lowering, { anchors, rows }: GroupOf<'sample'>, head: LoweredHead): SampleKernel {
  const { buffers } = lowering;
  const sample = onlyAnchor(anchors, 'sample', head);
  const [tokens, logProbs] = [onlyAnchor(anchors, 'top_tokens', head), onlyAnchor(anchors, 'top_logprobs', head)];
  const chosen = onlyAnchor(anchors, 'sample_logprob', head);
  const { z: logits, ...inputs } = sample.operands;
  if (lowering.defs.get(logits)?.op !== 'head_logits')
    throw new CompileError(
      `${head.path}: tokens are chosen from logits that the head computes, not from %${logits.name}`,
    );
  const { count } = tokens.operands;
  if (chosen.operands.token !== sample.result || count !== logProbs.operands.count)
    throw new CompileError(
      `${head.path}: log-probabilities are those of the tokens that are chosen from the same logits`,
    );
  const vocab = lastExtent(logits);
  if (vocab >= MAX_SAMPLE_VOCAB)
    throw new CompileError(
      `${head.path}: a vocabulary of ${vocab} tokens; filters take fewer than ${MAX_SAMPLE_VOCAB}`,
    );
  const [entries] = extentsOf(inputs.entryToken.type.shape, 1);
  return {
    ...head,
    anchor: 'sample',
    rows,
    vocab,
    logits: buffers.of(logits),
    totals: lowering.totalsOf(logits),
    inputs: mapInputs((name) => lowering.bufferBehind(inputs[name])),
    saved: buffers.declare(`${head.name}_saved`, { dtype: 'f32', rows: entries, columns: 1, space: 'arena' }),
    token: buffers.of(sample.result),
    logProb: buffers.of(chosen.result),
    best: {
      most: lastExtent(tokens.result),
      count: lowering.bufferBehind(count),
      tokens: buffers.of(tokens.result),
      logProbs: buffers.of(logProbs.result),
    },
  };
}

// The kernels that choose experts and put rows in their order.

/** The anchors that are an `op`, one for each of `count` slots. */
function bySlot<Op extends 'expert_weight' | 'expert_place'>(
  anchors: readonly Node[],
  op: Op,
  count: number,
  head: LoweredHead,
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

export function lowerRoute(lowering: Lowering, { anchors, rows }: GroupOf<'route'>, head: LoweredHead): RouteKernel {
  const { buffers } = lowering;
  const top = onlyAnchor(anchors, 'top_experts', head);
  const { logits, bias } = top.operands;
  const chosen = lastExtent(top.result);
  const weights = bySlot(anchors, 'expert_weight', chosen, head);
  const [first] = weights.map(({ attributes: { normalized, scores, factor, inTurn } }) => ({
    normalized,
    scores,
    factor,
    inTurn,
  }));
  const isAlike = ({ operands, attributes }: NodeOf<'expert_weight'>): boolean =>
    operands.experts === top.result &&
    attributes.normalized === first?.normalized &&
    attributes.scores === top.attributes.scores &&
    attributes.factor === first.factor &&
    attributes.inTurn === first.inTurn;
  if (first === undefined || !weights.every(isAlike))
    throw new CompileError(`${head.path}: weights are those of the experts that are chosen from the same logits`);
  return {
    ...head,
    anchor: 'route',
    rows,
    count: lastExtent(logits),
    chosen,
    ...defined({ scores: first.scores, groups: groupsOf(top.attributes), factor: first.factor, inTurn: first.inTurn }),
    normalized: first.normalized,
    logits: lowering.bufferBehind(logits),
    ...defined({ bias: bias && buffers.of(bias) }),
    experts: buffers.of(top.result),
    weights: weights.map(({ result }) => buffers.of(result)),
  };
}

export function lowerSortByExpert(
  lowering: Lowering,
  { anchors, rows }: GroupOf<'sortByExpert'>,
  head: LoweredHead,
): SortByExpertKernel {
  const { buffers } = lowering;
  const order = onlyAnchor(anchors, 'expert_rows', head);
  const { experts } = order.operands;
  const chosen = lastExtent(experts);
  const count = order.attributes.experts;
  const owners = anchors.find((node) => isOp(node, 'expert_owners'));
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
    ...defined({ owners: owners && buffers.of(owners.result) }),
  };
}
