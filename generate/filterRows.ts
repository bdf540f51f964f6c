/** What a call takes for its first rows, whose tokens are chosen from their logits (ir/sampleInputs). */
import { NO_FILTERS, type RowFilters } from '../ir/filters.js';
import { isGreedy, type Sampling } from './sampling.js';
import type { EntryLists } from './tokenEntries.js';

/** A row of a sequence. */
export interface FilterRow {
  readonly filters: RowFilters;
  readonly entries: EntryLists;
  /** Whether its own token was generated, and is to be counted. */
  readonly isGenerated: boolean;
  /** How many of the most likely tokens to report. */
  readonly topCount: number;
}

/** Inputs of `step` by name, an element for each row; of entries, one for each entry of all rows. */
export interface FilterInputs {
  readonly topK: Int32Array;
  readonly topP: Float32Array;
  readonly minLogP: Float32Array;
  readonly repetition: Float32Array;
  readonly presence: Float32Array;
  readonly frequency: Float32Array;
  readonly first: Int32Array;
  readonly end: Int32Array;
  readonly entryToken: Int32Array;
  readonly entryBias: Float32Array;
  readonly entryCount: Int32Array;
  readonly isGenerated: Int32Array;
  readonly topCount: Int32Array;
}

/** The filters of options. Without a temperature the most likely token is taken, which no filter leaves out. */
export function filtersOf(sampling: Sampling): RowFilters {
  const { topK, topP, minP, repetitionPenalty: repetition, presencePenalty, frequencyPenalty } = sampling;
  const penalties = { repetition, presence: presencePenalty, frequency: frequencyPenalty };
  return isGreedy(sampling) ? { ...NO_FILTERS, ...penalties } : { topK, topP, minLogP: Math.log(minP), ...penalties };
}

export function filterInputs(rows: readonly FilterRow[]): FilterInputs {
  const ends: number[] = [];
  for (const { entries } of rows) ends.push((ends.at(-1) ?? 0) + entries.token.length);
  const firsts = ends.map((end, row) => end - rows[row]!.entries.token.length);
  const entries = ends.at(-1) ?? 0;
  const lists = {
    entryToken: new Int32Array(entries),
    entryBias: new Float32Array(entries),
    entryCount: new Int32Array(entries),
  };
  rows.forEach((row, i) => {
    lists.entryToken.set(row.entries.token, firsts[i]!);
    lists.entryBias.set(row.entries.bias, firsts[i]!);
    lists.entryCount.set(row.entries.count, firsts[i]!);
  });
  const numbers = (name: keyof RowFilters): Float32Array => Float32Array.from(rows, ({ filters }) => filters[name]);
  return {
    topK: Int32Array.from(rows, ({ filters }) => filters.topK),
    topP: numbers('topP'),
    minLogP: numbers('minLogP'),
    repetition: numbers('repetition'),
    presence: numbers('presence'),
    frequency: numbers('frequency'),
    first: Int32Array.from(firsts),
    end: Int32Array.from(ends),
    ...lists,
    isGenerated: Int32Array.from(rows, ({ isGenerated }) => (isGenerated ? 1 : 0)),
    topCount: Int32Array.from(rows, ({ topCount }) => topCount),
  };
}
