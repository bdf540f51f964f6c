/**
 * What a call of the function `draft` says to the device: pieces of sequences, as steps do, each with a row or none.
 */
import type { Draw } from '../ir/gumbel.js';
import type { StepAnswer, StepMessage } from './device.js';
import { PAGE_TOKENS } from './limits.js';
import type { Sequence } from './sequence.js';

/** Tokens of one sequence. */
export interface DraftPart {
  readonly sequence: Sequence;
  /** The position of the first. */
  readonly from: number;
  /** −1 − r: what row r of the call before has drawn. */
  readonly tokens: readonly number[];
  /** What the token behind them is drawn with; 'none': it is not asked for, undefined: the most likely one. */
  readonly draw: Draw | 'none' | undefined;
}

/** A call that was sent. */
export interface DraftCall {
  readonly parts: readonly DraftPart[];
  /** Of each part the pages that it writes, and how many of its sequence's the device knew before. */
  readonly written: readonly (readonly number[])[];
  readonly knownPages: readonly number[];
  readonly answer: Promise<StepAnswer | Error>;
}

/** The pages that hold the positions [from, to) of a sequence. */
export const pagesAt = ({ pages }: Sequence, from: number, to: number): readonly number[] =>
  pages.slice(Math.floor(from / PAGE_TOKENS), Math.ceil(to / PAGE_TOKENS));

/** The device knows all pages of the sequences from then on. `isLast`: nothing goes on from what it draws. */
export function draftMessage(parts: readonly DraftPart[], isLast: boolean): StepMessage {
  const ofPart = (value: (part: DraftPart) => number): Int32Array => Int32Array.from(parts, value);
  const rows: { readonly row: number; readonly draw: Draw | undefined }[] = [];
  let end = 0;
  for (const { tokens, draw } of parts) {
    end += tokens.length;
    if (draw !== 'none') rows.push({ row: end - 1, draw });
  }
  const ofRow = (value: (each: (typeof rows)[number]) => number): Int32Array => Int32Array.from(rows, value);
  const message: StepMessage = {
    ended: new Int32Array(0),
    sequence: ofPart(({ sequence }) => sequence.number),
    keptPages: ofPart(({ sequence }) => sequence.knownPages),
    newPages: ofPart(({ sequence }) => sequence.pages.length - sequence.knownPages),
    pages: Int32Array.from(parts.flatMap(({ sequence }) => sequence.pages.slice(sequence.knownPages))),
    from: ofPart(({ from }) => from),
    count: ofPart(({ tokens }) => tokens.length),
    tokens: Int32Array.from(parts.flatMap(({ tokens }) => tokens)),
    row: ofRow(({ row }) => row),
    target: ofRow(() => 0),
    inverseTemperature: Float32Array.from(rows, ({ draw }) => draw?.inverseTemperature ?? 0),
    keyLow: ofRow(({ draw }) => draw?.low ?? 0),
    keyHigh: ofRow(({ draw }) => draw?.high ?? 0),
    keep: ofRow(() => (isLast ? 0 : 1)),
    isDraft: true,
  };
  for (const { sequence } of parts) sequence.knownPages = sequence.pages.length;
  return message;
}
