/**
 * Paths in lexicographic order of their input tokens. The time is proportional to the tokens: hundreds of questions
 * with the same shots are read once, and not compared pair by pair.
 */
import { atOnce, type Parts } from '../system/text.js';
import { contextOf, type TokenizedQuestion } from './tokenize.js';
import { type Path, pathLength, tokenAt } from './tree.js';

export interface OrderedPaths {
  /** A prefix before longer paths, and equal paths by question and choice. */
  readonly paths: readonly Path[];
  /** i32[n] for each path, the number of leading tokens that it has in common with the one before; 0 for the first. */
  readonly shared: Int32Array;
}

/** Paths [from, to) agree in their first `depth` tokens. */
interface Range {
  readonly from: number;
  readonly to: number;
  readonly depth: number;
}

/** Tokens that are read before the work may be left. */
const PART_TOKENS = 1 << 14;

export const orderPaths = (unordered: readonly Path[]): OrderedPaths => atOnce(orderInParts(unordered));

/** The same in parts. */
export function* orderInParts(unordered: readonly Path[]): Parts<OrderedPaths> {
  const paths = unordered.slice();
  const shared = new Int32Array(paths.length);
  const ranges: Range[] = [{ from: 0, to: paths.length, depth: 0 }];
  for (let range = ranges.pop(); range !== undefined; range = ranges.pop()) {
    const { from, to } = range;
    if (to - from < 2) continue;
    const depth = yield* commonDepth(paths, range);
    const ended: Path[] = [];
    const byToken = new Map<number, Path[]>();
    for (let i = from; i < to; i++) {
      const path = paths[i]!;
      if (depth >= pathLength(path)) {
        ended.push(path);
        continue;
      }
      const token = tokenAt(path, depth);
      const group = byToken.get(token);
      if (group === undefined) byToken.set(token, [path]);
      else group.push(path);
    }
    ended.sort((a, b) => a.question - b.question || a.choice - b.choice);
    let at = from;
    const place = (group: readonly Path[]): void => {
      if (at > from) shared[at] = depth;
      for (const path of group) paths[at++] = path;
    };
    for (const path of ended) place([path]);
    for (const token of [...byToken.keys()].sort((a, b) => a - b)) {
      const group = byToken.get(token)!;
      ranges.push({ from: at, to: at + group.length, depth: depth + 1 });
      place(group);
    }
  }
  return { paths, shared };
}

/** The number of leading tokens in which all paths of the range agree. */
function* commonDepth(paths: readonly Path[], { from, to, depth }: Range): Parts<number> {
  const first = paths[from]!;
  let end = pathLength(first),
    read = 0;
  for (let i = from + 1; i < to && end > depth; i++) {
    const path = paths[i]!;
    const most = Math.min(end, pathLength(path));
    // Choices of a question have one context, which was read with the choice before.
    const isRead = path.context === paths[i - 1]!.context || path.context === first.context;
    let at = isRead ? Math.max(depth, Math.min(most, path.context.length)) : depth;
    const begin = at;
    while (at < most && tokenAt(path, at) === tokenAt(first, at)) at++;
    end = Math.min(at, most);
    read += at - begin + 1;
    if (read < PART_TOKENS) continue;
    yield;
    read = 0;
  }
  if (read > 0) yield;
  return end;
}

/** Some of the paths, in their order. */
export function keepPaths({ paths, shared }: OrderedPaths, isKept: (path: Path) => boolean): OrderedPaths {
  const left: Path[] = [];
  const common: number[] = [];
  let least = 0;
  paths.forEach((path, i) => {
    least = Math.min(least, shared[i]!);
    if (!isKept(path)) return;
    left.push(path);
    common.push(least);
    least = Infinity;
  });
  return left.length === paths.length ? { paths, shared } : { paths: left, shared: Int32Array.from(common) };
}

/** How many tokens a question set takes, by how much of it is shared. */

export interface TokenCounts {
  /** Every choice is a sequence of its own. */
  readonly alone: number;
  /**
   * Choices with the same inputs are one sequence, as those of one letter are. lm-evaluation-harness shares this much
   * and no more.
   */
  readonly grouped: number;
  /** Every common beginning of the whole set is computed once: no order of computation takes fewer. */
  readonly shared: number;
}

/**
 * What keeping prefixes must save of the tokens of trees, at least, as a factor and in tokens. Calls with a cache have
 * kernels of their own, which take a while to compile.
 */
export const MIN_GAIN = 1.1;
const MIN_SAVED = 100_000;
export const isWorthKeeping = (inTrees: number, kept: number): boolean =>
  inTrees >= MIN_GAIN * kept && inTrees - kept >= MIN_SAVED;

/** The same factor where the memory and the kernels are there already: calls of both kinds take equally long. */
const MIN_GAIN_WITHIN = 1.02;
export const isWorthKeepingWithin = (inTrees: number, kept: number): boolean => inTrees >= MIN_GAIN_WITHIN * kept;

export const pathsOf = (questions: readonly TokenizedQuestion[]): Path[] =>
  questions.flatMap((question, index) =>
    question.continuations.map((continuation, choice): Path => ({
      question: index,
      choice,
      context: contextOf(question, choice),
      continuation,
    })),
  );

export const countTokens = (paths: readonly Path[]): TokenCounts => countOrdered(orderPaths(paths));

export function countOrdered(ordered: OrderedPaths): TokenCounts {
  let alone = 0,
    grouped = 0,
    shared = 0;
  ordered.paths.forEach((path, i) => {
    const length = pathLength(path);
    const common = ordered.shared[i]!;
    const before = ordered.paths[i - 1];
    alone += length;
    if (before === undefined || common < length || pathLength(before) > length) grouped += length;
    shared += length - common;
  });
  return { alone, grouped, shared };
}
