/** A sequence of tokens that is continued: its prompt, what was generated, and the pages of its keys and values. */
import { noiseKey, type NoiseKey } from '../ir/gumbel.js';
import { defined } from '../system/defined.js';
import { isGreedy, needsRow, type Sampling } from './options.js';
import { contentOf, PAGE_TOKENS, type PagePool } from './pages.js';
import { type FilterRow, filtersOf, TokenEntries } from './tokenEntries.js';

/** Stands for a token that a device has drawn and the host has not read yet. */
export const UNREAD = -1;

export interface SequenceOptions {
  readonly prompt: readonly number[];
  /** Length at which it ends by itself. Default: none. */
  readonly longest?: number;
  /** The first token whose log-probability is reported, at least 1; absent: none of the prompt. */
  readonly scoreFrom?: number;
  /** How tokens are drawn; absent: the most likely one. */
  readonly sampling?: Sampling;
  /** Tokens of the model's vocabulary, where tokens are chosen from whole rows of logits. */
  readonly filterVocab?: number | undefined;
  /** Sequences with a lower one go first. Default 0. */
  readonly priority?: number;
  /** Tokens that may not be among the first `atLeast` that are generated. */
  readonly banned?: { readonly tokens: ReadonlySet<number>; readonly atLeast: number };
}

/** What a token is drawn with on the device. */
export interface Draw extends NoiseKey {
  readonly inverseTemperature: number;
}

export class Sequence {
  /** The last may be UNREAD. */
  readonly tokens: number[];
  readonly longest: number;
  readonly promptLength: number;
  readonly scoreFrom: number;
  /** Lower ones are served first. */
  readonly priority: number;
  readonly sampling: SequenceOptions['sampling'];
  private readonly isFilteredAlways: boolean;
  private readonly entries: TokenEntries | undefined;
  private readonly filterVocab: number;
  private readonly bannedFirst: SequenceOptions['banned'];
  /** Among sequences of one priority, which of them the scheduler was given first. */
  arrival = 0;
  /** What the device calls it, and how many of its pages the device knows; −1: the device does not have it. */
  number = -1;
  knownPages = 0;
  /** The last step that it is part of. */
  lastStep = 0;
  /** Tokens whose keys and values are in the pages. */
  computed = 0;
  /** Tokens that were found in pages when the sequence was first admitted. */
  found = 0;
  /** Log-probability of tokens from `scoreFrom` on, and whether each was the most likely token. */
  readonly scores: { readonly logProb: number; readonly isArgmax: boolean }[] = [];
  /** The row of the last call that drew the token that is UNREAD. */
  drawnRow = 0;
  /** Calls on their way that will say something about it: it cannot begin again before they are read. */
  awaited = 0;
  /** Computes everything itself: what others computed is not to be trusted. */
  isAlone = false;
  /** Gave its pages back because others needed them. */
  wasPreempted = false;
  /** Takes no part in steps: whoever reads what it generates is behind. */
  isPaused = false;
  /** Those of its first tokens, in order. */
  readonly pages: number[] = [];
  /** Pages that others can find. */
  private published = 0;
  /** Contents of full pages, as far as they have been asked for. */
  private readonly contents: string[] = [];

  constructor(options: SequenceOptions) {
    const { prompt, scoreFrom, sampling, filterVocab, banned, longest = Infinity, priority = 0 } = options;
    if (prompt.length === 0) throw new RangeError('A sequence has at least one token.');
    this.tokens = [...prompt];
    this.promptLength = prompt.length;
    this.sampling = sampling;
    this.longest = longest;
    this.priority = priority;
    this.bannedFirst = banned;
    this.filterVocab = filterVocab ?? 0;
    this.isFilteredAlways = filterVocab !== undefined && sampling !== undefined && needsRow(sampling);
    if (filterVocab !== undefined && sampling !== undefined)
      this.entries = new TokenEntries({
        sampling,
        promptLength: prompt.length,
        vocab: filterVocab,
        ...defined({ banned: banned && banned.tokens }),
      });
    this.scoreFrom = Math.max(1, scoreFrom ?? prompt.length);
  }

  /** Index of the first token of the prompt that is to be scored and was not; past the end where there is none. */
  get nextScore(): number {
    const next = this.scoreFrom + this.scores.length;
    return next < this.promptLength ? next : Infinity;
  }

  /** Tokens that no call has taken yet. */
  get pending(): number {
    return this.tokens.length - this.computed;
  }

  /** Whether its prompt is computed, so that it goes on token by token. */
  get isWriting(): boolean {
    return this.computed >= this.promptLength;
  }

  /** Pages for all its tokens, and the next where one will follow. */
  get neededPages(): number {
    return Math.ceil((this.tokens.length + (this.tokens.length < this.longest ? 1 : 0)) / PAGE_TOKENS);
  }

  /** Pages that it may need at last. */
  get mostPages(): number {
    return Math.ceil(Math.max(this.longest, this.tokens.length) / PAGE_TOKENS);
  }

  /** Whether its last token is drawn, but not read. */
  get isUnread(): boolean {
    return this.tokens.at(-1) === UNREAD;
  }

  /** Whether it goes on after the next token, whatever that is. */
  get isForeseen(): boolean {
    return this.tokens.length + 1 < this.longest;
  }

  /** Row `row` of the last call draws the next token. */
  foresee(row: number): void {
    this.tokens.push(UNREAD);
    this.drawnRow = row;
  }

  /** The token at place `at` is known now. */
  read(at: number, token: number): void {
    this.tokens[at] = token;
  }

  /** What was drawn and not read will be drawn again. */
  private unforesee(): void {
    while (this.isUnread) this.tokens.pop();
  }

  private get isBanning(): boolean {
    const { bannedFirst: first } = this;
    return first !== undefined && this.tokens.length - this.promptLength < first.atLeast;
  }

  /** Whether the token after the last one is chosen from a whole row of logits. */
  get isFiltered(): boolean {
    return this.entries !== undefined && (this.isFilteredAlways || this.isBanning);
  }

  /** How many of the most likely tokens to report, at most the vocabulary. */
  get topCount(): number {
    return Math.min(this.sampling?.topLogProbs ?? 0, this.filterVocab);
  }

  /** Most entries of its list (filterRow). */
  get entryCount(): number {
    return this.isFiltered ? this.entries!.maxAt(this.tokens.length) : 0;
  }

  /** How the token after the last one is chosen from its logits. */
  get filterRow(): FilterRow {
    const { entries, sampling, tokens, promptLength, isBanning } = this;
    if (entries === undefined || sampling === undefined) throw new Error('A sequence without options has no filters.');
    return {
      filters: filtersOf(sampling),
      entries: entries.listAfter(tokens, isBanning),
      isGenerated: entries.counts && tokens.length > promptLength,
      topCount: this.topCount,
    };
  }

  /** What the token after the last one is drawn with; undefined: the most likely token is taken. */
  get draw(): Draw | undefined {
    if (this.sampling === undefined || isGreedy(this.sampling)) return undefined;
    const { temperature, seed } = this.sampling;
    return { inverseTemperature: 1 / temperature, ...noiseKey(seed, this.tokens.length - 1) };
  }

  /** The content of the page that starts at token `PAGE_TOKENS · index`; undefined where it is not full and known. */
  content(index: number): string | undefined {
    for (let i = this.contents.length; i <= index; i++) {
      const own = this.tokens.slice(i * PAGE_TOKENS, (i + 1) * PAGE_TOKENS);
      if (own.length < PAGE_TOKENS || own.includes(UNREAD)) return undefined;
      this.contents.push(contentOf(this.contents[i - 1], own));
    }
    return this.contents[index];
  }

  /** Full pages at its beginning that need not be computed, if others have: not those of rows that are asked for. */
  private get findablePages(): number {
    const most = this.isAlone ? 0 : Math.min(this.tokens.length, this.nextScore) - 1;
    return Math.floor(most / PAGE_TOKENS);
  }

  /** Pages that it would find, and how many of them nobody holds: those are not there for others once it has them. */
  lookUp(pool: PagePool): { readonly found: number; readonly idle: number } {
    let [found, idle] = [0, 0];
    for (const most = this.findablePages; found < most; found++) {
      const content = this.content(found)!;
      if (!pool.has(content)) break;
      if (pool.hasIdle(content)) idle++;
    }
    return { found, idle };
  }

  /** Holds the pages that already contain the first tokens. */
  adopt(pool: PagePool): void {
    for (const most = this.findablePages; this.pages.length < most;) {
      const page = pool.find(this.content(this.pages.length)!);
      if (page === undefined) break;
      this.pages.push(page);
    }
    this.published = this.pages.length;
    this.computed = this.pages.length * PAGE_TOKENS;
  }

  /**
   * Has pages for the first `length` tokens. Returns false, with those it could get, where the pool has too few. Pages
   * of a text that ended come back last first; they are put in order, since a GPU loads rows that follow each other
   * together.
   */
  reserve(length: number, pool: PagePool): boolean {
    const first = this.pages.length;
    const wanted = Math.ceil(length / PAGE_TOKENS);
    while (this.pages.length < wanted) {
      const page = pool.take();
      if (page === undefined) break;
      this.pages.push(page);
    }
    if (this.pages.length > first + 1) this.pages.push(...this.pages.splice(first).sort((a, b) => a - b));
    return this.pages.length >= wanted;
  }

  /** Lets others find the full pages, as far as their tokens are known. Returns whether there are more than before. */
  publish(pool: PagePool): boolean {
    const before = this.published;
    for (; (this.published + 1) * PAGE_TOKENS <= this.computed; this.published++) {
      const content = this.content(this.published);
      if (content === undefined) break;
      pool.publish(this.pages[this.published]!, content, this.wasPreempted);
    }
    return this.published > before;
  }

  /** The call that was to compute the tokens from `from` on failed: they are to be computed again. */
  rewind(from: number): void {
    this.computed = Math.min(this.computed, from);
    this.unforesee();
  }

  /** Nobody finds the pages from token `from` on any more. */
  withdraw(from: number, pool: PagePool): void {
    for (let i = Math.floor(from / PAGE_TOKENS); i < this.published; i++) pool.forget(this.pages[i]!);
    this.published = Math.min(this.published, Math.floor(from / PAGE_TOKENS));
  }

  /** Gives all pages back, the last first, so that the beginning stays longest. */
  drop(pool: PagePool): void {
    for (let page = this.pages.pop(); page !== undefined; page = this.pages.pop()) pool.release(page);
    this.computed = 0;
    this.published = 0;
  }
}
