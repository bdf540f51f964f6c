/** What a step says to the device: pieces of sequences, as changes of what the device knows of them. */
import type { StepLimits, StepMessage } from './device.js';
import { type Draw, type PageCopy, type Sequence, UNREAD } from './sequence.js';
import { filterInputs, type FilterRow } from './tokenEntries.js';

/** The tokens [from, to) of a sequence, and drafts behind its last one. */
export interface SequenceChunk {
  readonly sequence: Sequence;
  readonly from: number;
  readonly to: number;
  readonly drafts: readonly number[];
}

/** A row of a step, and what it is for: the score of a token of the prompt, or the next token. */
export interface AskedRow {
  readonly sequence: Sequence;
  readonly kind: 'score' | 'next';
  /** Place of the token that is scored or drawn. */
  readonly at: number;
  /** Of a token that is drawn, the drafts of the step, and how many of them come before it. */
  readonly drafts?: readonly number[];
  readonly draft?: number;
}

export interface Step {
  readonly pieces: readonly SequenceChunk[];
  readonly message: StepMessage;
  /** In the order of the message's rows. */
  readonly asked: readonly AskedRow[];
}

/** The tokens in [from, to) whose successors are scored, as a range, and whether the last one's is drawn. */
function rowsIn(sequence: Sequence, from: number, to: number) {
  const { nextScore, promptLength, tokens } = sequence;
  const first = Math.min(to, Math.max(from, nextScore - 1));
  return { first, end: Math.max(first, Math.min(to, promptLength - 1)), isLast: to === tokens.length };
}

/** How many rows are asked for of the tokens in [from, to). */
export function rowCount(sequence: Sequence, from: number, to: number): number {
  const { first, end, isLast } = rowsIn(sequence, from, to);
  return end - first + (isLast ? 1 : 0);
}

/** As many of the tokens in [from, to) as have `most` rows. */
export function withinRows(sequence: Sequence, from: number, to: number, most: number): number {
  if (rowCount(sequence, from, to) <= most) return to;
  const { first, end } = rowsIn(sequence, from, to);
  return end - first > most ? first + most : to - 1;
}

interface FoundRow extends AskedRow {
  /** The new token after which it stands. */
  readonly row: number;
  readonly target: number;
}

/** The rows of all pieces, those that are filtered first. */
function findRows(pieces: readonly SequenceChunk[]): readonly FoundRow[] {
  const filtered: FoundRow[] = [];
  const others: FoundRow[] = [];
  let begin = 0;
  for (const { sequence, from, to, drafts } of pieces) {
    const { first, end, isLast } = rowsIn(sequence, from, to);
    for (let i = first; i < end; i++)
      others.push({ sequence, kind: 'score', at: i + 1, row: begin + i - from, target: sequence.tokens[i + 1]! });
    begin += to - from + drafts.length;
    if (!isLast) continue;
    for (let draft = 0; draft <= drafts.length; draft++) {
      const row = begin - 1 - drafts.length + draft;
      const next = { sequence, kind: 'next', at: to + draft, row, target: 0, drafts, draft } as const;
      (sequence.isFilteredAfter(draft) ? filtered : others).push(next);
    }
  }
  return filtered.length === 0 ? others : [...filtered, ...others];
}

/** In the order of findRows. */
const filterRowsOf = ({ sequence, to, drafts }: SequenceChunk): readonly FilterRow[] =>
  to === sequence.tokens.length ? sequence.filterRows(drafts) : [];

const GREEDY: Draw = { inverseTemperature: 0, low: 0, high: 0 };

/** Zeros, `count` at a time. */
const arrays = (count: number) => (): Int32Array => new Int32Array(count);

/**
 * The message for pieces whose sequences have numbers, and pages for all their tokens. The device knows those pages
 * from then on.
 */
export function stepOf(
  pieces: readonly SequenceChunk[],
  ended: readonly number[],
  copies: readonly PageCopy[],
  { keptRows = 0, filtered: maxFiltered }: Pick<StepLimits, 'keptRows' | 'filtered'>,
): Step {
  const ofPart = arrays(pieces.length);
  const parts = { sequence: ofPart(), keptPages: ofPart(), newPages: ofPart(), from: ofPart(), count: ofPart() };
  const pages: number[] = [];
  const tokens: number[] = [];
  pieces.forEach(({ sequence, from, to, drafts }, i) => {
    const { knownPages, pages: own } = sequence;
    parts.sequence[i] = sequence.number;
    parts.keptPages[i] = knownPages;
    parts.newPages[i] = own.length - knownPages;
    parts.from[i] = from;
    parts.count[i] = to - from + drafts.length;
    for (let page = knownPages; page < own.length; page++) pages.push(own[page]!);
    sequence.knownPages = own.length;
    for (let at = from; at < to; at++) {
      const token = sequence.tokens[at]!;
      tokens.push(token === UNREAD ? -1 - sequence.drawnRow : token);
    }
    tokens.push(...drafts);
  });
  const rows = findRows(pieces);
  const ofRow = arrays(rows.length);
  const [row, target, keyLow, keyHigh, keep] = [ofRow(), ofRow(), ofRow(), ofRow(), ofRow()] as const;
  const inverseTemperature = new Float32Array(rows.length);
  rows.forEach((each, i) => {
    row[i] = each.row;
    target[i] = each.target;
    if (each.kind !== 'next') return;
    const draw = each.sequence.drawAt(each.at) ?? GREEDY;
    inverseTemperature[i] = draw.inverseTemperature;
    keyLow[i] = draw.low;
    keyHigh[i] = draw.high;
    keep[i] = i < keptRows && each.draft === 0 ? 1 : 0;
  });
  const message: StepMessage = {
    ...parts,
    ended: Int32Array.from(ended),
    pages: Int32Array.from(pages),
    tokens: Int32Array.from(tokens),
    ...{ row, target, inverseTemperature, keyLow, keyHigh, keep },
    ...(copies.length === 0
      ? {}
      : {
          copies: {
            from: Int32Array.from(copies, ({ from }) => from),
            to: Int32Array.from(copies, ({ to }) => to),
            rows: Int32Array.from(copies, ({ rows }) => rows),
          },
        }),
    ...(maxFiltered === undefined ? {} : { filters: filterInputs(pieces.flatMap(filterRowsOf)) }),
  };
  return { pieces, message, asked: rows };
}
