/**
 * Which tokens of which sequences a call takes. Sequences that run come first, in order of arrival: one new token each,
 * or the next piece of a prompt; then sequences that wait. Where no page is left, the sequence that came last gives its
 * pages back and is computed again later.
 */
import { PAGE_TOKENS, type PagePool } from './pages.js';
import type { Sequence } from './sequence.js';
import { arraysOf, rowsOf, type SequenceChunk, type Step } from './stepArrays.js';

export interface StepLimits {
  /** Most new tokens of a call. */
  readonly tokens: number;
  /** Most keys of a call: the lengths of all paths. */
  readonly keys: number;
  /** Most rows of a call. Default: as many as tokens. */
  readonly rows?: number;
  /** Most new tokens of a call in which a sequence gets its next token, which waits for all. Default: `tokens`. */
  readonly besideTokens?: number;
  /** Rows whose drawn token a call keeps for the next one, which need not wait for the host. Default: none. */
  readonly keptRows?: number;
  /** Calls that keep all stages of a pipeline busy, each with sequences of its own. Default: 1. */
  readonly groups?: number;
  /** Most filtered rows, and entries of their lists. Default: none, and the model takes no filters. */
  readonly filtered?: number;
  readonly entries?: number;
}

/** Calls of fewer tokens than this take the time of reading the weights: dividing them further gains nothing. */
const MIN_SHARE = 512;

export class Scheduler {
  readonly running: Sequence[] = [];
  readonly waiting: Sequence[] = [];
  /** Sequences that gave their pages back because others needed them. */
  preemptions = 0;
  private readonly pool: PagePool;
  private readonly limits: StepLimits;

  constructor(pool: PagePool, limits: StepLimits) {
    this.pool = pool;
    this.limits = limits;
  }

  /** The sequence must fit the pool and a call where it is alone. */
  add(sequence: Sequence): void {
    this.waiting.push(sequence);
  }

  /** The sequence is done, or given up. */
  remove(sequence: Sequence): void {
    sequence.drop(this.pool);
    for (const list of [this.running, this.waiting]) {
      const at = list.indexOf(sequence);
      if (at >= 0) list.splice(at, 1);
    }
  }

  /** The next call; undefined where nothing is left to do. */
  next(): Step | undefined {
    const pieces: SequenceChunk[] = [];
    const isWriting = this.running.some(
      ({ computed, promptLength, pending }) => computed >= promptLength && pending > 0,
    );
    const share = this.share();
    const beside = isWriting ? (this.limits.besideTokens ?? Infinity) : Infinity;
    const budget = Math.min(beside, share.tokens, this.limits.tokens);
    let tokens = 0;
    let keys = 0;
    let rows = 0;
    let writing = 0;
    const { filtered: maxFiltered = 0, entries: maxEntries = 0 } = this.limits;
    let [filtered, entries] = [0, 0];
    /** Pages that this call fills: whoever needs them too waits for them. */
    const filling = new Set<string>();
    const take = (sequence: Sequence): boolean => {
      const isNext = sequence.computed >= sequence.promptLength;
      const most = isNext && writing >= share.sequences ? 0 : Math.min(sequence.pending, budget - tokens);
      const rowsLeft = (this.limits.rows ?? Infinity) - rows;
      const asked = rowsOf(sequence, sequence.computed, sequence.computed + most);
      const count = asked.length <= rowsLeft ? most : asked[rowsLeft]! - sequence.computed;
      const to = sequence.computed + count;
      if (count <= 0 || keys + to > this.limits.keys) return false;
      const isFiltered = sequence.isFiltered && to === sequence.tokens.length;
      const listed = isFiltered ? sequence.entryCount : 0;
      const hasRoom = filtered < maxFiltered && (filtered === 0 || entries + listed <= maxEntries);
      if (isFiltered && !hasRoom) return false;
      if (!this.reserve(sequence, to, pieces)) return false;
      pieces.push({ sequence, from: sequence.computed, to });
      for (let i = Math.floor(sequence.computed / PAGE_TOKENS); (i + 1) * PAGE_TOKENS <= to; i++)
        filling.add(sequence.content(i) ?? '');
      filtered += isFiltered ? 1 : 0;
      entries += listed;
      tokens += count;
      rows += Math.min(asked.length, rowsLeft);
      keys += to;
      if (isNext) writing++;
      return true;
    };
    for (const sequence of [...this.running]) if (this.running.includes(sequence)) take(sequence);
    const preempted = this.preemptions;
    for (const sequence of [...this.waiting]) {
      if (tokens >= budget || this.preemptions > preempted) break;
      if (sequence.awaited > 0) continue;
      sequence.adopt(this.pool);
      const next = sequence.content(Math.floor(sequence.computed / PAGE_TOKENS));
      if ((next !== undefined && filling.has(next)) || !this.mayAdmit(sequence)) {
        sequence.drop(this.pool);
        continue;
      }
      const { computed } = sequence;
      if (!take(sequence)) {
        sequence.drop(this.pool);
        break;
      }
      sequence.found ||= computed;
      this.waiting.splice(this.waiting.indexOf(sequence), 1);
      this.running.push(sequence);
    }
    if (pieces.length === 0) return undefined;
    const step = { pieces, ...arraysOf(pieces, this.limits) };
    // Calls are executed in order, so that a later one may read what this one writes.
    for (const { sequence, to } of pieces) {
      sequence.computed = to;
      sequence.publish(this.pool);
    }
    for (const sequence of askedIn(step)) sequence.awaited++;
    return step;
  }

  /** What a call may take, so that as much is left for the other stages of a pipeline. */
  private share(): { readonly tokens: number; readonly sequences: number } {
    const { groups = 1 } = this.limits;
    if (groups === 1) return { tokens: Infinity, sequences: Infinity };
    const pending = [...this.running, ...this.waiting].reduce((sum, each) => sum + each.pending, 0);
    const writing = this.running.filter(({ computed, promptLength }) => computed >= promptLength).length;
    return {
      tokens: Math.max(MIN_SHARE, Math.ceil(pending / groups)),
      sequences: Math.max(1, Math.ceil(writing / groups)),
    };
  }

  /** The call has begun: the tokens that it draws can be used by the next one, unread. */
  foresee({ asked }: Step): void {
    const { keptRows = 0 } = this.limits;
    asked.forEach(({ sequence, kind }, row) => {
      if (kind === 'next' && row < keptRows && sequence.isForeseen) sequence.foresee(row);
    });
  }

  /** The tokens that were drawn have been read. */
  read(step: Step): void {
    for (const sequence of askedIn(step)) sequence.awaited--;
    for (const { sequence } of step.pieces) if (this.running.includes(sequence)) sequence.publish(this.pool);
  }

  /** The call failed. Calls that were planned after it must have been taken back before. */
  rewind(step: Step): void {
    for (const sequence of askedIn(step)) sequence.awaited--;
    for (const { sequence, from } of step.pieces) sequence.rewind(from);
  }

  /** The memory of the device is lost, or nobody knows what is in it: everything is computed again. */
  reset(): void {
    for (const sequence of this.running.splice(0).reverse()) this.waiting.unshift(sequence);
    for (const sequence of this.waiting) {
      sequence.drop(this.pool);
      sequence.rewind(0);
      sequence.awaited = 0;
    }
    this.pool.clear();
  }

  /** The sequence begins again, as the first of those that wait. */
  restart(sequence: Sequence): void {
    this.remove(sequence);
    sequence.rewind(0);
    this.waiting.unshift(sequence);
  }

  /** Admission: pages for the whole sequence, and for the next token where one will follow. */
  private mayAdmit(sequence: Sequence): boolean {
    const next = sequence.tokens.length < sequence.longest ? 1 : 0;
    const needed = Math.ceil((sequence.pending + next) / PAGE_TOKENS);
    return needed <= this.pool.available;
  }

  /** Pages for the first `length` tokens, taken from the sequence that came last where none is left. */
  private reserve(sequence: Sequence, length: number, pieces: readonly SequenceChunk[]): boolean {
    while (!sequence.reserve(length, this.pool)) {
      const victim = this.running.at(-1);
      if (victim === undefined || victim === sequence || pieces.some((piece) => piece.sequence === victim))
        return false;
      this.running.pop();
      victim.drop(this.pool);
      this.waiting.unshift(victim);
      this.preemptions++;
    }
    return true;
  }
}

/** The sequences that a call will say something about. */
const askedIn = ({ asked }: Step): ReadonlySet<Sequence> => new Set(asked.map(({ sequence }) => sequence));
