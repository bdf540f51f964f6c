/**
 * Which rows of states a step reads and writes. A sequence that runs has a row, with the states behind all that is
 * computed of it: each part goes on from its row and writes it. Snapshots are further rows that the same step writes,
 * where another text may go on; a sequence that ends, or gives its pages back, leaves its row as one.
 */
import { cutTree, type DraftTree } from './draftTree.js';
import type { FoundPages } from './foundPages.js';
import { PAGE_TOKENS, type PagePool } from './pages.js';
import type { Sequence } from './sequence.js';
import type { StatePlace, StatePool } from './states.js';

/** The rows of a part that computes the tokens [from, to) of its sequence, and a chain of drafts. */
export interface PartRows {
  /** The states behind the first `from` tokens; −1: zeros. */
  readonly from: number;
  /** Gets those behind the first `to`. */
  own: number;
  /** Get those behind the first `at`, ascending. */
  readonly snapshots: { readonly at: number; readonly row: number }[];
  /** Get those behind each draft of the chain. */
  readonly drafts: number[];
}

/** What a part needs of its piece. */
interface Part {
  readonly sequence: Sequence;
  readonly from: number;
  readonly to: number;
  readonly rows?: PartRows | undefined;
}

/** Whether nobody has the row any more that the part goes on from, once the step has read it. */
const isOver = ({ from, own }: PartRows, { branches }: DraftTree): boolean => from === own && branches.length > 0;

export class StateSteps {
  private readonly pool: PagePool;
  private readonly states: StatePool;

  constructor(pool: PagePool, states: StatePool) {
    this.pool = pool;
    this.states = states;
  }

  /** Whether one more sequence can have a row. */
  get hasRow(): boolean {
    return this.states.available > 0;
  }

  /** The sequence has the pages that were found. It will leave snapshots where others may part from it. */
  begin({ state, tokens, computed }: Sequence, { known, state: row = -1 }: FoundPages): void {
    if (row < 0 !== (computed === 0)) throw new Error(`No states behind ${computed} tokens.`);
    state.start = row;
    const border = PAGE_TOKENS * Math.floor((tokens.length - 1) / PAGE_TOKENS);
    state.marks = [...new Set([PAGE_TOKENS * known, border])]
      .filter((at) => at > computed && at <= border)
      .sort((a, b) => a - b);
  }

  /**
   * Whether the sequence waits for states that a part of this step comes by, or soon will: those behind all tokens
   * that both begin with, which are more than were found. `filling`: who computes pages of which contents.
   */
  waits(sequence: Sequence, { at, limit }: FoundPages, filling: ReadonlyMap<string, Sequence>): boolean {
    if (filling.size === 0) return false;
    for (let i = Math.floor(at / PAGE_TOKENS); (i + 1) * PAGE_TOKENS <= limit; i++) {
      const content = sequence.content(i);
      const other = content === undefined ? undefined : filling.get(content);
      if (other !== undefined) return this.ask(other, sequence, at, limit);
      if (content === undefined || !this.pool.has(content)) return false;
    }
    return false;
  }

  /** Has `other` leave a snapshot where `sequence` parts from it, if that is behind its first `at` tokens. */
  private ask(other: Sequence, { tokens }: Sequence, at: number, limit: number): boolean {
    let common = 0;
    while (common < limit && tokens[common] === other.tokens[common]) common++;
    // Those that part nearly there share the one at the border before.
    const mark = common === limit ? limit : common - (common % PAGE_TOKENS);
    if (mark <= at || mark <= other.computed) return false;
    const { state } = other;
    if (!state.marks.includes(mark)) state.marks = [...state.marks, mark].sort((a, b) => a - b);
    return true;
  }

  /** A step takes the next tokens of a sequence, whose pages are there, and a row too (`hasRow`). */
  take({ state, computed }: Sequence): PartRows {
    const { states } = this;
    const isFirst = state.row < 0;
    const from = isFirst ? state.start : state.row;
    if (isFirst) {
      const fresh = states.take(from);
      // The last row that can be had may be the one that it goes on from.
      if (fresh === undefined) states.claim(from);
      [state.row, state.at, state.start] = [fresh ?? from, computed, -1];
    }
    if (from >= 0) states.read(from);
    return { from, own: state.row, snapshots: [], drafts: [] };
  }

  /** All parts of a step are known: rows for the snapshots that they come by, as far as there are any. */
  mark(parts: readonly Part[]): void {
    for (const { sequence, from, to, rows } of parts) {
      const { state } = sequence;
      for (const at of state.marks) {
        const row = at > from && at <= to ? this.states.take() : undefined;
        if (row !== undefined) rows!.snapshots.push({ at, row });
      }
      state.marks = state.marks.filter((at) => at > to);
    }
  }

  /** As much of a tree as there are rows for, one behind each token that may be the last accepted one. */
  cut({ rows }: Part, tree: DraftTree): DraftTree {
    const most = this.states.availableForDrafts;
    return tree.chain + (isOver(rows!, tree) ? 1 : 0) <= most ? tree : cutTree(tree, most, 0);
  }

  /**
   * Rows for the drafts of a part. The last of a chain may have the one that the part goes on from; where branches
   * leave it, that one stays as it is until the step is over.
   */
  draft({ sequence, rows }: Part, drafts: DraftTree): void {
    const { from, own } = rows!;
    const isLast = from === own && !isOver(rows!, drafts);
    const fresh = Array.from({ length: drafts.chain + (isOver(rows!, drafts) ? 1 : 0) }, () => this.states.take()!);
    if (from === own) sequence.state.row = rows!.own = fresh.shift()!;
    rows!.drafts.push(...fresh);
    if (isLast) rows!.drafts.push(own);
    else if (from === own) this.states.release(own);
  }

  /** The step is planned, and its parts have computed what they take: others find its snapshots from now on. */
  planned(parts: readonly Part[]): void {
    this.states.planned();
    for (const { sequence, to, rows } of parts) {
      sequence.state.at = to;
      for (const { at, row } of rows!.snapshots) this.keep(sequence, at, row);
    }
  }

  /** The step is read. `isThere`: its sequence has its pages yet, and the drafts that it has accepted. */
  read({ sequence, to, rows }: Part, isThere: boolean): void {
    const { state, computed } = sequence;
    const accepted =
      isThere && state.row === rows!.own && state.at === to ? rows!.drafts[computed - to - 1] : undefined;
    if (accepted !== undefined) {
      this.states.release(state.row);
      [state.row, state.at] = [accepted, computed];
    }
    for (const row of rows!.drafts.splice(0)) if (row !== accepted) this.states.release(row);
  }

  /** Whether its row has seen other tokens than are computed: a step that has failed may have written it. */
  isAstray({ state, computed }: Sequence): boolean {
    return state.row >= 0 && state.at !== computed;
  }

  /** The sequence gives its pages back. Its row becomes a snapshot, if it is known what is behind it. */
  leave(sequence: Sequence): void {
    const { state } = sequence;
    const { row, at } = state;
    [state.row, state.at, state.start, state.marks] = [-1, 0, -1, []];
    if (row < 0) return;
    if (sequence.isAlone) this.states.release(row);
    else this.keep(sequence, at, row);
  }

  private keep(sequence: Sequence, at: number, row: number): void {
    const place = this.placeOf(sequence, at);
    if (place === undefined) this.states.release(row);
    else this.states.keep(row, place);
  }

  /** Where others find what is behind its first `at` tokens; undefined: they do not. */
  private placeOf(sequence: Sequence, at: number): StatePlace | undefined {
    const { pool } = this;
    // A row may be astray.
    if (at === 0 || at > sequence.known) return undefined;
    const index = Math.ceil(at / PAGE_TOKENS) - 1;
    const rows = at - index * PAGE_TOKENS;
    const content = sequence.content(index);
    const full = content === undefined ? undefined : pool.pageOf(content);
    if (full !== undefined) return { page: full, rows };
    const page = sequence.pages[index];
    return page === undefined || rows === PAGE_TOKENS || pool.lentRows(page) < rows ? undefined : { page, rows };
  }
}
