/**
 * The sequences of a model on one replica, where its device is driven: what a message changes, and the inputs of the
 * function `step` that follow. Nothing else looks at what a message says before kernels use it as an index into memory,
 * so everything is checked here first: a message that is refused changes nothing.
 */
import { MAX_SEQUENCES, type PageCopies, type StepMessage } from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import type { FilterInputs } from '../../engine/tokenEntries.js';
import { branchFault, fillBranch, listBranches, type ListedBranch, NO_BRANCHES } from './branches.js';
import { Families } from './families.js';
import { emptyPath, KeyLists, type ListedPath } from './keyLists.js';
import { checkArrays, refuse } from './messageArrays.js';
import { stateFault, stateInputs, type StateShape, treeOrder } from './stateInputs.js';
import { fed, inOrder, type Ordered, runOrder } from './tokenOrder.js';

/** Inputs of the function `step`, by name. Those of filtered rows are there where the model chooses from logits. */
export interface StepInputs extends Partial<FilterInputs> {
  /** New tokens; any number where `isFed` is 1: the token is then the one kept in row `feed` of `drawn`. */
  readonly tokens: Int32Array;
  /** The slot of each new token's adapter, and of each row's; −1: none. */
  readonly adapter?: Int32Array;
  readonly rowAdapter?: Int32Array;
  readonly isFed?: Int32Array;
  readonly feed?: Int32Array;
  /** Where the token that a row draws is kept for the next call; −1: nowhere. */
  readonly keep?: Int32Array;
  readonly position: Int32Array;
  readonly slot: Int32Array;
  readonly begin: Int32Array;
  readonly key: Int32Array;
  readonly row: Int32Array;
  /** A head of classes has neither targets nor draws. */
  readonly target?: Int32Array;
  /** What the next token of each row is drawn with (ir/gumbel): 0 takes the most likely one. */
  readonly inverseTemperature?: Float32Array;
  readonly keyLow?: Int32Array;
  readonly keyHigh?: Int32Array;
  /** The same as `keep`, for tokens that are chosen from logits: those of the first rows. */
  readonly keepFiltered?: Int32Array;
  /**
   * For a `draft` that reads features: the state row with the features of each new token's position. `keepFeature`: the
   * state row that takes what each row computes, as the features of the next position; −1 for none.
   */
  readonly feature?: Int32Array;
  readonly keepFeature?: Int32Array;
  /** Of recurrent layers, beside those that STEP_STATES names (stateInputs.ts). */
  readonly subtreeEnd?: Int32Array;
}

/** What is to be done for a message: copies of pages, then a call of `step`. */
export interface StepCall {
  readonly copies?: PageCopies;
  readonly inputs: StepInputs;
}

export interface DraftShape {
  /** Rows whose token it keeps for its next call. */
  readonly keptRows: number;
  /** Whether it goes on from features. */
  readonly takesFeatures: boolean;
  /** Tokens that it knows. Others of the model are 0 to it. Default: all. */
  readonly vocabSize?: number | undefined;
}

export interface TableShape {
  /** Pages that have memory. */
  readonly pages: number;
  /** Most entries of the list of keys. */
  readonly keys: number;
  /** Longest context of the model, in tokens. Default: any; calls check it again. */
  readonly maxLength?: number;
  /** Rows whose token the device keeps for the next step; absent: the function takes every token from here. */
  readonly keptRows?: number | undefined;
  /** Whether the function filters rows. */
  readonly filters?: boolean;
  /** Whether its rows are those of a head of classes, which has no targets and draws nothing. */
  readonly hasClasses?: boolean;
  /**
   * Slots for adapters, that of tokens of messages that name none, and the function's inputs of slots. Absent: there
   * are none.
   */
  readonly adapters?: { readonly slots: number; readonly slot: number; readonly inputs: readonly string[] } | undefined;
  /** Rows of states of recurrent layers, if the model has such layers. */
  readonly states?: StateShape | undefined;
  /** The function `draft`, if the model has one. */
  readonly draft?: DraftShape | undefined;
  /** Parts of a call from which on those that go on from the same pages stand next to each other. Default: 128. */
  readonly leastGrouped?: number;
}

/** In smaller calls kernels read every path by itself. */
const LEAST_GROUPED = 128;

const NONE = new Int32Array(0);
const NO_FLOATS = new Float32Array(0);
const NO_FILTERS: FilterInputs = {
  topK: NONE,
  topP: NO_FLOATS,
  minLogP: NO_FLOATS,
  repetition: NO_FLOATS,
  presence: NO_FLOATS,
  frequency: NO_FLOATS,
  first: NONE,
  end: NONE,
  entryToken: NONE,
  entryBias: NO_FLOATS,
  entryCount: NONE,
  isGenerated: NONE,
  maskRow: NONE,
  mask: NONE,
  topCount: NONE,
};

export class SequenceTable {
  /** Pages that have memory. */
  pages: number;
  private readonly shape: TableShape;
  private readonly lists: KeyLists;
  private readonly families: Families;
  /** By number. */
  private readonly paths: (ListedPath | undefined)[] = [];
  /** For each page the number of the last check that found new tokens in it. */
  private written: Int32Array;
  private readonly named = new Map<number, number>();
  private checks = 0;
  /** Rows of the last step whose token the device keeps, and those of the last drafts. */
  private kept = new Uint8Array(0);
  private keptDrafts = new Uint8Array(0);

  constructor(shape: TableShape) {
    this.shape = shape;
    this.pages = shape.pages;
    this.written = new Int32Array(shape.pages);
    this.lists = new KeyLists(shape.keys);
    this.lists.limit(shape.pages);
    this.families = new Families(shape.pages);
  }

  /** Sequences that it has. */
  get size(): number {
    return this.paths.reduce((count, path) => count + (path === undefined ? 0 : 1), 0);
  }

  /** Pages 0 to `pages` − 1 have memory from now on. Sequences with others are forgotten. */
  resize(pages: number): void {
    if (!(Number.isInteger(pages) && pages >= 0)) refuse(`${pages} pages`);
    const isFewer = pages < this.pages;
    this.pages = pages;
    this.written = new Int32Array(pages);
    this.checks = 0;
    if (isFewer)
      this.paths.forEach((path, number) => {
        if (path !== undefined && path.pages.subarray(0, path.pageCount).some((page) => page >= pages))
          this.forget(number);
      });
    this.families.resize(pages);
    this.lists.limit(pages);
  }

  /** Takes a message, and gives the call that it asks for. Throws RangeError where it is refused. */
  apply(message: StepMessage): StepCall {
    this.check(message);
    for (const number of message.ended) this.forget(number);
    const { sequence, keptPages, newPages, pages, from, count, copies } = message;
    const parts: ListedPath[] = [];
    const lengths: number[] = [];
    let page = 0;
    for (let i = 0; i < sequence.length; i++) {
      const path = (this.paths[sequence[i]!] ??= emptyPath());
      this.truncate(path, keptPages[i]!);
      const added = pages.subarray(page, (page += newPages[i]!));
      addPages(path, added);
      this.families.add(added);
      parts.push(path);
      lengths.push(from[i]! + count[i]!);
    }
    const branches = listBranches(message.branches ?? NO_BRANCHES, parts);
    this.lists.place(
      [...parts, ...branches.map(({ path }) => path)],
      [...lengths, ...branches.map(({ length }) => length)],
    );
    const { leastGrouped = LEAST_GROUPED } = this.shape;
    const order = parts.length < leastGrouped ? undefined : this.families.order(parts);
    const { states } = this.shape;
    const runs =
      states === undefined || branches.length === 0
        ? runOrder(parts.length, order, branches)
        : treeOrder(parts.length, message.branches!, order);
    const { tokens, row, moved } = inOrder(message, runs);
    const [position, slot, begin] = [tokens, tokens, tokens].map(({ length }) => new Int32Array(length)) as [
      Int32Array,
      Int32Array,
      Int32Array,
    ];
    let token = 0;
    parts.forEach((path, i) => {
      this.lists.fill(path, lengths[i]!);
      for (let place = from[i]!; place < lengths[i]!; place++, token++) {
        const at = moved === undefined ? token : moved[token]!;
        position[at] = place;
        slot[at] = path.pages[Math.floor(place / PAGE_TOKENS)]! * PAGE_TOKENS + (place % PAGE_TOKENS);
        begin[at] = path.begin;
      }
    });
    for (const branch of branches) {
      fillBranch(branch, this.lists);
      for (let place = branch.from; place < branch.length; place++, token++) {
        const at = moved === undefined ? token : moved[token]!;
        position[at] = place;
        slot[at] = branch.slot + place - branch.from;
        begin[at] = branch.path.begin;
      }
    }
    const { target, inverseTemperature, keyLow, keyHigh } = message;
    if (message.isDraft === true) {
      const inputs = { ...this.givenDrafts(message, tokens), position, slot, begin, key: this.lists.view(), row };
      const features = this.shape.draft!.takesFeatures ? this.features(parts, message, slot) : {};
      return { inputs: { ...inputs, ...features, inverseTemperature, keyLow, keyHigh } };
    }
    const draws = this.shape.hasClasses === true ? {} : { target, inverseTemperature, keyLow, keyHigh };
    const slots = this.slotsOf(message, { branches, tokens, row, moved });
    return {
      inputs: {
        ...this.given(message, tokens),
        position,
        slot,
        begin,
        key: this.lists.view(),
        row,
        ...draws,
        ...slots,
        ...(states === undefined ? {} : stateInputs(message, moved, states)),
      },
      ...(copies === undefined || copies.from.length === 0 ? {} : { copies }),
    };
  }

  /** The new tokens, what is kept of those that are drawn, and filters. */
  private given({ row, keep, filters = NO_FILTERS }: StepMessage, tokens: Int32Array) {
    const { keptRows, filters: hasFilters = false } = this.shape;
    const own = hasFilters ? filters : {};
    if (keptRows === undefined) return { tokens, ...own };
    this.kept = Uint8Array.from(keep);
    const filtered = filters.topK.length;
    // A token that is chosen from logits is kept in place of the one that the head has drawn.
    const places = Int32Array.from(row, (_, i) => (keep[i] === 1 ? i : -1));
    const keepFiltered = places.slice(0, filtered);
    const unfiltered = places.fill(-1, 0, filtered);
    return { ...fed(tokens), keep: unfiltered, ...own, ...(hasFilters ? { keepFiltered } : {}) };
  }

  /** The slots of new tokens and of rows: those of their parts. */
  private slotsOf(
    { adapter, count }: StepMessage,
    { branches, tokens, row, moved }: Ordered & { readonly branches: readonly ListedBranch[] },
  ): Pick<StepInputs, 'adapter' | 'rowAdapter'> {
    const own = this.shape.adapters;
    if (own === undefined) return {};
    const ofTokens = new Int32Array(tokens.length).fill(own.slot);
    if (adapter !== undefined) {
      let token = 0;
      const fill = (part: number, length: number): void => {
        for (const end = token + length; token < end; token++)
          ofTokens[moved === undefined ? token : moved[token]!] = adapter[part]!;
      };
      count.forEach((length, part) => fill(part, length));
      for (const { part, from, length } of branches) fill(part, length - from);
    }
    const all: Readonly<Record<string, Int32Array>> = {
      adapter: ofTokens,
      rowAdapter: row.map((token) => ofTokens[token]!),
    };
    return Object.fromEntries(own.inputs.map((name) => [name, all[name]!]));
  }

  private givenDrafts({ row, keep }: StepMessage, tokens: Int32Array) {
    this.keptDrafts = Uint8Array.from(keep);
    const { vocabSize = Infinity } = this.shape.draft!;
    const known = tokens.map((token) => (token < vocabSize ? token : 0));
    const target = new Int32Array(row.length);
    return { ...fed(known), target, keep: Int32Array.from(row, (_, i) => (keep[i] === 1 ? i : -1)) };
  }

  /** Features lie as keys do. Those of a row have no place where its sequence has no page for the next position. */
  private features(parts: readonly ListedPath[], { from, count, row }: StepMessage, slot: Int32Array) {
    const next: number[] = [];
    parts.forEach(({ pages, pageCount }, i) => {
      for (let place = from[i]! + 1; place <= from[i]! + count[i]!; place++) {
        const index = Math.floor(place / PAGE_TOKENS);
        next.push(index < pageCount ? pages[index]! * PAGE_TOKENS + (place % PAGE_TOKENS) : -1);
      }
    });
    return { feature: slot.slice(), keepFeature: row.map((token) => next[token]!) };
  }

  /** The path has its first `pageCount` pages only. */
  private truncate(path: ListedPath, pageCount: number): void {
    this.families.remove(path.pages.subarray(pageCount, path.pageCount));
    this.lists.truncate(path, pageCount);
  }

  private forget(number: number): void {
    const path = this.paths[number];
    if (path === undefined) return;
    this.families.remove(path.pages.subarray(0, path.pageCount));
    this.lists.release(path);
    this.paths[number] = undefined;
    while (this.paths.length > 0 && this.paths.at(-1) === undefined) this.paths.pop();
  }

  private check(message: StepMessage): void {
    checkArrays(message);
    const { ended, sequence, keptPages, newPages, pages, from, count, tokens, row, keep, branches } = message;
    if (sequence.length === 0) refuse('it has no parts');
    const check = this.nextCheck();
    const { named } = this;
    const isDraft = message.isDraft === true;
    const { maxLength = Infinity } = this.shape;
    const keptRows = (isDraft ? this.shape.draft?.keptRows : this.shape.keptRows) ?? 0;
    named.clear();
    for (const number of ended) if (this.paths[number] !== undefined) named.set(number, -1);
    let [page, token, keys] = [0, 0, 0];
    const ends: number[] = [];
    for (let i = 0; i < sequence.length; i++) {
      const number = sequence[i]!;
      if (!(number >= 0 && number < MAX_SEQUENCES)) refuse(`a sequence of number ${number}`);
      if ((named.get(number) ?? -1) >= 0) refuse(`sequence ${number} comes twice`);
      const path = named.has(number) ? undefined : this.paths[number];
      named.set(number, i);
      const [kept, added, first, fresh] = [keptPages[i]!, newPages[i]!, from[i]!, count[i]!];
      const held = path?.pageCount ?? 0;
      if (!(kept >= 0 && kept <= held)) refuse(`sequence ${number} keeps ${kept} of ${held} pages`);
      if (!(added >= 0 && page + added <= pages.length)) refuse(`sequence ${number} gains ${added} pages`);
      const end = first + fresh;
      if (!(first >= 0 && fresh >= 1 && end <= (kept + added) * PAGE_TOKENS))
        refuse(`sequence ${number} has ${kept + added} pages for ${fresh} tokens from ${first} on`);
      if (end > maxLength) refuse(`sequence ${number} has ${end} tokens, the model ${maxLength}`);
      for (let at = page; at < page + added; at++) this.requirePage(pages[at]!);
      // A draft's features go to the position behind its last one, if there is a page for that.
      const written = isDraft ? Math.min(end + 1, (kept + added) * PAGE_TOKENS) : end;
      for (let at = Math.floor(first / PAGE_TOKENS); at * PAGE_TOKENS < written; at++)
        this.write(at < kept ? path!.pages[at]! : pages[page + at - kept]!, check);
      page += added;
      token += fresh;
      keys += end;
      ends.push(end);
    }
    if (branches !== undefined) {
      const fault = branchFault(branches, ends);
      if (fault !== undefined) refuse(fault);
      branches.page.forEach((each, b) => {
        const end = branches.from[b]! + branches.count[b]!;
        if (end > maxLength) refuse(`branch ${b} has ${end} tokens, the model ${maxLength}`);
        this.requirePage(each);
        this.write(each, check);
        token += branches.count[b]!;
        keys += end;
      });
    }
    this.checkAdapters(message);
    if (page !== pages.length) refuse(`${pages.length} pages, where parts gain ${page}`);
    if (token !== tokens.length) refuse(`${tokens.length} tokens, where parts have ${token}`);
    if (keys > this.shape.keys) refuse(`${keys} keys; a call has ${this.shape.keys} at most`);
    for (const each of row) if (!(each >= 0 && each < token)) refuse(`a row after token ${each} of ${token}`);
    const known = isDraft ? this.keptDrafts : this.kept;
    for (const each of tokens)
      if (each < 0 && known[-1 - each] !== 1) refuse(`a token of row ${-1 - each}, which the step before keeps not`);
    keep.forEach((each, i) => {
      if (each !== 0 && !(each === 1 && i < keptRows)) refuse(`keep ${each} of row ${i}, where ${keptRows} are kept`);
    });
    if (isDraft) this.checkDrafts(message);
    else this.checkStates(message);
    this.checkCopies(message);
  }

  private checkStates(message: StepMessage): void {
    const { states } = this.shape;
    if ((states === undefined) !== (message.states === undefined))
      refuse(`rows of states are ${states === undefined ? 'those of another model' : 'missing'}`);
    const fault = states && stateFault(message, states);
    if (fault !== undefined) refuse(fault);
  }

  /** What only steps have; and a place among features takes one row. */
  private checkDrafts({ row, copies, filters, branches }: StepMessage): void {
    if (this.shape.draft === undefined) refuse('the model has no function that drafts');
    if (copies !== undefined || branches !== undefined || (filters?.topK.length ?? 0) > 0)
      refuse('drafts have neither copies nor branches nor filters');
    if (new Set(row).size !== row.length) refuse('a token of drafts has two rows');
  }

  private checkAdapters({ adapter, isDraft }: StepMessage): void {
    if (adapter === undefined || isDraft === true) return;
    const slots = this.shape.adapters?.slots ?? 0;
    for (const each of adapter) if (!(each >= -1 && each < slots)) refuse(`slot ${each} of ${slots}`);
  }

  private nextCheck(): number {
    if (this.checks === 2 ** 31 - 1) {
      this.written.fill(0);
      this.checks = 0;
    }
    return ++this.checks;
  }

  private checkCopies({ copies }: StepMessage): void {
    if (copies === undefined) return;
    const { from, to, rows } = copies;
    const sources = new Set(from);
    from.forEach((page, i) => {
      this.requirePage(page);
      this.requirePage(to[i]!);
      if (sources.has(to[i]!)) refuse(`page ${to[i]!} is copied, and copied to`);
      if (!(rows[i]! >= 1 && rows[i]! <= PAGE_TOKENS)) refuse(`${rows[i]!} rows of a page are copied`);
    });
    if (new Set(to).size !== to.length) refuse('a page is copied to twice');
  }

  private requirePage(page: number): void {
    if (!(page >= 0 && page < this.pages)) refuse(`page ${page} of ${this.pages}`);
  }

  /** Rows of a call are written in no order. */
  private write(page: number, check: number): void {
    if (this.written[page] === check) refuse(`page ${page} is written twice`);
    this.written[page] = check;
  }
}

function addPages(path: ListedPath, added: Int32Array): void {
  const length = path.pageCount + added.length;
  if (length > path.pages.length) {
    const larger = new Int32Array(Math.max(length, 2 * path.pages.length));
    larger.set(path.pages.subarray(0, path.pageCount));
    path.pages = larger;
  }
  path.pages.set(added, path.pageCount);
  path.pageCount = length;
}
