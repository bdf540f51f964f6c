/** Which questions of a dataset are scored: `--docs A:B,C:D,E`, then `--limit`. */
import { UsageError } from '../errors.js';

/** Question numbers from `first` to the one before `end`; without an end, to the last question. */
export interface DocRange {
  readonly first: number;
  readonly end?: number | undefined;
}

export interface Selection {
  /** In any order, overlapping or not; absent means every question. */
  readonly docs?: readonly DocRange[] | undefined;
  /** At most this many of those questions, from the first. Below 1: this fraction of them, rounded up. */
  readonly limit?: number | undefined;
}

/** A range whose end is known; it may be Infinity. */
export interface ClosedRange {
  readonly first: number;
  readonly end: number;
}

const MAX_RANGES = 10_000;

function parseRange(part: string, text: string): DocRange {
  const [, from = '', colon = '', to = ''] = /^(\d{1,12})?(?:(:)(\d{1,12})?)?$/.exec(part) ?? [];
  const first = Number(from),
    end = colon === '' ? first + 1 : Number(to);
  const isRange = (from !== '' || to !== '') && ((colon !== '' && to === '') || end > first);
  if (!isRange) {
    const where = part === text ? '' : `${JSON.stringify(part)} `;
    throw new UsageError(
      `--docs ${text}: ${where}is not a range of question numbers`,
      'Example: --docs 0:100,500:600,777 (the first hundred, a hundred from number 500 on, and number 777)',
    );
  }
  return colon !== '' && to === '' ? { first } : { first, end };
}

/** Parses a list of `A:B`, `A:`, `:B` and `A`: question numbers from 0, B excluded. */
export function parseDocs(text: string): DocRange[] {
  const parts = text.split(',');
  if (parts.length > MAX_RANGES)
    throw new UsageError(
      `--docs: ${parts.length} ranges, more than the limit of ${MAX_RANGES}`,
      'Write a dataset file with only these questions, and give it with --data',
    );
  return parts.map((part) => parseRange(part, text));
}

/** `0:100,500:600,777`: the inverse of parseDocs. */
export const printDocs = (ranges: readonly DocRange[]): string =>
  ranges
    .map(({ first, end }) => (end === first + 1 ? String(first) : `${first}:${Number.isFinite(end) ? end : ''}`))
    .join(',');

/** The value of --docs that leaves one question out. */
export const allBut = (docId: number): string => `${docId > 0 ? `:${docId},` : ''}${docId + 1}:`;

/** What Python's float() reads, but for signs, infinity and NaN: underscores stand between digits. */
const PYTHON_FLOAT = /^\s*(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][-+]?\d+(?:_\d+)*)?\s*$/;

/** Parses a positive number: a count when 1 or more (then whole), a fraction below. */
export function parseLimit(text: string): number {
  const limit = PYTHON_FLOAT.test(text) ? Number(text.replaceAll('_', '')) : NaN;
  if (!(limit > 0) || (limit >= 1 && !Number.isInteger(limit))) {
    throw new UsageError(
      `--limit ${text} is neither a count nor a fraction`,
      'Examples: --limit 100 (the first hundred), --limit 0.1 (a tenth)',
    );
  }
  return limit;
}

/** Ranges in ascending order. Overlapping and adjacent ones are joined, and none goes past `total`. */
function joined(ranges: readonly DocRange[], total: number): ClosedRange[] {
  const result: { first: number; end: number }[] = [];
  for (const { first, end = Infinity } of [...ranges].sort((a, b) => a.first - b.first)) {
    const last = result.at(-1);
    if (last !== undefined && first <= last.end) last.end = Math.max(last.end, end);
    else result.push({ first, end });
  }
  return result.map(({ first, end }) => ({ first, end: Math.min(end, total) })).filter(({ first, end }) => end > first);
}

export const countDocs = (ranges: readonly ClosedRange[]): number =>
  ranges.reduce((sum, { first, end }) => sum + end - first, 0);

/** The first `count` question numbers of the ranges. */
function firstOf(ranges: readonly ClosedRange[], count: number): ClosedRange[] {
  let left = count;
  return ranges.flatMap(({ first, end }) => {
    const taken = Math.min(left, end - first);
    left -= taken;
    return taken > 0 ? [{ first, end: first + taken }] : [];
  });
}

/** Whether a selection depends on the number of questions: a fraction does. */
export const needsTotal = ({ limit }: Selection): boolean => limit !== undefined && limit < 1;

/**
 * The ranges to score, in ascending order and disjoint. Without `total`, the number of questions, the last may end at
 * Infinity.
 */
export function chooseDocs(selection: Selection, total?: number): readonly ClosedRange[] {
  const ranges = joined(selection.docs ?? [{ first: 0 }], total ?? Infinity);
  const { limit } = selection;
  if (limit === undefined) return ranges;
  if (limit >= 1) return firstOf(ranges, limit);
  if (total === undefined) throw new Error('a fraction needs the number of questions');
  return firstOf(ranges, Math.ceil(countDocs(ranges) * limit));
}
