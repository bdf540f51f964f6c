import { rewrite, type Graph, type Rewriter, type Value } from '../ir/graph/graph.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import { Matcher } from './match.js';

/**
 * log_softmax followed by a gather of one column becomes `logprob`, and argmax == target becomes `is_argmax`. The head
 * contraction keeps a running log-sum-exp (Milakov & Gimelshein, arXiv:1805.02867), and logits are never stored. The
 * argmax itself becomes `best`, and its log-probability `best_logprob`.
 */
export function fuseLogProb(graph: Graph): Graph {
  const m = new Matcher(graph);
  return rewrite(graph, (node, rewriter) => {
    if (node.op === 'gather_last') {
      const logits = matchLogSoftmax(m, node.operands[0]!);
      if (logits === undefined) return undefined;
      const [, index] = node.operands;
      return matchArgmax(m, index!) === logits
        ? score(m, rewriter, 'best_logprob', logits, undefined, node.result.name)
        : score(m, rewriter, 'logprob', logits, index, node.result.name);
    }
    if (node.op === 'reshape' && graph.results.includes(node.result)) {
      const logits = matchArgmax(m, node.result);
      return logits === undefined ? undefined : score(m, rewriter, 'best', logits, undefined, node.result.name);
    }
    if (node.op === 'cast' && node.attributes['dtype'] === 'i32') {
      for (const [best, target] of m.pairs(node.operands[0], 'eq')) {
        const logits = matchArgmax(m, best);
        if (logits !== undefined && target.type.shape.length === 1)
          return score(m, rewriter, 'is_argmax', logits, target, node.result.name);
      }
    }
    return undefined;
  });
}

/** The z for which v[R] = argmax z[R, V]. */
const matchArgmax = (m: Matcher, v: Value): Value | undefined =>
  v.type.shape.length === 1 ? m.through(m.through(v, 'reshape'), 'argmax') : undefined;

/** The z for which v = (z − max z) − log Σ exp(z − max z). */
function matchLogSoftmax(m: Matcher, v: Value): Value | undefined {
  const outer = m.node(v, 'sub');
  const shifted = outer?.operands[0];
  const total = m.through(m.through(outer?.operands[1], 'log'), 'sum');
  if (shifted === undefined || m.through(total, 'exp') !== shifted) return undefined;
  const inner = m.node(shifted, 'sub');
  return inner !== undefined && m.through(inner.operands[1], 'reduce_max') === inner.operands[0]
    ? inner.operands[0]
    : undefined;
}

/** The fused node for logits = linear(x, w)·scale[rows, 1]. */
function score(
  m: Matcher,
  rewriter: Rewriter,
  op: ScoreOp,
  logits: Value,
  target: Value | undefined,
  name: string,
): Value | undefined {
  for (const [product, scale] of m.pairs(logits, 'mul')) {
    const head = m.node(product, 'linear');
    const rows = head?.operands[0]!.type.shape[0];
    if (
      head === undefined ||
      scale.type.shape.length !== 2 ||
      scale.type.shape[0] !== rows ||
      scale.type.shape[1] !== 1
    )
      continue;
    return rewriter.add(
      op,
      [head.operands[0]!, head.operands[1]!, scale, ...(target === undefined ? [] : [target])].map(rewriter.map),
      {},
      name,
    );
  }
  return undefined;
}
