import { rewrite, type Graph, type NodeOf, type Rewriter, type Value } from '../ir/graph/graph.js';
import { maskOf } from '../ir/ops/attention.js';
import type { Reach } from '../ir/reach.js';
import type { Dim, FloatType } from '../ir/types.js';
import { Matcher } from './match.js';

/** Only keys that are not too far back, by positions. */
interface ReachOfPositions {
  readonly position: Value;
  readonly reach: Reach;
}

/** A predicate that was proved to have a form which kernels know, and the values that the form speaks of. */
type MaskForm = MaskShape & { readonly near?: ReachOfPositions };

type MaskShape =
  /** An i32 value of the graph, one for each key. */
  | { readonly from: 'value'; readonly end: Value }
  /** Causal: every key stays visible. */
  | { readonly from: 'causal' }
  /** A path: query q sees keys begin[q] to begin[q] + position[q]. */
  | { readonly from: 'path'; readonly begin: Value; readonly position: Value }
  /** The meta-pair: the ends follow from `pair` and `branch`. The caller passes them as `subtreeEnd`. */
  | { readonly from: 'metaPair' };

/**
 * Proves that an attention bias select(p(q, k), 0, −∞) equals the column form `k <= q && q < subtreeEnd[k]`, and
 * replaces the f32[T, T] bias by one integer for each key. Or it proves that the keys which a query sees are a path:
 * consecutive entries of a list of rows. p is read as a set of conjuncts:
 *
 * - {k ≤ q, q < e[k]} is the column form itself.
 * - {k ≤ q} is causal: e[k] is past every query.
 * - {k ≤ q, pair[k] = pair[q], branch[k] = 0 ∨ branch[k] = branch[q]} is the meta-pair. models/model/model.ts promises
 *   that both inputs are constant on consecutive runs and that branch 0 comes first in its pair. Under k ≤ q the second
 *   conjunct holds exactly up to the end of k's pair. The third, if branch[k] ≠ 0, holds exactly up to the end of k's
 *   branch. So e[k] is the end of the pair for a question token and the end of the branch for an answer token, which is
 *   the `subtreeEnd` of a depth-first tree.
 * - {begin[q] ≤ k, k − begin[q] ≤ position[q]} is a path, if keys and values are gathered by one list.
 *
 * A conjunct position[q] − p[k] < w adds a window of w keys, where p[k] is the position of key k: that of its token, or
 * k − begin[q] on a path. A conjunct ⌊position[q] / c⌋ ≤ ⌊p[k] / c⌋ cuts paths into chunks of c keys. Distances that
 * slopes of heads are multiplied by must be p[k] − position[q].
 *
 * Any other predicate keeps its materialized bias. `dtype` is the type of keys and values that attention reads.
 */
export function canonicalizeMask(graph: Graph, dtype: FloatType = 'f32'): Graph {
  const m = new Matcher(graph);
  return rewrite(graph, (node, rewriter) => {
    if (node.op !== 'attention') return undefined;
    const mask = maskOf(node.operands, node.attributes);
    const form = mask.kind === 'bias' ? proveForm(m, mask.bias) : undefined;
    if (form === undefined) return undefined;
    const { distance } = node.operands;
    const { slopeFactor } = node.attributes;
    const facts = new MaskFacts(m);
    const positions =
      distance && (slopeFactor === undefined ? facts.distance(distance) : facts.positionOfKey(distance));
    if (distance !== undefined && (positions === undefined || !isOfForm(form, positions))) return undefined;
    if (form.from === 'path') return readPath(m, node, form, dtype, rewriter);
    const { near } = form;
    const position = positions?.position ?? near?.position;
    if (near !== undefined && near.position !== position) return undefined;
    const [keys = 0] = node.operands.k.type.shape;
    return rewriter.rebuild(
      node,
      {
        bias: undefined,
        subtreeEnd: subtreeEnd(form, keys, rewriter),
        position: position && rewriter.map(position),
        distance: undefined,
      },
      { mask: 'column', ...near?.reach },
    );
  });
}

/** Whether positions of keys are those of the mask: k − begin[q] on a path, an input elsewhere. */
const isOfForm = (form: MaskShape, { position, begin }: KeyPositions): boolean =>
  form.from === 'path' ? form.begin === begin && form.position === position : begin === undefined;

/** What `v` only widens from `dtype`, the type that attention reads: it can read the stored value itself. */
function stored(m: Matcher, v: Value | undefined, dtype: FloatType): Value | undefined {
  const narrow = m.through(v, 'cast');
  return narrow?.type.dtype === dtype ? narrow : v;
}

/**
 * Attention over the keys of a path. Keys and values must be gathered with one list of rows; the attention then reads
 * the rows where they lie.
 */
function readPath(
  m: Matcher,
  node: NodeOf<'attention'>,
  { begin, position, near }: Extract<MaskForm, { from: 'path' }>,
  dtype: FloatType,
  rewriter: Rewriter,
): Value | undefined {
  const keys = m.node(stored(m, node.operands.k, dtype), 'gather_rows')?.operands;
  const values = m.node(stored(m, node.operands.v, dtype), 'gather_rows')?.operands;
  if (keys === undefined || values === undefined || keys.index !== values.index) return undefined;
  const { kTail } = node.operands;
  const tails = m.node(stored(m, kTail, dtype), 'gather_rows')?.operands;
  if (kTail !== undefined && tails?.index !== keys.index) return undefined;
  const { map } = rewriter;
  return rewriter.rebuild(
    node,
    {
      k: map(keys.x),
      v: map(values.x),
      ...(tails === undefined ? {} : { kTail: map(tails.x) }),
      begin: map(begin),
      position: map(position),
      key: map(keys.index),
      bias: undefined,
      distance: undefined,
    },
    { mask: 'path', ...near?.reach },
  );
}

const isWidth = (width: number | undefined): width is number =>
  width !== undefined && Number.isSafeInteger(width) && width > 0;

function subtreeEnd(form: Exclude<MaskForm, { from: 'path' }>, keys: Dim, rewriter: Rewriter): Value {
  switch (form.from) {
    case 'value':
      return rewriter.map(form.end);
    case 'metaPair':
      return rewriter.param('subtreeEnd', 'i32', [keys], { kind: 'subtreeEnd' });
    case 'causal': {
      const far = rewriter.add(
        'cast',
        { x: rewriter.add('const', {}, { value: 2 ** 30 }, 'far') },
        { dtype: 'i32' },
        'far_i32',
      );
      return rewriter.add('add', { a: rewriter.add('iota', {}, { size: [keys] }, 'index'), b: far }, {}, 'never_ends');
    }
    default:
      return form satisfies never;
  }
}

/** p and more, if the bias is 0 where all of them hold, and −∞ elsewhere. */
function predicatesOf(m: Matcher, bias: Value): readonly Value[] | undefined {
  if (m.literal(bias) === 0) return [];
  const choice = m.node(bias, 'select')?.operands;
  if (choice === undefined || m.literal(choice.b) !== -Infinity) return undefined;
  const more = predicatesOf(m, choice.a);
  return more === undefined ? undefined : [choice.condition, ...more];
}

function proveForm(m: Matcher, bias: Value): MaskForm | undefined {
  const predicates = predicatesOf(m, bias);
  if (predicates === undefined || predicates.length === 0) return undefined;
  const facts = new MaskFacts(m);
  const conjuncts = predicates.flatMap((predicate) => facts.conjuncts(predicate));
  const bounds = conjuncts.flatMap((c) => facts.near(c) ?? []);
  if (bounds.length > 1) return undefined;
  const [near] = bounds;
  const form = proveShape(
    facts,
    conjuncts.filter((c) => facts.near(c) === undefined),
  );
  if (form === undefined || near === undefined) return form;
  return isOfForm(form, near) ? { ...form, near: { position: near.position, reach: near.reach } } : undefined;
}

function proveShape(facts: MaskFacts, conjuncts: readonly Value[]): MaskShape | undefined {
  const path = facts.path(conjuncts);
  if (path !== undefined) return { from: 'path', ...path };
  const rest = conjuncts.filter((c) => !facts.isKeyNotAfterQuery(c));
  if (rest.length === conjuncts.length) return undefined;
  if (rest.length === 0) return { from: 'causal' };
  if (rest.length === 1) {
    const end = facts.endOfKey(rest[0]!);
    return end === undefined ? undefined : { from: 'value', end };
  }
  const isMetaPair =
    rest.length === 2 && rest.some((c) => facts.isSame(c, 'pair')) && rest.some((c) => facts.isOpenBranch(c));
  return isMetaPair ? { from: 'metaPair' } : undefined;
}

/** Positions of queries, and of keys: the same input, or k − begin[q]. */
interface KeyPositions {
  readonly position: Value;
  readonly begin?: Value;
}

/** What a conjunct of a mask predicate states. Row numbers are reshaped to [T, 1] for queries and [1, T] for keys. */
class MaskFacts {
  private readonly m: Matcher;

  constructor(m: Matcher) {
    this.m = m;
  }

  conjuncts(predicate: Value): readonly Value[] {
    const node = this.m.node(predicate, 'and');
    return node === undefined ? [predicate] : node.inputs.flatMap((v) => this.conjuncts(v));
  }

  /** k <= q */
  isKeyNotAfterQuery(v: Value): boolean {
    const sides = this.m.node(v, 'le')?.operands;
    return sides !== undefined && this.isIndex(this.ofKey(sides.a)) && this.isIndex(this.ofQuery(sides.b));
  }

  /** begin and position in {begin[q] <= k, k - begin[q] <= position[q]}, if the conjuncts are these two. */
  path(conjuncts: readonly Value[]): { readonly begin: Value; readonly position: Value } | undefined {
    const [low, high, ...more] = conjuncts.map((c) => this.m.node(c, 'le')?.operands);
    if (low === undefined || high === undefined || more.length > 0) return undefined;
    const begin = this.isIndex(this.ofKey(low.b)) ? this.ofQuery(low.a) : undefined;
    const offset = this.m.node(high.a, 'sub')?.operands;
    const position = this.ofQuery(high.b);
    if (begin === undefined || offset === undefined || position === undefined) return undefined;
    return this.isIndex(this.ofKey(offset.a)) && this.ofQuery(offset.b) === begin ? { begin, position } : undefined;
  }

  /** What bounds keys by their positions: a window, or chunks of the path. */
  near(v: Value): (KeyPositions & { readonly reach: Reach }) | undefined {
    return this.window(v) ?? this.chunk(v);
  }

  /** w and p in p[q] - p[k] < w with a whole number w above 0. */
  private window(v: Value): (KeyPositions & { readonly reach: Reach }) | undefined {
    const limit = this.m.node(v, 'lt')?.operands;
    const distance = this.m.node(limit?.a, 'sub')?.operands;
    const width = this.m.literal(limit?.b);
    if (distance === undefined || !isWidth(width)) return undefined;
    const positions = this.positions(distance.a, distance.b);
    return positions && { ...positions, reach: { window: width } };
  }

  /** c and p in floor(p[q] / c) <= floor(p[k] / c) with a whole number c above 0, in f32. */
  private chunk(v: Value): (KeyPositions & { readonly reach: Reach }) | undefined {
    const sides = this.m.node(v, 'le')?.operands;
    const part = (side: Value | undefined): { readonly of: Value | undefined; readonly width: number | undefined } => {
      const quotient = this.m.node(this.m.through(side, 'floor'), 'div')?.operands;
      return { of: this.m.through(quotient?.a, 'cast'), width: this.m.literal(quotient?.b) };
    };
    const [query, key] = [part(sides?.a), part(sides?.b)];
    const { width } = query;
    if (query.of === undefined || key.of === undefined || !isWidth(width) || width !== key.width) return undefined;
    const positions = this.positions(query.of, key.of);
    return positions && { ...positions, reach: { chunk: width } };
  }

  /** p in p[k] - p[q] */
  distance(v: Value): KeyPositions | undefined {
    const sides = this.m.node(v, 'sub')?.operands;
    return sides && this.positions(sides.b, sides.a);
  }

  /** p in (p[k] - p[q]) + p[q] */
  positionOfKey(v: Value): KeyPositions | undefined {
    for (const [distance, query] of this.m.pairs(v, 'add')) {
      const found = this.distance(distance);
      if (found !== undefined && this.ofQuery(query) === found.position) return found;
    }
    return undefined;
  }

  /** p in p[q] and p[k]. On a path the position of key k is k - begin[q], and `begin` is given. */
  private positions(query: Value, key: Value): KeyPositions | undefined {
    const position = this.ofQuery(query);
    if (position?.kind !== 'param' || position.type.shape.length !== 1) return undefined;
    if (this.ofKey(key) === position) return { position };
    const offset = this.m.node(key, 'sub')?.operands;
    const begin = offset === undefined ? undefined : this.ofQuery(offset.b);
    return begin !== undefined && this.isIndex(this.ofKey(offset?.a)) ? { position, begin } : undefined;
  }

  /** e in q < e[k] */
  endOfKey(v: Value): Value | undefined {
    const sides = this.m.node(v, 'lt')?.operands;
    const end = this.isIndex(this.ofQuery(sides?.a)) ? this.ofKey(sides?.b) : undefined;
    return end?.type.shape.length === 1 ? end : undefined;
  }

  /** name[k] == name[q] for the parameter `name` */
  isSame(v: Value, name: string): boolean {
    return this.m
      .pairs(v, 'eq')
      .some(([a, b]) => this.isParam(this.ofKey(a), name) && this.isParam(this.ofQuery(b), name));
  }

  /** branch[k] == 0 or branch[k] == branch[q] */
  isOpenBranch(v: Value): boolean {
    const isQuestion = (c: Value): boolean =>
      this.m.pairs(c, 'eq').some(([a, b]) => this.isParam(this.ofKey(a), 'branch') && this.m.literal(b) === 0);
    return this.m.pairs(v, 'or').some(([a, b]) => isQuestion(a) && this.isSame(b, 'branch'));
  }

  private isIndex(v: Value | undefined): boolean {
    return this.m.node(v, 'iota') !== undefined;
  }

  private isParam(v: Value | undefined, name: string): boolean {
    return v?.kind === 'param' && v.name === name;
  }

  private ofKey(v: Value | undefined): Value | undefined {
    const [one, keys, ...more] = v?.type.shape ?? [];
    const isRow = one === 1 && typeof keys === 'string' && more.length === 0;
    return isRow ? this.m.through(v, 'reshape') : undefined;
  }

  private ofQuery(v: Value | undefined): Value | undefined {
    const [queries, one, ...more] = v?.type.shape ?? [];
    const isColumn = typeof queries === 'string' && one === 1 && more.length === 0;
    return isColumn ? this.m.through(v, 'reshape') : undefined;
  }
}
