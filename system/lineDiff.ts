/** Differences of two texts, line by line, in the form of `diff -u`. */
import { diffArrays } from 'diff';

/** A line of the one text (`-`), of the other (`+`), or of both. */
export interface DiffLine {
  readonly sign: ' ' | '-' | '+';
  readonly line: string;
}

/** Edits beyond which two texts count as different from end to end: the time of the search grows with their square. */
const MAX_EDITS = 10_000;

const marked = (sign: DiffLine['sign'], lines: readonly string[]): readonly DiffLine[] =>
  lines.map((line) => ({ sign, line }));

/** The lines of `a` and `b` in one order, as few as possible of them marked. */
export function diffLines(a: readonly string[], b: readonly string[]): readonly DiffLine[] {
  const changes = diffArrays([...a], [...b], { maxEditLength: MAX_EDITS });
  if (changes === undefined) return [...marked('-', a), ...marked('+', b)];
  return changes.flatMap(({ value, added, removed }) => marked(added ? '+' : removed ? '-' : ' ', value));
}

/** Neighbouring changes with the lines around them, and where they begin in both texts, counted from 1. */
export interface Hunk {
  readonly from: number;
  readonly to: number;
  readonly lines: readonly DiffLine[];
}

/** The changes of a diff, each with at most `context` equal lines on both sides. */
export function hunksOf(lines: readonly DiffLine[], context = 3): readonly Hunk[] {
  /** Ranges of lines [first, end) around changes; those that meet are one. */
  const ranges: { first: number; end: number }[] = [];
  for (const [i, { sign }] of lines.entries()) {
    if (sign === ' ') continue;
    const last = ranges.at(-1);
    const [first, end] = [Math.max(0, i - context), Math.min(lines.length, i + context + 1)];
    if (last !== undefined && first <= last.end) last.end = end;
    else ranges.push({ first, end });
  }
  const countBefore = (end: number, other: DiffLine['sign']): number =>
    lines.slice(0, end).filter(({ sign }) => sign !== other).length;
  return ranges.map(({ first, end }) => ({
    from: countBefore(first, '+') + 1,
    to: countBefore(first, '-') + 1,
    lines: lines.slice(first, end),
  }));
}

/** `@@ -1,3 +1,4 @@`: where a hunk lies, as diff -u writes it. */
export function hunkHead({ from, to, lines }: Hunk): string {
  const span = (start: number, other: DiffLine['sign']): string => {
    const count = lines.filter(({ sign }) => sign !== other).length;
    return `${count === 0 ? start - 1 : start}${count === 1 ? '' : `,${count}`}`;
  };
  return `@@ -${span(from, '+')} +${span(to, '-')} @@`;
}
