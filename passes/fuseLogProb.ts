import { rewrite, type Graph, type NodeOf, type Rewriter, type Value } from '../ir/graph/graph.js';
import { defined } from '../system/defined.js';
import { Matcher } from './match.js';

/**
 * log_softmax followed by a gather of one column becomes `logprob`, and argmax == target becomes `is_argmax`. The head
 * contraction keeps a running log-sum-exp (Milakov & Gimelshein, arXiv:1805.02867), and logits are never stored. The
 * argmax of noisy logits becomes `draw`, with the table of the tokens that columns stand for, if there is one, and its
 * log-probability `draw_logprob`. Logits of the first rows, which others read, become `head_logits`.
 */
export function fuseLogProb(graph: Graph): Graph {
  const m = new Matcher(graph);
  return rewrite(graph, (node, rewriter) => {
    if (node.op === 'gather_last') {
      const { x, index } = node.operands;
      const logits = matchLogSoftmax(m, x);
      if (logits === undefined) return undefined;
      const head = matchHead(m, rewriter, logits);
      if (head === undefined) return undefined;
      const drawn = matchDraw(m, rewriter, index);
      return drawn?.logits === logits
        ? rewriter.add('draw_logprob', { ...head.operands, ...drawn.by }, head.attributes, node.result.name)
        : rewriter.add('logprob', { ...head.operands, target: rewriter.map(index) }, head.attributes, node.result.name);
    }
    if (node.op === 'first_rows') {
      const head = matchHead(m, rewriter, node.operands.x);
      const { rows } = node.attributes;
      return head && rewriter.add('head_logits', head.operands, { ...head.attributes, rows }, node.result.name);
    }
    if (node.op === 'reshape' && graph.results.includes(node.result)) {
      const drawn = matchDraw(m, rewriter, node.result);
      const head = drawn && matchHead(m, rewriter, drawn.logits);
      if (drawn === undefined || head === undefined || drawn.ids !== undefined) return undefined;
      return rewriter.add('draw', { ...head.operands, ...drawn.by }, head.attributes, node.result.name);
    }
    if (node.op === 'cast' && node.attributes.dtype === 'i32') {
      const token = m.node(node.operands.x, 'gather_rows')?.operands;
      const mapped = token && matchDraw(m, rewriter, token.index);
      if (token !== undefined && mapped?.ids === token.x) {
        const head = matchHead(m, rewriter, mapped.logits);
        return head && rewriter.add('draw', { ...head.operands, ...mapped.by }, head.attributes, node.result.name);
      }
      for (const [best, target] of m.pairs(node.operands.x, 'eq')) {
        const logits = target.type.shape.length === 1 ? matchArgmax(m, best) : undefined;
        if (logits === undefined) continue;
        const head = matchHead(m, rewriter, logits);
        const operands = head && { ...head.operands, target: rewriter.map(target) };
        return operands && rewriter.add('is_argmax', operands, head.attributes, node.result.name);
      }
    }
    return undefined;
  });
}

/** The z for which v[R] = argmax z[R, V]. */
const matchArgmax = (m: Matcher, v: Value): Value | undefined =>
  v.type.shape.length === 1 ? m.through(m.through(v, 'reshape'), 'argmax') : undefined;

/** What tokens are drawn with: inverse temperatures [R], the halves of keys [R], and the tokens of columns [V]. */
interface DrawOperands {
  readonly inverseTemperature: Value;
  readonly low: Value;
  readonly high: Value;
  readonly ids?: Value;
}

/** The z for which v[R] = argmax (t = 0 ? z : z·t + gumbel(k)), z[R, V], and what the tokens are drawn with. */
function matchDraw(
  m: Matcher,
  { map }: Rewriter,
  v: Value,
): { readonly logits: Value; readonly ids: Value | undefined; readonly by: DrawOperands } | undefined {
  const choice = m.node(matchArgmax(m, v), 'select')?.operands;
  for (const [scaled, noise] of m.pairs(choice?.b, 'add')) {
    const keys = m.node(noise, 'gumbel')?.operands;
    for (const [z, column] of m.pairs(scaled, 'mul')) {
      const test = m.node(choice?.condition, 'eq')?.operands;
      const heat = m.through(column, 'reshape');
      if (keys === undefined || z !== choice?.a || test?.a !== column || m.literal(test.b) !== 0) continue;
      if (heat?.type.shape.length !== 1) continue;
      const { low, high, ids } = keys;
      const by = {
        inverseTemperature: map(heat),
        low: map(low),
        high: map(high),
        ...defined({ ids: ids && map(ids) }),
      };
      return { logits: z, ids, by };
    }
  }
  return undefined;
}

/** The z for which v = (z − max z) − log Σ exp(z − max z). */
function matchLogSoftmax(m: Matcher, v: Value): Value | undefined {
  const outer = m.node(v, 'sub')?.operands;
  const shifted = outer?.a;
  const total = m.through(m.through(outer?.b, 'log'), 'sum');
  if (shifted === undefined || m.through(total, 'exp') !== shifted) return undefined;
  const inner = m.node(shifted, 'sub')?.operands;
  return inner !== undefined && m.through(inner.b, 'reduce_max') === inner.a ? inner.a : undefined;
}

/** What every op of a head takes. */
interface MatchedHead {
  readonly operands: { readonly x: Value; readonly w: Value; readonly scale: Value; readonly bias?: Value };
  readonly attributes: { readonly cap?: number; readonly biased?: true };
}

/** The head for logits = linear(x, w)·scale[rows, 1] + bias[V], or without some of these, or with a cap around all. */
function matchHead(m: Matcher, rewriter: Rewriter, logits: Value): MatchedHead | undefined {
  const capped = m.softCap(logits);
  // A factor other than 1 would belong to the scale; nobody writes one.
  if (capped !== undefined && capped.factor !== 1) return undefined;
  const product = biasedProduct(m, capped?.of ?? logits);
  if (product === undefined) return undefined;
  const { head, scale, bias } = product;
  const factor = scale === undefined ? rewriter.add('const', {}, { value: 1 }, 'unscaled') : rewriter.map(scale);
  const added = defined({ bias: bias && rewriter.map(bias) });
  return {
    operands: { x: rewriter.map(head.operands.x), w: rewriter.map(head.operands.w), scale: factor, ...added },
    attributes: defined({ cap: capped?.cap, biased: bias && (true as const) }),
  };
}

interface ScaledProduct {
  readonly head: NodeOf<'linear'>;
  /** [rows, 1] */
  readonly scale: Value | undefined;
  /** A vector of the checkpoint as it is stored: readers widen it. */
  readonly bias?: Value;
}

/** The contraction behind `v`, what scales it, and the weight that is added to columns. */
function biasedProduct(m: Matcher, v: Value): ScaledProduct | undefined {
  for (const [product, vector] of m.pairs(v, 'add')) {
    const bias = m.through(vector, 'cast') ?? vector;
    const scaled = bias.kind === 'weight' && bias.type.shape.length === 1 ? scaledProduct(m, product) : undefined;
    if (scaled !== undefined) return { ...scaled, bias };
  }
  return scaledProduct(m, v);
}

/** The contraction and the scale [rows, 1] behind `v`; a contraction alone has none. */
function scaledProduct(m: Matcher, v: Value): ScaledProduct | undefined {
  const alone = m.node(v, 'linear');
  if (alone !== undefined) return { head: alone, scale: undefined };
  for (const [product, scale] of m.pairs(v, 'mul')) {
    const head = m.node(product, 'linear');
    const [rows] = head?.operands.x.type.shape ?? [];
    const { shape } = scale.type;
    if (head !== undefined && shape.length === 2 && shape[0] === rows && shape[1] === 1) return { head, scale };
  }
  return undefined;
}
