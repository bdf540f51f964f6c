/**
 * The tokens of a sequence whose logits change: biases, tokens that are banned, and those that penalties know. Lists
 * follow the sequence as it grows, and back where what was drawn is drawn again.
 */
import { NO_FILTERS, type RowFilters } from '../ir/filters.js';
import type { TokenMask } from './guide.js';
import { isGreedy, isPenalised, type Sampling } from './options.js';

/** A list as a call takes it (ir/sampleInputs): arrays of one length. */
export interface EntryLists {
  readonly token: Int32Array;
  readonly bias: Float32Array;
  readonly count: Int32Array;
}

export interface EntryOptions {
  readonly sampling: Sampling;
  readonly promptLength: number;
  /** Tokens of the model's vocabulary; biases of others are left out. */
  readonly vocab: number;
  readonly banned?: ReadonlySet<number> | undefined;
}

/** Lists that stay as they are when those of the sequence change. */
export const copyOf = ({ token, bias, count }: EntryLists): EntryLists => ({
  token: token.slice(),
  bias: bias.slice(),
  count: count.slice(),
});

export class TokenEntries {
  /** Whether penalties ask which tokens came before. */
  readonly counts: boolean;
  private readonly promptLength: number;
  private readonly vocab: number;
  private readonly places = new Map<number, number>();
  private token = new Int32Array(16);
  private bias = new Float32Array(16);
  private count = new Int32Array(16);
  private isPrompt = new Uint8Array(16);
  private readonly ownBias = new Map<number, number>();
  private readonly banned: ReadonlySet<number>;
  private isBanning = false;
  /** Tokens of the sequence that are counted. */
  private counted = 0;

  constructor({ sampling, promptLength, vocab, banned = new Set() }: EntryOptions) {
    this.counts = isPenalised(sampling);
    this.promptLength = promptLength;
    this.vocab = vocab;
    this.banned = new Set([...banned].filter((token) => token < vocab));
    for (const [token, bias] of sampling.logitBias)
      if (token < vocab) this.ownBias.set(token, (this.ownBias.get(token) ?? 0) + bias);
    for (const [token, bias] of this.ownBias) this.bias[this.placeOf(token)] = bias;
    for (const token of this.banned) this.placeOf(token);
  }

  /** Entries of the list at most, of a sequence with this many tokens. */
  maxAt(length: number): number {
    const most = this.places.size + (this.counts ? Math.max(0, length - this.counted) : 0);
    return Math.min(most, this.vocab);
  }

  /**
   * The list for the token after the first `length` of `tokens`, among which are those of the list before. The last of
   * them is not counted where it was generated: the device knows it, and counts it itself.
   */
  listAfter(tokens: readonly number[], length: number, isBanning: boolean): EntryLists {
    if (isBanning !== this.isBanning) this.ban(isBanning);
    if (this.counts) this.countTo(tokens, Math.max(this.promptLength, length - 1));
    const { size } = this.places;
    return {
      token: this.token.subarray(0, size),
      bias: this.bias.subarray(0, size),
      count: this.count.subarray(0, size),
    };
  }

  private ban(isBanning: boolean): void {
    this.isBanning = isBanning;
    for (const token of this.banned)
      this.bias[this.placeOf(token)] = isBanning ? -Infinity : (this.ownBias.get(token) ?? 0);
  }

  private countTo(tokens: readonly number[], length: number): void {
    for (; this.counted < length; this.counted++) {
      const at = this.placeOf(tokens[this.counted]!);
      if (this.counted < this.promptLength) this.isPrompt[at] = 1;
      this.count[at] = Math.max(0, this.count[at]!) + (this.counted < this.promptLength ? 0 : 1);
    }
    while (this.counted > length) {
      const at = this.placeOf(tokens[--this.counted]!);
      const left = this.count[at]! - 1;
      this.count[at] = left > 0 || this.isPrompt[at] === 1 ? left : -1;
    }
  }

  private placeOf(token: number): number {
    const known = this.places.get(token);
    if (known !== undefined) return known;
    const at = this.places.size;
    if (at === this.token.length) this.grow();
    this.places.set(token, at);
    this.token[at] = token;
    this.count[at] = -1;
    return at;
  }

  private grow(): void {
    const length = 2 * this.token.length;
    const [token, bias, count, isPrompt] = [this.token, this.bias, this.count, this.isPrompt];
    (this.token = new Int32Array(length)).set(token);
    (this.bias = new Float32Array(length)).set(bias);
    (this.count = new Int32Array(length)).set(count);
    (this.isPrompt = new Uint8Array(length)).set(isPrompt);
  }
}

/** What a call takes for its first rows, whose tokens are chosen from their logits (ir/sampleInputs). */

/** A row of a sequence. */
export interface FilterRow {
  readonly filters: RowFilters;
  readonly entries: EntryLists;
  /** Whether its own token was generated, and is to be counted. */
  readonly isGenerated: boolean;
  /** How many of the most likely tokens to report. */
  readonly topCount: number;
  /** Tokens outside it are not chosen. Default: any token may be. */
  readonly mask?: TokenMask | undefined;
}

/**
 * Inputs of `step` by name, an element for each row; of entries, one for each entry of all rows; of `mask`, the words
 * of each mask. Rows with one mask share it, since at 128,000 tokens it has 16 kB.
 */
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
  /** −1 where a row has none. */
  readonly maskRow: Int32Array;
  readonly mask: Int32Array;
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
    ...maskInputs(rows),
    topCount: Int32Array.from(rows, ({ topCount }) => topCount),
  };
}

/** The masks of rows, each once. */
function maskInputs(rows: readonly FilterRow[]): Pick<FilterInputs, 'maskRow' | 'mask'> {
  const places = new Map<TokenMask, number>();
  const maskRow = Int32Array.from(rows, ({ mask }) => {
    if (mask === undefined) return -1;
    if (!places.has(mask)) places.set(mask, places.size);
    return places.get(mask)!;
  });
  const [first] = places.keys();
  const words = first?.length ?? 0;
  const mask = new Int32Array(places.size * words);
  for (const [each, place] of places) mask.set(each, place * words);
  return { maskRow, mask };
}
