/**
 * Token trees: the choices of a question, or of several, laid out so that common tokens are computed once. A path is a
 * context and one choice without its last token, which is a target and never an input.
 */

export const TREE_SHARING = ['none', 'context', 'tree'] as const;
/** What paths share: nothing, the context of their question, or every common prefix, even across questions. */
export type TreeSharing = (typeof TREE_SHARING)[number];

/** One choice of one question. */
export interface Path {
  /** Index of the question in the caller's list. */
  readonly question: number;
  readonly choice: number;
  /** i32[n_ctx]; the same array for all choices of a question, unless it had to be truncated. */
  readonly context: Int32Array;
  /** i32[n_cont] */
  readonly continuation: Int32Array;
}

/** The location of a choice's log-probabilities. */
export interface Answer {
  readonly question: number;
  readonly choice: number;
  /** i32[n_cont]: for each token of the choice in order, its index in row and target. */
  readonly scored: Int32Array;
}

/** A row of a call, and the token of a choice that it scores. */
export interface ScoredToken {
  readonly row: number;
  readonly question: number;
  readonly choice: number;
  /** Index of the token in the choice. */
  readonly index: number;
}

/** A tree in depth-first order; see MicroBatch for the meaning of the columns. */
export interface Tree {
  readonly tokens: Int32Array;
  readonly position: Int32Array;
  readonly subtreeEnd: Int32Array;
  /** i32[R] ascending; equal rows have ascending targets, and no pair occurs twice. */
  readonly row: Int32Array;
  readonly target: Int32Array;
  /** Tokens of the longest path. */
  readonly longest: number;
  readonly answers: readonly Answer[];
}

/** Number of input tokens of a path. */
export const pathLength = (path: Path): number => path.context.length + path.continuation.length - 1;

/** The input token at `i`, from 0. */
export const tokenAt = ({ context, continuation }: Path, i: number): number =>
  (i < context.length ? context[i] : continuation[i - context.length]) ?? -1;

/** Length of the common prefix of two paths' input tokens. */
export function commonInputs(a: Path, b: Path): number {
  const end = Math.min(pathLength(a), pathLength(b));
  let i = a.context === b.context ? Math.min(end, a.context.length) : 0;
  while (i < end && tokenAt(a, i) === tokenAt(b, i)) i++;
  return i;
}

/** Orders paths by their input tokens, a prefix before longer paths, and equal paths by question and choice. */
function comparePaths(a: Path, b: Path): number {
  const common = commonInputs(a, b);
  const aLength = pathLength(a),
    bLength = pathLength(b);
  if (common < aLength && common < bLength) return tokenAt(a, common) - tokenAt(b, common);
  return aLength - bLength || a.question - b.question || a.choice - b.choice;
}

/** Number of leading tokens that the second of two neighbouring paths shares with the first. */
function sharedInputs(a: Path, b: Path, sharing: TreeSharing): number {
  switch (sharing) {
    case 'none':
      return 0;
    case 'context':
      return a.context === b.context ? a.context.length : 0;
    case 'tree':
      return commonInputs(a, b);
    default:
      return sharing satisfies never;
  }
}

/** The size of a tree, computed without laying it out. */
export interface TreeSize {
  /** Tokens computed. */
  readonly tokens: number;
  /** Upper bound on scored (row, target) pairs; choices with a common beginning may share some. */
  readonly rows: number;
  /** Entries of the lists that name the keys of every branch (ir/scoring, listPaths). */
  readonly keys: number;
  /** Tokens of the longest path. */
  readonly longest: number;
}

/** Paths in the order in which they are laid out. */
export const inLayoutOrder = (paths: readonly Path[], sharing: TreeSharing): readonly Path[] =>
  sharing === 'tree' && paths.length > 1 ? paths.slice().sort(comparePaths) : paths;

/** The size of the tree of these paths. */
export function measureTree(unordered: readonly Path[], sharing: TreeSharing): TreeSize {
  let tokens = 0,
    rows = 0,
    keys = 0,
    longest = 0;
  /** Length of the last list of keys. */
  let listed = 0;
  let previous: Path | undefined;
  for (const path of inLayoutOrder(unordered, sharing)) {
    const length = pathLength(path);
    const shared = previous === undefined ? 0 : sharedInputs(previous, path, sharing);
    tokens += length - shared;
    rows += path.continuation.length;
    longest = Math.max(longest, length);
    previous = path;
    if (shared === length) continue;
    // A list of its own, unless the path continues the last list from its end.
    keys += shared === listed ? length - shared : length;
    listed = length;
  }
  return { tokens, rows, keys, longest };
}

/** A (row, target) pair as one number that sorts by row, then target. Token ids are below 2³¹. */
const TARGETS = 2 ** 31;

/** Index of a value in an ascending array that contains it. */
function placeOf(sorted: Float64Array, value: number): number {
  let low = 0,
    high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function distinct(values: Float64Array): Float64Array {
  const sorted = values.slice().sort();
  let count = 0;
  for (let i = 0; i < sorted.length; i++) {
    const value = sorted[i] ?? 0;
    if (count === 0 || value !== sorted[count - 1]) sorted[count++] = value;
  }
  return sorted.subarray(0, count);
}

/**
 * Lays paths out as one tree (with sharing 'none' or several contexts: a forest in one array, each root at depth 0).
 * The result depends only on the set of paths and the mode.
 */
export function buildTree(unordered: readonly Path[], sharing: TreeSharing): Tree {
  const paths = inLayoutOrder(unordered, sharing);
  let bound = 0,
    scoredCount = 0,
    longest = 0;
  for (const path of paths) {
    bound += pathLength(path);
    scoredCount += path.continuation.length;
    longest = Math.max(longest, pathLength(path));
  }
  const tokens = new Int32Array(bound),
    position = new Int32Array(bound),
    subtreeEnd = new Int32Array(bound);
  /** Node at each depth of the current path. */
  const stack = new Int32Array(longest);
  const pairs = new Float64Array(scoredCount);
  let count = 0,
    depth = 0,
    pairCount = 0;
  const closeFrom = (shared: number): void => {
    for (let d = shared; d < depth; d++) subtreeEnd[stack[d] ?? 0] = count;
  };
  let previous: Path | undefined;
  for (const path of paths) {
    const shared = previous === undefined ? 0 : sharedInputs(previous, path, sharing);
    closeFrom(shared);
    depth = pathLength(path);
    for (let d = shared; d < depth; d++) {
      tokens[count] = tokenAt(path, d);
      position[count] = d;
      stack[d] = count++;
    }
    // Each token of the choice is scored at the token before it; the first one at the end of the context.
    const { context, continuation } = path;
    for (let i = 0; i < continuation.length; i++) {
      pairs[pairCount++] = (stack[context.length - 1 + i] ?? 0) * TARGETS + (continuation[i] ?? 0);
    }
    previous = path;
  }
  closeFrom(0);

  const scoredPairs = distinct(pairs);
  const row = new Int32Array(scoredPairs.length),
    target = new Int32Array(scoredPairs.length);
  for (let i = 0; i < scoredPairs.length; i++) {
    const pair = scoredPairs[i] ?? 0;
    row[i] = Math.floor(pair / TARGETS);
    target[i] = pair % TARGETS;
  }
  let at = 0;
  const answers = paths.map(({ question, choice, continuation }): Answer => {
    const scored = new Int32Array(continuation.length);
    for (let i = 0; i < scored.length; i++) scored[i] = placeOf(scoredPairs, pairs[at++] ?? 0);
    return { question, choice, scored };
  });
  return {
    tokens: tokens.slice(0, count),
    position: position.slice(0, count),
    subtreeEnd: subtreeEnd.slice(0, count),
    row,
    target,
    longest,
    answers,
  };
}
