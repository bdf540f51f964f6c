/** A sequence of tokens that is continued: its prompt, what was generated, and the pages of its keys and values. */
import { NO_FILTERS } from '../ir/filters.js';
import { type Draft, NO_DRAFT } from '../draft/drafter.js';
import { MAX_DRAFTS } from '../draft/limits.js';
import { DECODE_RUN } from '../ir/stepping.js';
import { type Draw, noiseKey } from '../ir/gumbel.js';
import { defined } from '../system/defined.js';
import { AskedRows } from './askedRows.js';
import type { AdapterRef } from './device.js';
import { acceptedNodes, type DraftTree, endsWith, layOut, pathTo } from './draftTree.js';
import type { Guided, TokenMask } from './guide.js';
import { isGreedy, needsRow, type Sampling } from './options.js';
import type { TokenFact } from './pageFacts.js';
import { contentOf, PAGE_TOKENS, type PagePool, rootOf } from './pages.js';
import { namesOf, type PageNames } from './promptNames.js';
import type { Stem } from './pageStems.js';
import { copyOf, type EntryLists, type FilterRow, filtersOf, TokenEntries } from './tokenEntries.js';

/** Stands for a token that a device has drawn and the host has not read yet. */
export const UNREAD = -1;

export interface SequenceOptions {
  readonly prompt: readonly number[];
  /** Length at which it ends by itself. Default: none. */
  readonly longest?: number;
  /** Rows of the prompt that are asked for. Default: none. */
  readonly asks?: AskedRows;
  /** Whether the token behind the prompt is asked for. Default: it is. */
  readonly isDrawing?: boolean;
  /** How tokens are drawn; absent: the most likely one. */
  readonly sampling?: Sampling;
  /** Tokens of the model's vocabulary, where tokens are chosen from whole rows of logits. */
  readonly filterVocab?: number | undefined;
  /** Sequences with a lower one go first. Default 0. */
  readonly priority?: number;
  /** Says which tokens may come next; their rows are filtered. */
  readonly guided?: Guided;
  /** Tokens that may not be among the first `atLeast` that are generated. */
  readonly banned?: { readonly tokens: ReadonlySet<number>; readonly atLeast: number };
  /** What it is computed with. Default: the model alone. */
  readonly adapter?: AdapterRef | undefined;
}

/** What was computed about a token whose page the sequence did not have yet. */
interface LateFact {
  readonly at: number;
  readonly fact: TokenFact;
}

/** Rows of a page that are copied from another. */
export interface PageCopy {
  readonly from: number;
  readonly to: number;
  readonly rows: number;
}

const NO_ROWS = new AskedRows([]);
const NO_ENTRIES = { token: new Int32Array(0), bias: new Float32Array(0), count: new Int32Array(0) };

/** What others have computed of its tokens: whole pages, and rows that can be copied to the next one. */
export interface Adopted {
  readonly pages: number;
  readonly stem: Stem | undefined;
}

export class Sequence {
  /** The last may be UNREAD. */
  readonly tokens: number[];
  readonly longest: number;
  readonly promptLength: number;
  readonly asks: AskedRows;
  readonly isDrawing: boolean;
  /** Lower ones are served first. */
  readonly priority: number;
  readonly sampling: SequenceOptions['sampling'];
  readonly guided: Guided | undefined;
  readonly adapter: AdapterRef | undefined;
  /** The slot of its adapter while it has pages; −1: it has none. */
  slot = -1;
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
  /** Its next step waits for its last token, because drafts may follow that. */
  isDrafting = false;
  /**
   * Recurrent states: the row that holds the sequence's own, and how many tokens it has seen (row −1: none); the
   * snapshot that the sequence starts from; the positions behind which it leaves snapshots, ascending.
   */
  readonly state = { row: -1, at: 0, start: -1, marks: [] as readonly number[] };
  /** What its next step may take behind its last token. */
  draft: Draft = NO_DRAFT;
  private looked: Draft | undefined;
  /** Tokens from place `from` on whose keys the function that drafts has computed in its pages, if they are right. */
  fed: { readonly from: number; readonly tokens: readonly number[] } | undefined;
  /** Those of its first tokens, in order. */
  readonly pages: number[] = [];
  /** Pages that others can find. */
  private published = 0;
  private late: LateFact | undefined;
  /**
   * Contents of full pages, as far as they have been asked for, those of the prompt, which others may share, and what
   * stands before all of them.
   */
  private readonly contents: string[] = [];
  private readonly root: string | undefined;
  private readonly promptNames: PageNames | undefined;

  constructor(options: SequenceOptions) {
    const { prompt, sampling, filterVocab, banned, longest = Infinity, priority = 0 } = options;
    if (prompt.length === 0) throw new RangeError('A sequence has at least one token.');
    this.tokens = [...prompt];
    this.promptLength = prompt.length;
    this.adapter = options.adapter;
    this.root = rootOf(options.adapter?.hash);
    this.promptNames = namesOf(prompt);
    this.sampling = sampling;
    this.longest = longest;
    this.priority = priority;
    this.bannedFirst = banned;
    this.filterVocab = filterVocab ?? 0;
    this.guided = options.guided;
    this.isFilteredAlways =
      filterVocab !== undefined && sampling !== undefined && (this.guided !== undefined || needsRow(sampling));
    if (filterVocab !== undefined && sampling !== undefined)
      this.entries = new TokenEntries({
        sampling,
        promptLength: prompt.length,
        vocab: filterVocab,
        ...defined({ banned: banned && banned.tokens }),
      });
    this.asks = options.asks ?? NO_ROWS;
    this.isDrawing = options.isDrawing ?? true;
  }

  /** Tokens that no call has taken yet, and that one can take: the last one waits for the mask of the next. */
  get pending(): number {
    return Math.max(0, this.tokens.length - this.computed - (this.isThinking ? 1 : 0));
  }

  /** Whether the mask of its next token is not there yet, or those behind its drafts. */
  get isThinking(): boolean {
    return this.guided !== undefined && (this.guided.mask === undefined || this.guided.isLooking);
  }

  /** Whether its guide has looked through its draft. */
  get isLooked(): boolean {
    return this.looked === this.draft;
  }

  /** Asks its guide what may come behind its draft, where that was not done. It is thinking meanwhile. */
  lookAhead(): void {
    const { guided } = this;
    if (guided === undefined || this.isLooked || this.draft.tokens.length === 0 || this.isThinking) return;
    if (guided.takesDrafts) guided.look(layOut(this.draft, MAX_DRAFTS));
    else this.draft = NO_DRAFT;
  }

  /** Its guide has answered: what may come of its draft is left. */
  takeLooked(): void {
    this.draft = this.looked = this.guided!.allowedDrafts;
  }

  /**
   * What its step takes of its draft, which is over with it. Rows behind drafts that its guide has not looked through
   * would have no masks: its mask may come when it is too late to ask.
   */
  takeDraft(): Draft {
    const taken = this.guided === undefined || this.isLooked ? this.draft : NO_DRAFT;
    this.draft = NO_DRAFT;
    return taken;
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

  /** Tokens that are drawn, but not read. */
  get unread(): number {
    let count = 0;
    while (this.tokens.at(-1 - count) === UNREAD) count++;
    return count;
  }

  /** Whether it goes on after the next token, whatever that is, and nobody has to know that token before. */
  get isForeseen(): boolean {
    if (this.isDrafting || this.guided?.isFixed === false) return false;
    return this.tokens.length + 1 < this.longest;
  }

  /**
   * Most drafts that can be of use behind its tokens: none past its longest, or behind a token that is not known. With
   * the tokens that no call has taken, they are no more than a step has of a text that goes on.
   */
  get draftRoom(): number {
    if (this.isUnread) return 0;
    return Math.max(0, Math.min(this.longest - this.tokens.length - 1, DECODE_RUN - Math.max(1, this.pending)));
  }

  /** Whether what is drawn after a node of `drafts`, for place `at`, is drawn after the text. */
  hasAccepted(drafts: DraftTree, node: number, at: number): boolean {
    return node < 0 || (this.tokens.length === at && endsWith(this.tokens, drafts, node));
  }

  /**
   * A step has computed its first `to` tokens and drafts behind them, some of which are its tokens now. Keys of the
   * chain are in its pages; what it has taken of a branch is computed again, beside what is drafted then.
   */
  acceptDrafts(to: number, drafts: DraftTree): void {
    if (this.computed !== to || this.isUnread) return;
    this.computed += acceptedNodes(drafts, this.tokens, to).filter((node) => node < drafts.chain).length;
  }

  /** Does work that sees the tokens which are known, and no others. */
  whileKnown<T>(work: () => T): T {
    const { length } = this.tokens;
    this.unforesee();
    try {
      return work();
    } finally {
      while (this.tokens.length < length) this.tokens.push(UNREAD);
    }
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

  private isBanning(ahead: number): boolean {
    const { bannedFirst: first } = this;
    return first !== undefined && this.tokens.length + ahead - this.promptLength < first.atLeast;
  }

  /** Tokens that may not be the next one, whatever a guide says. */
  get banned(): ReadonlySet<number> | undefined {
    return this.isBanning(0) ? this.bannedFirst!.tokens : undefined;
  }

  /** Whether the token after the last one is chosen from a whole row of logits. */
  get isFiltered(): boolean {
    return this.isFilteredAfter(0);
  }

  /** Whether the token after so many drafts is. */
  isFilteredAfter(drafts: number): boolean {
    return this.entries !== undefined && (this.isFilteredAlways || this.isBanning(drafts));
  }

  /** How many of the most likely tokens to report, at most the vocabulary. */
  get topCount(): number {
    return Math.min(this.sampling?.topLogProbs ?? 0, this.filterVocab);
  }

  /** Most entries of its list (filterRows), and of one behind drafts. */
  entryCount(drafts = 0): number {
    return this.isFilteredAfter(drafts) ? this.entries!.maxAt(this.tokens.length + drafts) : 0;
  }

  /** The rows of the tokens in [from, to) that ask for most likely tokens: nothing is left out of them. */
  askedFilters(from: number, to: number): readonly FilterRow[] {
    const { asks } = this;
    const rows: FilterRow[] = [];
    for (let i = asks.from(from), end = asks.from(to); i < end; i++)
      if (asks.tops[i]! > 0)
        rows.push({ filters: NO_FILTERS, entries: NO_ENTRIES, isGenerated: false, topCount: asks.tops[i]! });
    return rows;
  }

  /** How the tokens after the last one and after each of `drafts` are chosen from their logits, where they are. */
  filterRows(drafts: DraftTree): readonly FilterRow[] {
    if (!this.isFiltered) return [];
    const { length } = this.tokens;
    const isAlone = drafts.tokens.length === 0;
    const path = isAlone ? this.tokens : [...this.tokens];
    const masks = this.guided?.masksBehind(drafts);
    const first = this.filterRow(path, this.guided?.mask);
    if (isAlone) return [first];
    const rows = [{ ...first, entries: copyOf(first.entries) }];
    let last = -1;
    // Drafts are no part of the text yet: what was counted of them is taken back.
    const takeBack = (): EntryLists => this.entries!.listAfter(path, length, this.isBanning(0));
    drafts.tokens.forEach((token, node) => {
      const parent = drafts.parents[node]!;
      if (parent !== last) {
        takeBack();
        path.splice(length, path.length, ...pathTo(drafts, parent));
      }
      path.push(token);
      last = node;
      if (!this.isFilteredAfter(path.length - length)) return;
      const row = this.filterRow(path, masks?.[node]);
      rows.push({ ...row, entries: copyOf(row.entries) });
    });
    takeBack();
    return rows;
  }

  /** How the token after a path, its own tokens and drafts, is chosen. The lists change with the next such row. */
  private filterRow(path: readonly number[], mask: TokenMask | undefined): FilterRow {
    const entries = this.entries!;
    return {
      filters: filtersOf(this.sampling!),
      entries: entries.listAfter(path, path.length, this.isBanning(path.length - this.tokens.length)),
      isGenerated: entries.counts && path.length > this.promptLength,
      topCount: this.topCount,
      mask,
    };
  }

  /** What the token at place `at` is drawn with; undefined: the most likely token is taken. */
  drawAt(at: number): Draw | undefined {
    if (this.sampling === undefined || isGreedy(this.sampling)) return undefined;
    const { temperature, seed } = this.sampling;
    return { inverseTemperature: 1 / temperature, ...noiseKey(seed, at - 1) };
  }

  /**
   * The content of the page that starts at token `PAGE_TOKENS · index`; undefined where it is not full and known. Of
   * page −1: what stands before the first, if anything.
   */
  content(index: number): string | undefined {
    if (index < 0) return this.root;
    for (let i = this.contents.length; i <= index; i++) {
      if (this.promptNames !== undefined && (i + 1) * PAGE_TOKENS <= this.promptLength) {
        this.contents.push(this.promptNames.at(i, this.root));
        continue;
      }
      const own = this.tokens.slice(i * PAGE_TOKENS, (i + 1) * PAGE_TOKENS);
      if (own.length < PAGE_TOKENS || own.includes(UNREAD)) return undefined;
      this.contents.push(contentOf(this.contents[i - 1] ?? this.root, own));
    }
    return this.contents[index];
  }

  /**
   * Holds the pages that were found. Where rows of another can be copied, before the next step, it has a page for them,
   * and holds the other for the caller, who releases it once the step is planned; there may be no room for both.
   */
  adopt({ pages, stem }: Adopted, pool: PagePool): PageCopy | undefined {
    while (this.pages.length < pages) this.pages.push(pool.find(this.content(this.pages.length)!)!);
    this.published = this.pages.length;
    this.computed = this.pages.length * PAGE_TOKENS;
    if (stem === undefined) return undefined;
    // The page that is copied is not to be taken for the sequence itself.
    const left = pool.available - (pool.isIdle(stem.page) ? 1 : 0);
    if (left < this.neededPages - this.pages.length) return undefined;
    pool.hold(stem.page);
    const page = pool.take()!;
    this.pages.push(page);
    pool.facts.copy(stem.page, page, stem.rows);
    // Drafts of the last row may have been made with another token behind it.
    pool.drafted[page] = Math.min(pool.drafted[stem.page]!, stem.rows - 1);
    this.computed += stem.rows;
    return { from: stem.page, to: page, rows: stem.rows };
  }

  /** Those of the answers of its next rows that are not computed, where its first `computed` tokens are not. */
  answersOf(facts: readonly TokenFact[], computed: number): readonly TokenFact[] {
    return facts.slice(0, this.asks.from(computed) - this.asks.answered);
  }

  /** Keeps what was computed about the token at place `at` beside its page. */
  note(at: number, fact: TokenFact, pool: PagePool): void {
    // The page of a token that was not computed yet may come later.
    const late = this.late;
    this.late = undefined;
    if (late !== undefined && !this.put(late, pool)) this.late = late;
    if (!this.put({ at, fact }, pool)) this.late = { at, fact };
  }

  private put({ at, fact }: LateFact, pool: PagePool): boolean {
    const index = Math.floor(at / PAGE_TOKENS);
    const own = this.pages[index];
    if (own === undefined) return false;
    const content = index < this.published ? this.content(index) : undefined;
    pool.facts.set((content === undefined ? undefined : pool.pageOf(content)) ?? own, at % PAGE_TOKENS, fact);
    return true;
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
      const isKnown = pool.publish(this.pages[this.published]!, content, this.wasPreempted);
      if (isKnown) this.lendPage(this.published, pool);
    }
    return this.published > before;
  }

  /** Lets others copy the first rows of its last page, as far as they are computed and their tokens known. */
  lend(pool: PagePool): void {
    if (this.published === Math.floor(this.known / PAGE_TOKENS)) this.lendPage(this.published, pool);
  }

  /** Tokens that are computed, or will be by steps on their way, and known. */
  get known(): number {
    let length = Math.min(this.computed, this.tokens.length);
    while (this.tokens[length - 1] === UNREAD) length--;
    return length;
  }

  private lendPage(index: number, pool: PagePool): void {
    const page = this.pages[index];
    const tokens = this.tokens.slice(index * PAGE_TOKENS, Math.min((index + 1) * PAGE_TOKENS, this.known));
    if (page !== undefined && tokens.length > 0) pool.lend(page, this.content(index - 1), tokens);
  }

  /** The call that was to compute the tokens from `from` on failed: they are to be computed again. */
  rewind(from: number): void {
    this.computed = Math.min(this.computed, from);
    this.unforesee();
  }

  /** Nobody finds the pages from token `from` on any more. */
  withdraw(from: number, pool: PagePool): void {
    for (const page of this.pages.slice(Math.floor(from / PAGE_TOKENS))) pool.forget(page);
    this.published = Math.min(this.published, Math.floor(from / PAGE_TOKENS));
  }

  /** Gives all pages back, the last first, so that the beginning stays longest. */
  drop(pool: PagePool): void {
    for (let page = this.pages.pop(); page !== undefined; page = this.pages.pop()) pool.release(page);
    this.computed = 0;
    this.published = 0;
    this.fed = undefined;
  }
}
