/** The memory of one replica for keys and values, as the budget of its device sees it, and its loop uses it. */
import { UserError } from '../errors.js';
import { type DeviceModel, StateLost } from './device.js';
import type { MemoryUse, MemoryUser } from './memory.js';
import { PAGE_TOKENS, PagePool } from './pages.js';
import { Scheduler } from './scheduler.js';
import type { Sequence } from './sequence.js';
import { StatePool } from './states.js';
import type { StepTimes } from './stepTimes.js';

/** What a model has room for on one replica: for whoever decides how much to begin. */
export interface MemoryRoom {
  /** Tokens that it may ever have pages for. */
  readonly tokens: number;
  /** Bytes of a token's keys and values; 0 where that is not known. */
  readonly tokenBytes: number;
  /** Bytes that the models of its device have in all; undefined where it shares with none. */
  readonly deviceBytes: number | undefined;
  /** Somebody who asks both models of a device again and again needs so many tokens of this one; 0: nobody does. */
  keep(tokens: number): void;
}

export class ReplicaMemory implements MemoryUser {
  readonly name: string;
  readonly pool: PagePool;
  readonly scheduler: Scheduler;
  leastPages = 1;
  acceptedPages = 1;
  keptPages = 0;
  private readonly model: DeviceModel;
  private readonly times: StepTimes;
  private readonly wake: () => void;
  private resized: Promise<unknown> = Promise.resolve();

  /** `name`: for messages. `wake`: there may be more pages. Throws UserError where the device has no memory for it. */
  constructor(model: DeviceModel, name: string, times: StepTimes, wake: () => void) {
    this.name = name;
    this.model = model;
    this.times = times;
    this.wake = wake;
    const { states = 0 } = model.limits;
    const rows = states > 0 ? new StatePool(states) : undefined;
    this.pool = new PagePool(model.maxPages, model.mappedPages, rows);
    this.scheduler = new Scheduler(this.pool, model.limits, model.adapters);
    model.budget?.add(this);
  }

  get maxPages(): number {
    return this.model.maxPages;
  }

  get piecePages(): number {
    return this.model.piecePages;
  }

  get pieceBytes(): number {
    return this.model.pieceBytes;
  }

  /** Pages that its sequences may ever have. */
  private get mostPages(): number {
    return this.model.budget?.roomFor(this) ?? this.model.maxPages;
  }

  get room(): MemoryRoom {
    const { pieceBytes, piecePages, budget } = this.model;
    return {
      tokens: this.mostPages * PAGE_TOKENS,
      tokenBytes: pieceBytes / (piecePages * PAGE_TOKENS),
      deviceBytes: budget?.bytes,
      keep: (tokens) => void (this.keptPages = Math.ceil(tokens / PAGE_TOKENS)),
    };
  }

  use(): MemoryUse {
    const { held, idle, total, waiting, isShort } = this.scheduler.pressure;
    const { found, lost, lostDistance } = this.pool;
    return {
      ...{ pages: total, held, idle, wanted: waiting, isShort },
      ...{ steps: this.times.steps, cost: this.times.cost },
      ...{ foundPages: found, lostPages: lost, lostDistance },
    };
  }

  /** Its state may have changed: the budget decides whether memory moves. */
  report(): void {
    this.model.budget?.report(this);
  }

  /** The model is closed: others may have its memory. */
  leave(): void {
    this.model.budget?.remove(this);
  }

  accept({ mostPages }: Sequence): void {
    this.acceptedPages = Math.max(this.acceptedPages, mostPages);
  }

  /** One that was accepted is over; others are `left`. */
  forget({ mostPages }: Sequence, left: Iterable<Sequence>): void {
    if (mostPages < this.acceptedPages) return;
    this.acceptedPages = 1;
    for (const each of left) this.accept(each);
  }

  /** A step is about to be planned: longer sequences than there is room for now begin later. */
  beforeStep(): void {
    const { budget } = this.model;
    if (budget !== undefined) this.scheduler.roomPages = budget.roomNow(this);
  }

  /** A step was planned: what the budget must leave it, beside what others need. */
  afterStep(): void {
    if (this.model.budget === undefined) return;
    const { running, paused, waiting, roomPages } = this.scheduler;
    let least = 1;
    for (const queue of [running, paused])
      for (const { pages, mostPages } of queue) if (pages.length > 0) least = Math.max(least, mostPages);
    const { first } = waiting;
    if (first !== undefined && first.mostPages <= roomPages) least = Math.max(least, first.mostPages);
    this.leastPages = least;
  }

  /**
   * Why a sequence that no step takes will never be taken; undefined where it waits for pages that may come, as one
   * waits that thinks.
   */
  hopelessness(sequence: Sequence): Error | undefined {
    if (sequence.isThinking) return undefined;
    const { mostPages: pages } = this;
    const { roomPages } = this.scheduler;
    if (this.model.budget !== undefined && sequence.mostPages > pages) return tooLittleMemory(pages);
    return this.pool.total >= Math.min(pages, roomPages) && sequence.mostPages <= roomPages
      ? new Error('The scheduler has left a sequence behind.')
      : undefined;
  }

  /**
   * Has memory behind this many pages, or as many as there are addresses for. Sequences that hold others are computed
   * again. Resolves with the number of pages, which is smaller where memory ran out.
   */
  resize(pages: number): Promise<number> {
    return this.inTurn(async () => {
      const wanted = Math.min(pages, this.model.maxPages);
      if (wanted < this.pool.total) this.scheduler.resize(wanted);
      const mapped = await this.model.resize(wanted);
      this.scheduler.resize(mapped);
      this.wake();
      return mapped;
    });
  }

  /** Another device has memory behind as many pages as the last one had. False where it is gone already. */
  async restore(): Promise<boolean> {
    try {
      await this.inTurn(async () => {
        const { total } = this.pool;
        if (total !== this.model.mappedPages) this.scheduler.resize(await this.model.resize(total));
      });
      return true;
    } catch (error) {
      if (error instanceof StateLost) return false;
      throw error;
    }
  }

  private inTurn<T>(change: () => Promise<T>): Promise<T> {
    const changed = this.resized.then(change);
    this.resized = changed.catch(() => undefined);
    return changed;
  }
}

const tooLittleMemory = (pages: number): UserError =>
  new UserError(
    `There is no memory any more for a text of this length: ${pages * PAGE_TOKENS} tokens fit beside other models`,
    'ask for a shorter text, or unload a model',
  );
