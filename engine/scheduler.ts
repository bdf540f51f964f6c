/**
 * Which tokens of which sequences a step takes. Sequences that run come first, by priority and arrival: one new token
 * each, or the next piece of a prompt; then sequences that wait. Where no page is left, a sequence that is paused gives
 * its pages back, else the last that runs, and is computed again later. A step costs time for the sequences that it
 * takes, not for those that wait.
 */
import { defined } from '../system/defined.js';
import { AdapterQueue } from './adapterQueue.js';
import type { DeviceAdapters, StepLimits } from './device.js';
import { type DraftRoom, withDrafts } from './draftPieces.js';
import { NO_DRAFTS } from './draftTree.js';
import { findPages, type FoundPages } from './foundPages.js';
import { PAGE_TOKENS, type PagePool } from './pages.js';
import type { PageCopy, Sequence } from './sequence.js';
import { StateSteps } from './stateSteps.js';
import type { StepDraft } from './stepDraft.js';
import { SequenceQueue } from './sequenceQueue.js';
import { askedIn, rowCount, type Step, stepOf, withinRows } from './stepMessage.js';

/** Steps of fewer tokens than this take the time of reading the weights: dividing them further gains nothing. */
const MIN_SHARE = 512;
/**
 * Texts wait for the prompts beside them. Few prompts are computed in steps of this part of the most tokens, which
 * keeps the time between two tokens short; many in larger ones, whose rate is higher, so that they are through in about
 * so many steps.
 */
const QUICKER = 8;
const CATCH_UP_STEPS = 4;
/** Sequences that wait and do not fit, past which nobody looks for smaller ones. */
const MAX_REFUSED = 16;

/** How much memory the sequences of a model could use, in pages. */
export interface PagePressure {
  /** Those of sequences that run, or keep them while nobody reads what they have. */
  readonly held: number;
  /** Those that keep contents which nobody needs now. */
  readonly idle: number;
  /** Those that sequences need which wait. */
  readonly waiting: number;
  /** Whether the last step left sequences out, or took others' pages, because too few were available. */
  readonly isShort: boolean;
  /** All that have memory. */
  readonly total: number;
}

export class Scheduler {
  readonly running = new SequenceQueue();
  readonly waiting = new SequenceQueue();
  /** Sequences whose readers are behind. They keep their pages while nobody else needs them. */
  readonly paused = new SequenceQueue();
  /** Sequences whose adapter is in no slot. All others that wait can be admitted. */
  readonly adapters: AdapterQueue;
  /** Sequences that gave their pages back because others needed them. */
  preemptions = 0;
  /** Sequences that may need more pages than this begin later. */
  roomPages = Infinity;
  private readonly pool: PagePool;
  private readonly limits: StepLimits;
  /** Rows of recurrent states, if the model has such. */
  private readonly states: StateSteps | undefined;
  private arrivals = 0;
  private steps = 0;
  /** Numbers that the device has given back or will, with the next step; and the next one that was never used. */
  private readonly spare: number[] = [];
  private unused = 0;
  private ended: number[] = [];
  /** Sequences that found no room in the last step for their next token. They come first in the next one. */
  private delayed = new Set<Sequence>();
  /** Whether sequences that wait found pages, but no room in the last step: every other step takes them first. */
  private isCrowded = false;
  /** Pages that a waiting sequence needs at least before any is looked at again; 0: something else has changed. */
  private wanted = 0;
  private isShort = false;
  /** Whether the last step had prompts only, and texts are next. */
  private isTurnOfPrompts = false;

  constructor(pool: PagePool, limits: StepLimits, adapters?: DeviceAdapters) {
    this.pool = pool;
    this.limits = limits;
    this.states = pool.states && new StateSteps(pool, pool.states);
    this.adapters = new AdapterQueue(adapters, this.waiting, (sequence) => this.preempt(sequence));
  }

  get pressure(): PagePressure {
    const { held, idle, total } = this.pool;
    return { held, idle, total, waiting: this.waiting.neededPages, isShort: this.isShort };
  }

  /** The sequence must fit the pool and a step where it is alone. */
  add(sequence: Sequence): void {
    sequence.arrival = ++this.arrivals;
    this.enqueue(sequence);
  }

  private enqueue(sequence: Sequence): void {
    (sequence.isPaused ? this.paused : this.adapters).add(sequence);
    this.wanted = 0;
  }

  /** Sequences can be admitted whose adapter was not there before. */
  noteAdapters(): void {
    this.wanted = 0;
  }

  /** The sequence is done, or given up: the next step may use its pages, since steps are executed in order. */
  remove(sequence: Sequence): void {
    this.drop(sequence);
    for (const queue of [this.running, this.waiting, this.adapters, this.paused]) queue.delete(sequence);
  }

  /** No step takes the sequence before it is resumed. */
  pause(sequence: Sequence): void {
    sequence.isPaused = true;
    if ([this.running, this.waiting, this.adapters].some((queue) => queue.delete(sequence))) this.paused.add(sequence);
  }

  resume(sequence: Sequence): void {
    sequence.isPaused = false;
    if (!this.paused.delete(sequence)) return;
    if (sequence.pages.length === 0) return this.enqueue(sequence);
    this.running.add(sequence);
    this.wanted = 0;
  }

  /** The mask of its next token is there. */
  guide(sequence: Sequence): void {
    if (this.waiting.has(sequence)) this.wanted = 0;
  }

  /** The next step; undefined where there is nothing to do, or nothing can be done before pages come. */
  next(): Step | undefined {
    this.steps++;
    const { preemptions } = this;
    this.isShort = false;
    this.adapters.arrange({ mayPreempt: true });
    for (const sequence of [...this.running]) if (this.states?.isAstray(sequence) === true) this.preempt(sequence);
    this.makeWay();
    const draft = this.draft();
    this.fill(draft);
    if (draft.pieces.length === 0 && draft.only !== undefined) {
      draft.only = undefined;
      this.fill(draft);
    }
    this.isShort ||= this.preemptions > preemptions;
    if (draft.pieces.length === 0) {
      if (this.running.length === 0) this.adapters.arrangeOthers();
      return undefined;
    }
    // What texts need comes first: drafts take what is left.
    this.states?.mark(draft.pieces);
    const room: DraftRoom = { limits: this.limits, pool: this.pool, states: this.states };
    const pieces = draft.pieces.map((piece) => withDrafts(piece, draft, room));
    for (const { sequence } of pieces) sequence.number = this.numberOf(sequence);
    const step = { ...stepOf(pieces, this.ended, draft.copies, this.limits), answers: draft.answers };
    this.adapters.send(step.message);
    this.ended = [];
    for (const { from } of draft.copies) this.pool.release(from);
    for (const { branchPages } of pieces) for (const page of branchPages) this.pool.release(page);
    // Steps are executed in order, so that a later one may read what this one writes.
    for (const { sequence, to } of pieces) {
      const isPrompt = !sequence.isWriting;
      sequence.computed = to;
      // Others may find what was computed of a prompt, and need fewer pages then.
      if (sequence.publish(this.pool) && isPrompt) this.wanted = 0;
      if (isPrompt) sequence.lend(this.pool);
    }
    this.states?.planned(pieces);
    for (const sequence of askedIn(step)) sequence.awaited++;
    return step;
  }

  private fill(draft: StepDraft): void {
    const { delayed, isCrowded } = this;
    const { only } = draft;
    if (only !== 'prompts') this.delayed = new Set();
    this.isCrowded = false;
    if (isCrowded && only !== 'texts') this.admit(draft);
    if (only !== 'prompts')
      for (const sequence of delayed) if (this.running.has(sequence)) this.takeRunning(sequence, draft);
    for (let i = 0; i < this.running.length; i++) {
      const sequence = this.running.at(i)!;
      if (only === undefined || sequence.isWriting === (only === 'texts')) this.takeRunning(sequence, draft);
    }
    if (!isCrowded && only !== 'texts') this.isCrowded = this.admit(draft);
  }

  /** The step has begun: the tokens that it draws can be used by the next one, unread. */
  foresee({ asked }: Step): void {
    const { keptRows = 0 } = this.limits;
    asked.forEach(({ sequence, kind }, row) => {
      if (kind === 'next' && row < keptRows && sequence.isForeseen) sequence.foresee(row);
    });
  }

  /** The tokens that were drawn have been read. */
  read(step: Step): void {
    this.settle(step);
    for (const piece of step.pieces) {
      const { sequence, to, drafts } = piece;
      const isThere = this.isHolding(sequence);
      if (isThere && drafts.tokens.length > 0) sequence.acceptDrafts(to, drafts);
      this.states?.read(piece, isThere);
      if (isThere) sequence.publish(this.pool);
    }
  }

  /** The step failed. Steps that were planned after it must have been taken back before. */
  rewind(step: Step): void {
    this.settle(step);
    for (const piece of step.pieces) {
      this.states?.read(piece, false);
      piece.sequence.rewind(piece.from);
    }
  }

  /** The memory of the device is lost, or nobody knows what is in it: everything is computed again. */
  reset(): void {
    const all = [this.running, this.waiting, this.adapters, this.paused].flatMap((queue) => [...queue]);
    for (const sequence of all) {
      this.remove(sequence);
      sequence.rewind(0);
      sequence.awaited = 0;
    }
    this.adapters.reset();
    for (const sequence of all) this.enqueue(sequence);
    this.pool.clear();
    this.pool.states?.clear();
    this.wanted = 0;
  }

  /** The sequence begins again. */
  restart(sequence: Sequence): void {
    this.remove(sequence);
    sequence.rewind(0);
    this.enqueue(sequence);
  }

  /**
   * There are pages 0 to `pages` − 1 from now on. Sequences that hold others give all of theirs back, and are computed
   * again.
   */
  resize(pages: number): void {
    if (pages < this.pool.total)
      for (const queue of [this.running, this.paused])
        for (const sequence of [...queue]) if (sequence.pages.some((page) => page >= pages)) this.preempt(sequence);
    this.pool.resize(pages);
    this.wanted = 0;
  }

  private isHolding(sequence: Sequence): boolean {
    return this.running.has(sequence) || this.paused.has(sequence);
  }

  private settle(step: Step): void {
    this.adapters.done(step.message);
    for (const sequence of askedIn(step)) if (--sequence.awaited === 0 && this.waiting.has(sequence)) this.wanted = 0;
  }

  private numberOf({ number }: Sequence): number {
    return number >= 0 ? number : (this.spare.pop() ?? this.unused++);
  }

  /** The pages are for others, and the device forgets the sequence. */
  private drop(sequence: Sequence): void {
    if (sequence.pages.length > 0) sequence.lend(this.pool);
    this.states?.leave(sequence);
    sequence.drop(this.pool);
    this.adapters.end(sequence);
    if (sequence.number < 0) return;
    this.ended.push(sequence.number);
    this.spare.push(sequence.number);
    sequence.number = -1;
    sequence.knownPages = 0;
  }

  /** An empty step, and how much it may take so that as much is left for the other stages of a pipeline. */
  private draft(): StepDraft {
    const { groups = 1, besideTokens = Infinity, tokens, takesPromptsApart = false } = this.limits;
    let [writing, pending, next] = [0, 0, 0];
    for (const sequence of this.running) {
      pending += sequence.pending;
      if (!sequence.isWriting) continue;
      writing++;
      next += sequence.pending;
    }
    const prompts = pending - next + this.waiting.pending;
    const few = Math.max(Math.ceil(besideTokens / QUICKER), Math.ceil(prompts / CATCH_UP_STEPS));
    const isApart = takesPromptsApart && groups === 1 && next > 0 && prompts > 0 && next + few < besideTokens;
    this.isTurnOfPrompts = isApart && !this.isTurnOfPrompts;
    const beside = this.isTurnOfPrompts ? few : next + few;
    const share = groups === 1 ? Infinity : Math.max(MIN_SHARE, Math.ceil((pending + this.waiting.pending) / groups));
    return {
      pieces: [],
      budget: Math.min(next > 0 ? Math.min(besideTokens, beside) : Infinity, share, tokens),
      only: isApart ? (this.isTurnOfPrompts ? 'prompts' : 'texts') : undefined,
      most: groups === 1 ? Infinity : Math.max(1, Math.ceil(writing / groups)),
      ...{ tokens: 0, keys: 0, rows: 0, filtered: 0, entries: 0, writing: 0 },
      filling: new Map(),
      begun: new Map(),
      copies: [],
      answers: [],
    };
  }

  private takeRunning(sequence: Sequence, draft: StepDraft): void {
    if (sequence.lastStep === this.steps || sequence.pending === 0) return;
    if (!this.take(sequence, draft) && sequence.isWriting && draft.writing < draft.most) this.delayed.add(sequence);
  }

  /** Returns false where the step has no room for it, or no page is left. */
  private take(sequence: Sequence, draft: StepDraft): boolean {
    const { isWriting, computed } = sequence;
    const { rows: maxRows = Infinity, keys: maxKeys, filtered: maxFiltered = 0, entries: maxEntries = 0 } = this.limits;
    const most = isWriting && draft.writing >= draft.most ? 0 : Math.min(sequence.pending, draft.budget - draft.tokens);
    const to = withinRows(sequence, computed, computed + most, maxRows - draft.rows, maxFiltered - draft.filtered);
    if (to <= computed || draft.keys + to > maxKeys) return false;
    const count = rowCount(sequence, computed, to);
    const listed = sequence.isDrawing && to === sequence.tokens.length ? sequence.entryCount() : 0;
    if (listed > 0 && draft.filtered > 0 && draft.entries + listed > maxEntries) return false;
    if (!this.reserve(sequence, to)) return false;
    sequence.lastStep = this.steps;
    const rows = this.states?.take(sequence);
    draft.pieces.push({ sequence, from: computed, to, drafts: NO_DRAFTS, branchPages: [], rows });
    for (let i = Math.floor(computed / PAGE_TOKENS); i * PAGE_TOKENS < to; i++) {
      const content = (i + 1) * PAGE_TOKENS <= to ? sequence.content(i) : undefined;
      if (content !== undefined) draft.filling.set(content, sequence);
      const begun = sequence.tokens.slice(i * PAGE_TOKENS, Math.min((i + 1) * PAGE_TOKENS, to));
      if (!isWriting) addTo(draft.begun, sequence.content(i - 1) ?? '', begun);
    }
    draft.filtered += count.filtered;
    draft.entries += listed;
    draft.tokens += to - computed;
    draft.rows += count.rows;
    draft.keys += to;
    if (isWriting) draft.writing++;
    return true;
  }

  /** Takes sequences that wait, as far as there are pages for all their tokens. Returns whether one had no room. */
  private admit(draft: StepDraft): boolean {
    if (this.wanted > this.pool.available) {
      this.isShort = this.waiting.length > 0;
      return false;
    }
    let hasFailed = false;
    let wanted = Infinity;
    let refused = 0;
    for (let i = 0; i < this.waiting.length && refused < MAX_REFUSED;) {
      // What is looked at may be admitted by the next step.
      if (draft.tokens >= draft.budget) {
        this.wanted = 0;
        return hasFailed;
      }
      const sequence = this.waiting.at(i)!;
      if (sequence.awaited > 0 || sequence.isThinking) {
        i++;
        continue;
      }
      const found = findPages(sequence, this.pool);
      const isFilling = this.states?.waits(sequence, found, draft.filling) ?? this.isFilling(draft, sequence, found);
      const hasRow = isFilling || this.freeRow();
      const needed = found.missing;
      if (isFilling || !hasRow || sequence.mostPages > this.roomPages || !this.free(needed)) {
        this.isShort ||= !isFilling && hasRow;
        wanted = Math.min(wanted, isFilling || !hasRow ? 0 : needed);
        refused++;
        i++;
        if (hasRow) continue;
        break;
      }
      const adopted = this.adopt(sequence, found);
      const { computed } = sequence;
      if (adopted === undefined || !this.take(sequence, draft)) {
        hasFailed = true;
        this.isShort ||= adopted === undefined;
        sequence.drop(this.pool);
        if (adopted?.copy !== undefined) this.pool.release(adopted.copy.from);
        wanted = 0;
        refused++;
        i++;
        continue;
      }
      if (adopted.copy !== undefined) draft.copies.push(adopted.copy);
      if (found.facts.length > 0) {
        const facts = sequence.answersOf(found.facts, computed);
        draft.answers.push({ sequence, facts, ownFrom: adopted.pages * PAGE_TOKENS });
      }
      sequence.found ||= computed;
      this.adapters.begin(sequence);
      this.waiting.delete(sequence);
      this.running.add(sequence);
    }
    this.wanted = wanted;
    return hasFailed;
  }

  /**
   * The sequence has the pages that were found. Where states are behind rows that there is no page to copy to, it has
   * those of an earlier place; undefined: there are too few pages for that.
   */
  private adopt(
    sequence: Sequence,
    found: FoundPages,
  ): { readonly copy?: PageCopy; readonly pages: number } | undefined {
    const copy = sequence.adopt(found, this.pool);
    if (this.states === undefined || copy !== undefined || found.stem === undefined) {
      this.states?.begin(sequence, found);
      return { ...defined({ copy }), pages: found.pages };
    }
    sequence.drop(this.pool);
    const whole = findPages(sequence, this.pool, false);
    if (whole.missing > this.pool.available) return undefined;
    sequence.adopt(whole, this.pool);
    this.states.begin(sequence, whole);
    return { pages: whole.pages };
  }

  /** Whether this step computes what the sequence can share with others: all that it would find of its next page. */
  private isFilling(draft: StepDraft, sequence: Sequence, { pages, before, rest, stem }: FoundPages): boolean {
    const next = rest.length === PAGE_TOKENS ? sequence.content(pages) : undefined;
    if (next !== undefined && draft.filling.has(next)) return true;
    const isAlike = (tokens: readonly number[]): boolean => rest.every((token, i) => token === tokens[i]);
    return rest.length > 0 && (draft.begun.get(before ?? '') ?? []).some(isAlike) && rest.length > (stem?.rows ?? 0);
  }

  /** Where the first that waits comes before some that run by its priority, those give way. */
  private makeWay(): void {
    const { first } = this.waiting;
    const isLater = (last: Sequence | undefined): boolean => last !== undefined && last.priority > first!.priority;
    if (first === undefined || first.awaited > 0 || first.isThinking || !isLater(this.running.last)) return;
    let later = 0;
    for (const { priority, pages } of this.running) if (priority > first.priority) later += pages.length;
    const { missing: needed } = findPages(first, this.pool);
    if (needed > this.pool.available + later) return;
    while (!(this.free(needed) && this.freeRow()) && isLater(this.running.last)) this.preempt(this.running.last!);
  }

  /** Pages for the first `length` tokens, taken from others where none is left. */
  private reserve(sequence: Sequence, length: number): boolean {
    while (!sequence.reserve(length, this.pool)) {
      const { last } = this.running;
      if (this.preemptPaused()) continue;
      if (last === undefined || last === sequence || last.lastStep === this.steps) return false;
      this.preempt(last);
    }
    return true;
  }

  /** Whether so many pages are available, if need be those of sequences that are paused. */
  private free(pages: number): boolean {
    while (pages > this.pool.available) if (!this.preemptPaused()) return false;
    return true;
  }

  /** Whether there is a row of states for one more sequence, if need be that of one that is paused. */
  private freeRow(): boolean {
    while (this.states?.hasRow === false) if (!this.preemptPaused()) return false;
    return true;
  }

  /** Takes the pages of the last that is paused and has some. Returns false where none has. */
  private preemptPaused(): boolean {
    for (let i = this.paused.length - 1; i >= 0; i--) {
      const sequence = this.paused.at(i)!;
      if (sequence.pages.length === 0) continue;
      this.preempt(sequence);
      return true;
    }
    return false;
  }

  /** The sequence gives its pages back, and is computed again. */
  private preempt(sequence: Sequence): void {
    this.drop(sequence);
    sequence.wasPreempted = true;
    this.preemptions++;
    this.wanted = 0;
    if (this.running.delete(sequence)) this.enqueue(sequence);
  }
}

function addTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}
