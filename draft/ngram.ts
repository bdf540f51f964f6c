/**
 * Prompt lookup: the last n tokens of a text are looked for earlier in it, and what followed there is the draft. The
 * longest n from `max` down to `min` that is found counts, at its latest place. What it finds is exact; what it does
 * not find costs a draft. A token costs a few entries of a table, whatever the text.
 */
import { hash32 } from '../ir/gumbel.js';
import { chanceOf } from './chance.js';
import { type Draft, type Drafter, type DraftState, type DraftText, NO_DRAFT } from './drafter.js';
import { LENGTHS, lengthKind, NoiseCorrection, Rates } from './rates.js';

export interface NgramOptions {
  /** Fewest tokens that must agree. */
  readonly min?: number;
  /** Most tokens that are looked for. */
  readonly max?: number;
}

const DEFAULT_MIN = 1;
const DEFAULT_MAX = 5;

/** Drafts that are less likely to be reached, and right, are none. */
export const LEAST_CHANCE = 0.03;

/** Entries that are looked at for a place: with others in their way, there are no more, however the text was made. */
const PROBES = 16;
const LEAST_ENTRIES = 64;
/** Most tokens that one call indexes, so that a long prompt does not stop the loop that feeds a device. */
const PIECE = 4096;
/** Tokens before a place beyond which it does not matter how many more agree. */
const MOST_COMPARED = 32;

/** An earlier place in a text. */
export interface Found {
  /** Where the tokens begin that followed. */
  readonly at: number;
  /** How many tokens before it are those before the end of the text. */
  readonly length: number;
}

/** Places of one text by the n tokens before them. It is given the same text at each call, with more tokens. */
export class NgramIndex {
  private readonly min: number;
  private readonly max: number;
  /** Of each n a table of as many entries; an entry is a place, 0: none. */
  private table = new Int32Array(0);
  private entries = 0;
  /** Places up to this one are in the table: each has a token behind it. */
  private done = 0;

  constructor(min = DEFAULT_MIN, max = DEFAULT_MAX) {
    this.min = Math.max(1, min);
    this.max = Math.max(this.min, max);
  }

  /** Takes what is new, at most PIECE tokens of it. */
  update(tokens: readonly number[]): void {
    const until = Math.min(tokens.length - 1, this.done + PIECE);
    if (until * 2 > this.entries) this.grow(tokens, tokens.length);
    for (let end = this.done + 1; end <= until; end++) this.add(tokens, end);
    this.done = Math.max(this.done, until);
  }

  /** Where the longest end of the text was before, the latest of such places. */
  find(tokens: readonly number[]): Found | undefined {
    if (this.entries === 0) return undefined;
    let hash = 0;
    let at = 0;
    for (let n = 1; n <= this.max && n < tokens.length; n++) {
      hash = hash32(tokens[tokens.length - n]!, hash);
      if (n < this.min) continue;
      const found = this.table[this.slot(tokens, tokens.length, n, hash)]!;
      // Places of other hashes may be in the table instead: a longer n can be there where a shorter one is not.
      if (found > 0 && agrees(tokens, found, tokens.length, n)) at = found;
    }
    if (at === 0) return undefined;
    let length = this.min;
    const most = Math.min(at, MOST_COMPARED);
    while (length < most && tokens[at - 1 - length] === tokens[tokens.length - 1 - length]) length++;
    return { at, length };
  }

  private add(tokens: readonly number[], end: number): void {
    let hash = 0;
    for (let n = 1; n <= this.max && n <= end; n++) {
      hash = hash32(tokens[end - n]!, hash);
      if (n >= this.min) this.table[this.slot(tokens, end, n, hash)] = end;
    }
  }

  /** The entry for the n tokens before `end`: theirs, an empty one, or else the last that is looked at. */
  private slot(tokens: readonly number[], end: number, n: number, hash: number): number {
    const first = (n - this.min) * this.entries;
    const mask = this.entries - 1;
    let slot = first;
    for (let probe = 0; probe < PROBES; probe++) {
      slot = first + ((hash + probe) & mask);
      const place = this.table[slot]!;
      if (place === 0 || agrees(tokens, place, end, n)) break;
    }
    return slot;
  }

  private grow(tokens: readonly number[], length: number): void {
    let entries = Math.max(LEAST_ENTRIES, this.entries);
    while (entries < length * 2) entries *= 2;
    this.entries = entries;
    this.table = new Int32Array(entries * (this.max - this.min + 1));
    for (let end = 1; end <= this.done; end++) this.add(tokens, end);
  }
}

/** Whether the n tokens before two places are the same. */
function agrees(tokens: readonly number[], place: number, end: number, n: number): boolean {
  for (let i = 1; i <= n; i++) if (tokens[place - i] !== tokens[end - i]) return false;
  return true;
}

/** What followed a place, and behind the end of the text what it then says itself: a text of a period goes on so. */
export function copyFrom(tokens: readonly number[], at: number, count: number): number[] {
  const copied: number[] = [];
  const known = tokens.length - at;
  for (let i = 0; i < count; i++) copied.push(i < known ? tokens[at + i]! : copied[i - known]!);
  return copied;
}

/** Rates by the number of tokens that agree, from a prompt of which nothing is known. */
const PRIOR = Array.from({ length: LENGTHS }, (_, kind) => 0.3 + (0.6 * kind) / LENGTHS);

/** What was found for a place that was not known then. `noisy`: what noise made of its rate, if there is any. */
interface Open {
  readonly place: number;
  readonly token: number;
  readonly kind: number;
  readonly rate: number;
  readonly noisy: number | undefined;
}

class NgramState implements DraftState {
  private readonly index: NgramIndex;
  private readonly rates: Rates;
  private readonly correction: NoiseCorrection;
  private open: Open | undefined;

  constructor(index: NgramIndex, rates: Rates, correction: NoiseCorrection) {
    this.index = index;
    this.rates = rates;
    this.correction = correction;
  }

  propose(text: DraftText, most: number): Draft {
    const { tokens } = text;
    this.score(tokens);
    this.index.update(tokens);
    const found = most > 0 ? this.index.find(tokens) : undefined;
    if (found === undefined) return NO_DRAFT;
    const drafted: number[] = [];
    const chances: number[] = [];
    let survival = 1;
    for (const [i, token] of copyFrom(tokens, found.at, most).entries()) {
      // Where a draft is right, one more token agrees.
      const kind = lengthKind(found.length + i);
      const rate = this.rates.of(kind);
      const draw = text.drawAt(tokens.length + i);
      const noisy = draw === undefined ? undefined : chanceOf(rate, token, draw);
      if (i === 0) this.open = { place: tokens.length, token, kind, rate, noisy };
      const chance = noisy === undefined ? rate : this.correction.of(rate, noisy);
      survival *= chance;
      if (survival < LEAST_CHANCE) break;
      drafted.push(token);
      chances.push(chance);
    }
    return { tokens: drafted, chances };
  }

  /** Counts whether what was found is what came. */
  private score(tokens: readonly number[]): void {
    if (this.open === undefined || this.open.place >= tokens.length) return;
    const { place, token, kind, rate, noisy } = this.open;
    const isRight = tokens[place] === token;
    this.rates.count(kind, isRight);
    if (noisy !== undefined) this.correction.count(rate, noisy, isRight);
    this.open = undefined;
  }
}

/** Drafts from the text itself. */
export class NgramDrafter implements Drafter {
  readonly name = 'ngram';
  private readonly min: number;
  private readonly max: number;
  private readonly rates = new Rates(PRIOR);
  private readonly correction = new NoiseCorrection();

  constructor({ min = DEFAULT_MIN, max = Math.max(min, DEFAULT_MAX) }: NgramOptions = {}) {
    this.min = min;
    this.max = max;
  }

  begin(): DraftState {
    return new NgramState(new NgramIndex(this.min, this.max), this.rates, this.correction);
  }
}
