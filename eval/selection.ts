/** Which questions of a dataset are scored: `--docs A:B`, then `--limit`. */
import { UserError } from '../errors.js';

export interface Selection {
  /** Half-open range of question numbers; end absent means to the last. */
  readonly docs?: { readonly first: number; readonly end?: number } | undefined;
  /** At most this many questions of the range; below 1, this fraction of it, rounded up. */
  readonly limit?: number | undefined;
}

/** Parses `A:B`, `A:` or `:B`, question numbers from 0, B excluded. */
export function parseDocs(text: string): NonNullable<Selection['docs']> {
  const match = /^(\d{0,12}):(\d{0,12})$/.exec(text);
  const first = Number(match?.[1] ?? ''),
    end = Number(match?.[2] ?? '');
  if (match === null || text === ':' || (match[2] !== '' && end <= first)) {
    throw new UserError(
      `--docs ${text} is not a range of question numbers`,
      'Example: --docs 100:200 (100 questions, the first is number 100)',
    );
  }
  return match[2] === '' ? { first } : { first, end };
}

/** Parses a positive number: a count when 1 or more (then whole), a fraction below. */
export function parseLimit(text: string): number {
  const limit = /^[\d.]+$/.test(text) ? Number(text) : NaN;
  if (!(limit > 0) || (limit >= 1 && !Number.isInteger(limit))) {
    throw new UserError(
      `--limit ${text} is neither a count nor a fraction`,
      'Examples: --limit 100 (the first hundred), --limit 0.1 (a tenth)',
    );
  }
  return limit;
}

/** The half-open range to score. total, the number of questions, is needed for a fraction only. */
export function selectRange(selection: Selection, total?: number): { first: number; end: number } {
  const first = selection.docs?.first ?? 0;
  const last = Math.min(selection.docs?.end ?? Infinity, total ?? Infinity);
  const { limit } = selection;
  if (limit === undefined) return { first, end: last };
  if (limit >= 1) return { first, end: Math.min(last, first + limit) };
  if (total === undefined) throw new Error('a fraction needs the number of questions');
  return { first, end: first + Math.ceil(Math.max(0, last - first) * limit) };
}
