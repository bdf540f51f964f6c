import { rewrite, type Attributes, type Graph, type Node, type Rewriter, type Value } from '../ir/graph/graph.js';
import type { ScoreOp } from '../ir/ops/fused.js';
import { Matcher } from './match.js';

/**
 * log_softmax followed by a gather of one column becomes `logprob`, and argmax == target becomes `is_argmax`. The head
 * contraction keeps a running log-sum-exp (Milakov & Gimelshein, arXiv:1805.02867), and logits are never stored. The
 * argmax of noisy logits becomes `draw`, and its log-probability `draw_logprob`. Logits of the first rows, which others
 * read, become `head_logits`.
 */
export function fuseLogProb(graph: Graph): Graph {
  const m = new Matcher(graph);
  return rewrite(graph, (node, rewriter) => {
    if (node.op === 'gather_last') {
      const logits = matchLogSoftmax(m, node.operands[0]!);
      if (logits === undefined) return undefined;
      const [, index] = node.operands;
      const drawn = matchDraw(m, index!);
      if (drawn?.logits === logits) return score(m, rewriter, 'draw_logprob', logits, drawn.by, node.result.name);
      return score(m, rewriter, 'logprob', logits, [index!], node.result.name);
    }
    if (node.op === 'first_rows')
      return score(m, rewriter, 'head_logits', node.operands[0]!, [], node.result.name, node.attributes);
    if (node.op === 'reshape' && graph.results.includes(node.result)) {
      const drawn = matchDraw(m, node.result);
      return drawn === undefined ? undefined : score(m, rewriter, 'draw', drawn.logits, drawn.by, node.result.name);
    }
    if (node.op === 'cast' && node.attributes['dtype'] === 'i32') {
      for (const [best, target] of m.pairs(node.operands[0], 'eq')) {
        const logits = matchArgmax(m, best);
        if (logits !== undefined && target.type.shape.length === 1)
          return score(m, rewriter, 'is_argmax', logits, [target], node.result.name);
      }
    }
    return undefined;
  });
}

/** The z for which v[R] = argmax z[R, V]. */
const matchArgmax = (m: Matcher, v: Value): Value | undefined =>
  v.type.shape.length === 1 ? m.through(m.through(v, 'reshape'), 'argmax') : undefined;

/**
 * The z, t and k for which v[R] = argmax (t = 0 ? z : z·t + gumbel(k)), z[R, V]. `by`: t[R] and the halves of k[R].
 */
function matchDraw(m: Matcher, v: Value): { readonly logits: Value; readonly by: readonly Value[] } | undefined {
  const [isGreedy, logits, noisy] = m.node(matchArgmax(m, v), 'select')?.operands ?? [];
  for (const [scaled, noise] of m.pairs(noisy, 'add')) {
    const keys = m.node(noise, 'gumbel')?.operands;
    for (const [z, column] of m.pairs(scaled, 'mul')) {
      const [tested, zero] = m.node(isGreedy, 'eq')?.operands ?? [];
      const heat = m.through(column, 'reshape');
      if (keys === undefined || z !== logits || tested !== column || m.literal(zero) !== 0) continue;
      if (heat?.type.shape.length === 1) return { logits: z, by: [heat, ...keys] };
    }
  }
  return undefined;
}

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

/**
 * The fused node for logits = linear(x, w)·scale[rows, 1], or without the scale, or with a cap around both. `by`: its
 * other operands.
 */
function score(
  m: Matcher,
  rewriter: Rewriter,
  op: ScoreOp,
  logits: Value,
  by: readonly Value[],
  name: string,
  attributes: Attributes = {},
): Value | undefined {
  const capped = m.softCap(logits);
  // A factor other than 1 would belong to the scale; nobody writes one.
  if (capped !== undefined && capped.factor !== 1) return undefined;
  const product = scaledProduct(m, capped?.of ?? logits);
  if (product === undefined) return undefined;
  const { head, scale } = product;
  const [x, w] = head.operands as readonly [Value, Value];
  return rewriter.add(
    op,
    [
      rewriter.map(x),
      rewriter.map(w),
      scale === undefined ? one(rewriter) : rewriter.map(scale),
      ...by.map(rewriter.map),
    ],
    { ...attributes, ...(capped === undefined ? {} : { cap: capped.cap }) },
    name,
  );
}

const one = (rewriter: Rewriter): Value => rewriter.add('const', [], { value: 1 }, 'unscaled');

/** The contraction and the scale [rows, 1] behind `v`; a contraction alone has none. */
function scaledProduct(m: Matcher, v: Value): { readonly head: Node; readonly scale: Value | undefined } | undefined {
  const alone = m.node(v, 'linear');
  if (alone !== undefined) return { head: alone, scale: undefined };
  for (const [product, scale] of m.pairs(v, 'mul')) {
    const head = m.node(product, 'linear');
    const rows = head?.operands[0]!.type.shape[0];
    const { shape } = scale.type;
    if (head !== undefined && shape.length === 2 && shape[0] === rows && shape[1] === 1) return { head, scale };
  }
  return undefined;
}
