import { rewrite, type Graph, type Value } from '../ir/graph/graph.js';
import { sameShape } from '../ir/types.js';
import { defined } from '../system/defined.js';
import { Matcher } from './match.js';

/** The parts of softmax(cap(q·kᵀ·scale) + slopes·distance + bias)·v; q, k and v are [T, heads, d]. */
interface AttentionParts {
  readonly q: Value;
  readonly k: Value;
  readonly v: Value;
  /** Elements that the heads of q and k go on with: [T, heads, r], and [T, 1, r] for all heads. */
  readonly tail: { readonly q: Value; readonly k: Value } | undefined;
  readonly bias: Value;
  readonly scale: number;
  /** Scores s become cap·tanh(s / cap). */
  readonly cap: number | undefined;
  readonly alibi: Alibi | undefined;
  /** [heads]: a logit of each head, which has no value. */
  readonly sink: Value | undefined;
}

/** What ALiBi adds to scores: f32[heads] times i32[T, C], how many positions a key is further on than a query. */
interface Alibi {
  readonly slopes: Value;
  /** With a factor: positions of keys. These, and their products with slopes, are rounded to bf16 (ir/slopes.ts). */
  readonly distance: Value;
  readonly factor?: number;
}

/**
 * Finds softmax(q·kᵀ·scale + bias)·v in primitive ops and makes it one `attention` node, with its bias as operand. Key
 * heads that were repeated for groups of query heads (GQA) are read without the repetition. Scores may have a cap,
 * cap·tanh(s / cap). What is added to them may be a slope of each head times the distance of positions, beside the
 * bias. The softmax may have one more logit for each head, a sink: exp(s − m) / (Σ exp(s − m) + exp(sink − m)) with
 * m = max(max s, sink).
 */
export function recognizeAttention(graph: Graph): Graph {
  const m = new Matcher(graph);
  return rewrite(graph, (node, rewriter) => {
    if (node.op !== 'matmul') return undefined;
    const parts = matchAttention(m, node.operands.a, node.operands.b);
    if (parts === undefined) return undefined;
    const { scale, cap, alibi, tail } = parts;
    const { map } = rewriter;
    const sink = parts.sink && map(parts.sink);
    const operands = { q: map(parts.q), k: map(parts.k), v: map(parts.v), bias: map(parts.bias) };
    const sloped = alibi && { slopes: map(alibi.slopes), distance: map(alibi.distance) };
    const tails = tail && { qTail: map(tail.q), kTail: map(tail.k) };
    const byToken = rewriter.add(
      'attention',
      { ...operands, ...sloped, ...tails, ...defined({ sink }) },
      {
        scale,
        mask: 'bias',
        cap,
        ...(alibi === undefined ? {} : { sloped: true, ...defined({ slopeFactor: alibi.factor }) }),
        ...(sink === undefined ? {} : { sinks: true }),
        ...(tail === undefined ? {} : { tailed: true }),
      },
      'attended',
    );
    return rewriter.add('transpose', { x: byToken }, { order: [1, 0, 2] }, node.result.name);
  });
}

function matchAttention(m: Matcher, probabilities: Value, values: Value): AttentionParts | undefined {
  const plain = m.softmax(probabilities);
  const { scores, sink } = plain === undefined ? (withSink(m, probabilities) ?? {}) : { scores: plain };
  const v = fromHeads(m, values);
  if (scores === undefined || v === undefined) return undefined;
  if (sink !== undefined && sink.type.shape[0] !== scores.type.shape[0]) return undefined;
  for (const [sum, bias] of m.pairs(scores, 'add')) {
    const { product, alibi } = withoutAlibi(m, sum);
    for (const { matrix, scale, cap } of cappedScores(m, product)) {
      for (const { q, k, tail } of dots(m, matrix)) {
        if (k.type.shape[1] !== v.type.shape[1]) continue;
        const scored = [...q.type.shape.slice(0, 1), ...k.type.shape.slice(0, 1)];
        if (!sameShape(bias.type.shape, scored)) continue;
        const isFitting =
          alibi === undefined ||
          (sameShape(alibi.distance.type.shape, scored) &&
            sameShape(alibi.slopes.type.shape, q.type.shape.slice(1, 2)));
        if (isFitting) return { q, k, v, tail, bias, scale, cap, alibi, sink };
      }
    }
  }
  return undefined;
}

/** `v` as a product plus slopes[h, 1, 1]·distance[T, C], a whole number as f32; all of it without these. */
function withoutAlibi(m: Matcher, v: Value): { readonly product: Value; readonly alibi: Alibi | undefined } {
  for (const [product, added] of m.pairs(v, 'add')) {
    const alibi = leaning(m, added) ?? roundedLeaning(m, added);
    if (alibi !== undefined) return { product, alibi };
  }
  return { product: v, alibi: undefined };
}

function leaning(m: Matcher, v: Value): Alibi | undefined {
  for (const [byHead, wide] of m.pairs(v, 'mul')) {
    const [slopes, distance] = [m.through(byHead, 'reshape'), m.through(wide, 'cast')];
    const [heads, ...ones] = byHead.type.shape;
    const isByHead = slopes?.type.shape.length === 1 && slopes.type.shape[0] === heads && ones.join() === '1,1';
    if (isByHead && distance?.type.dtype === 'i32') return { slopes, distance };
  }
  return undefined;
}

/** The same in bf16: r(slopes·r(positions))·factor, where r is a cast to bf16 and back. */
function roundedLeaning(m: Matcher, v: Value): Alibi | undefined {
  const unrounded = (wide: Value | undefined): Value | undefined => {
    const narrow = m.through(wide, 'cast');
    return narrow?.type.dtype === 'bf16' && wide?.type.dtype === 'f32' ? m.through(narrow, 'cast') : undefined;
  };
  for (const [wide, by] of m.pairs(v, 'mul')) {
    const factor = m.literal(by);
    for (const [byHead, keys] of m.pairs(unrounded(wide), 'mul')) {
      const [slopes, distance] = [m.through(byHead, 'reshape'), unrounded(keys)];
      const [heads, ...ones] = byHead.type.shape;
      const isByHead = slopes?.type.shape.length === 1 && slopes.type.shape[0] === heads && ones.join() === '1,1';
      if (isByHead && distance?.type.dtype === 'i32' && factor !== undefined && factor > 0)
        return { slopes, distance, factor };
    }
  }
  return undefined;
}

/** The scores [h, Q, K] and the sinks [h] of exp(s − m) / (Σ exp(s − m) + exp(sink − m)), m = max(max s, sink). */
function withSink(m: Matcher, v: Value): { readonly scores: Value; readonly sink: Value } | undefined {
  const division = m.node(v, 'div')?.operands;
  const shifted = m.node(m.through(division?.a, 'exp'), 'sub')?.operands;
  if (division === undefined || shifted === undefined) return undefined;
  for (const [sum, rest] of m.pairs(division.b, 'add')) {
    if (m.through(sum, 'sum') !== division.a) continue;
    const own = m.node(m.through(rest, 'exp'), 'sub')?.operands;
    if (own?.b !== shifted.b) continue;
    const isTop = m.pairs(shifted.b, 'max').some(([a, b]) => m.through(a, 'reduce_max') === shifted.a && b === own.a);
    const [heads, one, other] = own.a.type.shape;
    const wide = m.through(own.a, 'reshape');
    // Kernels widen sinks as they read them.
    const sink = m.through(wide, 'cast') ?? wide;
    if (!isTop || one !== 1 || other !== 1 || sink?.type.shape.length !== 1 || sink.type.shape[0] !== heads) continue;
    return { scores: shifted.a, sink };
  }
  return undefined;
}

type Dot = Pick<AttentionParts, 'q' | 'k' | 'tail'>;

/** q·kᵀ, or the sum of two of them, of which one has a single head of keys. */
function dots(m: Matcher, v: Value): readonly Dot[] {
  const product = (of: Value): Dot | undefined => {
    const dot = m.node(of, 'matmul')?.operands;
    const q = m.transposed(dot?.a, [1, 0, 2]);
    const k = fromHeads(m, m.transposed(dot?.b, [0, 2, 1]));
    return q === undefined || k === undefined ? undefined : { q, k, tail: undefined };
  };
  const whole = product(v);
  if (whole !== undefined) return [whole];
  return m.pairs(v, 'add').flatMap(([a, b]) => {
    const [head, tail] = [product(a), product(b)];
    return head === undefined || tail === undefined || tail.k.type.shape[1] !== 1 ? [] : [{ ...head, tail }];
  });
}

/** Ways to read `v` as cap·tanh(matrix·scale / cap), or as matrix·scale without a cap. */
function cappedScores(
  m: Matcher,
  v: Value,
): readonly { readonly matrix: Value; readonly scale: number; readonly cap: number | undefined }[] {
  const capped = m.softCap(v);
  return capped === undefined
    ? scaled(m, v).map((each) => ({ ...each, cap: undefined }))
    : scaled(m, capped.of).map(({ matrix, scale }) => ({ matrix, scale: scale * capped.factor, cap: capped.cap }));
}

/** Ways to read `v` as a matrix times a literal; the matrix itself, times 1, comes last. */
function scaled(m: Matcher, v: Value): readonly { matrix: Value; scale: number }[] {
  const found = m.pairs(v, 'mul').flatMap(([matrix, factor]) => {
    const scale = m.literal(factor);
    return scale === undefined ? [] : [{ matrix, scale }];
  });
  return [...found, { matrix: v, scale: 1 }];
}

/** The [T, h, d] behind a transpose to [h, T, d], possibly repeated to more heads. */
function fromHeads(m: Matcher, v: Value | undefined): Value | undefined {
  return m.transposed(m.through(v, 'repeat') ?? v, [1, 0, 2]);
}
