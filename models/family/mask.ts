/**
 * Attention masks as ordinary IR expressions: f32[T, T], 0 where query row q may look at key column k, −∞ elsewhere.
 * The compiler proves what it can about them (passes/canonicalizeMask); no mask has an op of its own.
 */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { ExtentName } from '../../ir/types.js';

/**
 * How tokens of a micro-batch see each other. `path` and `tree` describe the same trees. Under `path`, a list names the
 * keys of every branch in order of position, so kernels group them by position; under `tree`, keys are grouped by their
 * place in the micro-batch.
 */
export const MASKS = ['path', 'tree', 'metaPair', 'slidingWindow'] as const;
export type MaskKind = (typeof MASKS)[number];

/** bias[q, k] = predicate ? 0 : −∞ */
const toBias = (b: GraphBuilder, visible: Value): Value =>
  b.add(
    'select',
    [visible, b.add('const', [], { value: 0 }, 'zero'), b.add('const', [], { value: -Infinity }, 'hidden')],
    {},
    'bias',
  );

/** Row and column numbers as i32[T, 1] and i32[1, T]. */
function indices(b: GraphBuilder): { query: Value; key: Value } {
  const index = b.add('iota', [], { size: ['T'] }, 'index');
  return { query: asQuery(b, index), key: asKey(b, index) };
}
const asQuery = (b: GraphBuilder, v: Value): Value => b.add('reshape', [v], { shape: ['T', 1] }, 'of_query');
const asKey = (b: GraphBuilder, v: Value): Value => b.add('reshape', [v], { shape: [1, 'T'] }, 'of_key');

/** Trees in depth-first order: k ≤ q and q < subtreeEnd[k]. */
function treeMask(b: GraphBuilder): Value {
  const { query, key } = indices(b);
  const end = asKey(b, b.param('subtreeEnd', 'i32', ['T'], { kind: 'subtreeEnd' }));
  return toBias(b, b.add('and', [b.add('le', [key, query]), b.add('lt', [query, end])], {}, 'visible'));
}

/**
 * The meta-pair: a question (branch 0) followed by its answers (branches 1, 2, …); several such groups are packed, each
 * with its own number in `pair`. Positions restart after the question for every answer. Key k is visible to query q
 * when k ≤ q, both belong to one pair, and k is in the question or in q's own answer. Both inputs are constant on
 * consecutive runs of tokens, and branch 0 comes first in its pair.
 */
function metaPairMask(b: GraphBuilder): Value {
  const { query, key } = indices(b);
  const branch = b.param('branch', 'i32', ['T']);
  const pair = b.param('pair', 'i32', ['T']);
  const [branchOfKey, branchOfQuery] = [asKey(b, branch), asQuery(b, branch)];
  const zero = b.add('cast', [b.add('const', [], { value: 0 })], { dtype: 'i32' }, 'question');
  const samePair = b.add('eq', [asKey(b, pair), asQuery(b, pair)], {}, 'same_pair');
  const open = b.add('or', [b.add('eq', [branchOfKey, zero]), b.add('eq', [branchOfKey, branchOfQuery])], {}, 'open');
  return toBias(b, b.add('and', [b.add('and', [b.add('le', [key, query]), samePair]), open], {}, 'visible'));
}

/** A window of `width` keys inside the tree. It has no column form, so it stays a materialized bias. */
function slidingWindowMask(b: GraphBuilder, width: number): Value {
  const { query, key } = indices(b);
  const end = asKey(b, b.param('subtreeEnd', 'i32', ['T'], { kind: 'subtreeEnd' }));
  const limit = b.add('cast', [b.add('const', [], { value: width })], { dtype: 'i32' }, 'width');
  const near = b.add('lt', [b.add('sub', [query, key]), limit], {}, 'near');
  const inTree = b.add('and', [b.add('le', [key, query]), b.add('lt', [query, end])], {}, 'in_tree');
  return toBias(b, b.add('and', [inTree, near], {}, 'visible'));
}

/**
 * Keys of a path: entry c of the list of keys (extent `keys`) is visible to query q when it is one of the position[q] +
 * 1 entries from begin[q] on. The bias f32[T, C], and the position of each key on a query's path, i32[T, C].
 */
export function pathMask(
  b: GraphBuilder,
  position: Value,
  keys: ExtentName,
): { readonly bias: Value; readonly keyPosition: Value } {
  const entry = b.add('reshape', [b.add('iota', [], { size: [keys] }, 'entry')], { shape: [1, keys] }, 'of_key');
  const begin = asQuery(b, b.param('begin', 'i32', ['T'], { kind: 'row', of: keys }));
  const isAfter = b.add('le', [begin, entry], {}, 'is_after');
  const offset = b.add('sub', [entry, begin], {}, 'offset');
  const isBefore = b.add('le', [offset, asQuery(b, position)], {}, 'is_before');
  return { bias: toBias(b, b.add('and', [isAfter, isBefore], {}, 'visible')), keyPosition: offset };
}

/**
 * `bias` within a window: −∞ where the key is `width` or more positions before the query. `position`: of the queries,
 * i32[T]. `keyPosition`: of the keys on the query's path, i32[1, C] or i32[T, C].
 */
export function windowed(b: GraphBuilder, bias: Value, position: Value, keyPosition: Value, width: number): Value {
  const limit = b.add('cast', [b.add('const', [], { value: width }, 'window')], { dtype: 'i32' }, 'window_width');
  const distance = b.add('sub', [asQuery(b, position), keyPosition], {}, 'distance');
  const near = b.add('lt', [distance, limit], {}, 'near');
  return b.add('select', [near, bias, b.add('const', [], { value: -Infinity }, 'far')], {}, 'window_bias');
}

/** Positions of the keys of a tree or meta-pair, i32[1, T]. */
export const ownPositions = (b: GraphBuilder, position: Value): Value => asKey(b, position);

/** The f32[T, T] bias of `kind`; adds the parameters it reads. `window` is the width of a sliding window, tokens. */
export function buildMask(b: GraphBuilder, kind: Exclude<MaskKind, 'path'>, window = 64): Value {
  switch (kind) {
    case 'tree':
      return treeMask(b);
    case 'metaPair':
      return metaPairMask(b);
    case 'slidingWindow':
      return slidingWindowMask(b, window);
    default:
      return kind satisfies never;
  }
}
