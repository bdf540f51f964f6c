/** Differences of two texts, line by line. */

/** A line of the one text (`-`), of the other (`+`), or of both. */
export interface DiffLine {
  readonly sign: ' ' | '-' | '+';
  readonly line: string;
}

/** Edits beyond which two ranges count as different from end to end: the search takes their square. */
const MAX_EDITS = 2000;

/**
 * The lines of `a` and `b` in one order, as few as possible of them marked. Lines that are unique in both texts are
 * matched first (patience diff), what lies between them by shortest edits (Myers).
 */
export function diffLines(a: readonly string[], b: readonly string[]): readonly DiffLine[] {
  const found: DiffLine[] = [];
  const put = (sign: DiffLine['sign'], lines: readonly string[]): void => {
    for (const line of lines) found.push({ sign, line });
  };
  /** Ranges still to be compared, the next one last. */
  const todo: (readonly [a0: number, a1: number, b0: number, b1: number])[] = [[0, a.length, 0, b.length]];
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    let [a0, a1, b0, b1] = next;
    const start = a0;
    while (a0 < a1 && b0 < b1 && a[a0] === b[b0]) [a0, b0] = [a0 + 1, b0 + 1];
    put(' ', a.slice(start, a0));
    if (a0 === a1 || b0 === b1) {
      put('-', a.slice(a0, a1));
      put('+', b.slice(b0, b1));
      continue;
    }
    const end = a1;
    while (a1 > a0 && b1 > b0 && a[a1 - 1] === b[b1 - 1]) [a1, b1] = [a1 - 1, b1 - 1];
    if (end > a1) todo.push([a1, end, b1, b1 + end - a1]);
    const anchors = a0 === a1 || b0 === b1 ? [] : uniqueMatches(a, b, [a0, a1, b0, b1]);
    if (anchors.length === 0) {
      found.push(...shortestEdits(a.slice(a0, a1), b.slice(b0, b1)));
      continue;
    }
    let [right, below] = [a1, b1];
    for (const [i, j] of anchors.toReversed()) {
      todo.push([i, right, j, below]);
      [right, below] = [i, j];
    }
    todo.push([a0, right, b0, below]);
  }
  return found;
}

/** Lines that both ranges have once, at places that rise in both: the longest such list. */
function uniqueMatches(
  a: readonly string[],
  b: readonly string[],
  [a0, a1, b0, b1]: readonly [number, number, number, number],
): readonly (readonly [number, number])[] {
  const places = (lines: readonly string[], from: number, to: number): Map<string, number> => {
    const at = new Map<string, number>();
    for (let i = from; i < to; i++) at.set(lines[i]!, at.has(lines[i]!) ? -1 : i);
    return at;
  };
  const [inA, inB] = [places(a, a0, a1), places(b, b0, b1)];
  /** tops[n]: the match that ends the list of n + 1 whose place in b is least. */
  const tops: { readonly i: number; readonly j: number; readonly before: number }[] = [];
  const all: { readonly i: number; readonly j: number; readonly before: number }[] = [];
  const topAt: number[] = [];
  for (const [line, i] of inA) {
    const j = inB.get(line) ?? -1;
    if (i < 0 || j < 0) continue;
    let [low, high] = [0, tops.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tops[middle]!.j < j) low = middle + 1;
      else high = middle;
    }
    const match = { i, j, before: low === 0 ? -1 : topAt[low - 1]! };
    tops[low] = match;
    topAt[low] = all.push(match) - 1;
  }
  const list: (readonly [number, number])[] = [];
  for (let at = topAt[tops.length - 1] ?? -1; at >= 0; at = all[at]!.before) list.push([all[at]!.i, all[at]!.j]);
  return list.reverse();
}

/** Myers' greedy search for the shortest script of edits; beyond MAX_EDITS all of `a` goes and all of `b` comes. */
function shortestEdits(a: readonly string[], b: readonly string[]): readonly DiffLine[] {
  const most = Math.min(a.length + b.length, MAX_EDITS);
  /** For each diagonal, the furthest place in `a` after so many edits; one such list for each number of edits. */
  const trace: Int32Array[] = [];
  const furthest = new Int32Array(2 * most + 3);
  const middle = most + 1;
  for (let edits = 0; edits <= most; edits++) {
    trace.push(furthest.slice());
    for (let k = -edits; k <= edits; k += 2) {
      const isDown = k === -edits || (k !== edits && furthest[middle + k - 1]! < furthest[middle + k + 1]!);
      let i = isDown ? furthest[middle + k + 1]! : furthest[middle + k - 1]! + 1;
      while (i < a.length && i - k < b.length && a[i] === b[i - k]) i++;
      furthest[middle + k] = i;
      if (i >= a.length && i - k >= b.length) return backtrack(a, b, trace, middle);
    }
  }
  return [...a.map((line) => ({ sign: '-', line }) as const), ...b.map((line) => ({ sign: '+', line }) as const)];
}

function backtrack(
  a: readonly string[],
  b: readonly string[],
  trace: readonly Int32Array[],
  middle: number,
): readonly DiffLine[] {
  const found: DiffLine[] = [];
  let [i, j] = [a.length, b.length];
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const furthest = trace[edits]!;
    const k = i - j;
    const isDown = k === -edits || (k !== edits && furthest[middle + k - 1]! < furthest[middle + k + 1]!);
    const from = edits === 0 ? 0 : isDown ? furthest[middle + k + 1]! : furthest[middle + k - 1]!;
    const fromJ = edits === 0 ? 0 : from - (isDown ? k + 1 : k - 1);
    const start = edits === 0 ? 0 : isDown ? from : from + 1;
    while (i > start && j > 0 && a[i - 1] === b[j - 1]) {
      found.push({ sign: ' ', line: a[i - 1]! });
      [i, j] = [i - 1, j - 1];
    }
    if (edits === 0) break;
    found.push(isDown ? { sign: '+', line: b[j - 1]! } : { sign: '-', line: a[i - 1]! });
    [i, j] = [from, fromJ];
  }
  return found.reverse();
}

/** Neighbouring changes with the lines around them, and where they begin in both texts, counted from 1. */
export interface Hunk {
  readonly from: number;
  readonly to: number;
  readonly lines: readonly DiffLine[];
}

/** The changes of a diff, each with at most `context` equal lines on both sides. */
export function hunksOf(lines: readonly DiffLine[], context = 3): readonly Hunk[] {
  const hunks: Hunk[] = [];
  let [from, to] = [1, 1];
  const starts = lines.map(({ sign }) => {
    const at = [from, to] as const;
    if (sign !== '+') from++;
    if (sign !== '-') to++;
    return at;
  });
  const changes = lines.flatMap(({ sign }, i) => (sign === ' ' ? [] : [i]));
  for (let i = 0; i < changes.length;) {
    let end = i;
    while (end + 1 < changes.length && changes[end + 1]! - changes[end]! <= 2 * context + 1) end++;
    const first = Math.max(0, changes[i]! - context);
    const [a, b] = starts[first]!;
    hunks.push({ from: a, to: b, lines: lines.slice(first, changes[end]! + context + 1) });
    i = end + 1;
  }
  return hunks;
}

/** `@@ -1,3 +1,4 @@`: where a hunk lies, as diff -u writes it. */
export function hunkHead({ from, to, lines }: Hunk): string {
  const span = (start: number, other: DiffLine['sign']): string => {
    const count = lines.filter(({ sign }) => sign !== other).length;
    return `${count === 0 ? start - 1 : start}${count === 1 ? '' : `,${count}`}`;
  };
  return `@@ -${span(from, '+')} +${span(to, '-')} @@`;
}
