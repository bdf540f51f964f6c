/**
 * Continues sequences of tokens, many at a time. Each call of the function `step` takes what the scheduler gives it:
 * pieces of prompts beside single tokens of sequences that generate. What a sequence gets does not depend on the
 * others. Where the device keeps what it draws, a call is planned and begun while the one before it runs. A pipeline
 * has a call for each of its stages, with different sequences.
 */
import { PAGE_TOKENS, PagePool } from './pages.js';
import type { EndReason, Generated, GeneratedToken, GenerateRequest } from './request.js';
import { runTask, type Task, type TaskOwner } from './task.js';
import { type FilteredOutputs, Scheduler, StateLost, type Step, type StepOutputs, type Stepper } from './scheduler.js';
import type { Sequence } from './sequence.js';

export interface GeneratorCounts {
  readonly calls: number;
  /** Tokens that calls computed, those of recomputed sequences included. */
  readonly computedTokens: number;
  /** Tokens of prompts that were found in pages. */
  readonly foundTokens: number;
  readonly preemptions: number;
  readonly evictions: number;
  /** Most pages that were held at a time, and all pages. */
  readonly peakPages: number;
  readonly pages: number;
}

/** A call on its way. */
interface Flight {
  readonly step: Step;
  readonly answer: Promise<StepOutputs | Error>;
}

/** Tries to have tasks done by another device. Returns those that it cannot place. */
export type Rescue = (tasks: readonly Task[]) => readonly Task[];

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));

export class Generator implements TaskOwner {
  readonly stepper: Stepper;
  /** Why the device will not come back. */
  gone: Error | undefined;
  /** Whether the device is there. */
  isReady = true;
  private readonly pool: PagePool;
  private readonly scheduler: Scheduler;
  private readonly rescue: Rescue;
  private readonly tasks = new Map<Sequence, Task>();
  /** Tasks that end before the next call. */
  private readonly stopping = new Set<Task>();
  private loop: Promise<void> | undefined;
  private calls = 0;
  private computedTokens = 0;
  private foundTokens = 0;
  private peakPages = 0;

  constructor(stepper: Stepper, rescue: Rescue = (tasks) => tasks) {
    this.stepper = stepper;
    this.rescue = rescue;
    this.pool = new PagePool(Math.floor(stepper.cacheTokens / PAGE_TOKENS));
    this.scheduler = new Scheduler(this.pool, stepper.limits);
  }

  get counts(): GeneratorCounts {
    const { calls, computedTokens, peakPages } = this;
    const foundTokens = [...this.tasks.keys()].reduce((sum, { found }) => sum + found, this.foundTokens);
    const { preemptions } = this.scheduler;
    const { evictions, total } = this.pool;
    return { calls, computedTokens, foundTokens, preemptions, evictions, peakPages, pages: total };
  }

  /** Longest context of the model, in tokens. */
  get maxLength(): number {
    return this.stepper.maxLength;
  }

  /** Tokens of its vocabulary, if it chooses tokens from whole rows of logits. */
  get vocab(): number | undefined {
    return this.stepper.vocab;
  }

  /** Classes of its head, if that is none of a vocabulary. */
  get classes(): number | undefined {
    return this.stepper.classes;
  }

  /** Longest sequence that the pages and a call have room for, in tokens. */
  get room(): number {
    return Math.min(this.pool.total * PAGE_TOKENS, this.stepper.limits.keys);
  }

  /** Tokens that are left to compute, at most. */
  get workTokens(): number {
    return [...this.tasks.values()].reduce((sum, task) => sum + task.workTokens, 0);
  }

  /** Whether a page has this content. */
  hasPage(content: string): boolean {
    return this.stepper.isLost?.() !== true && this.pool.has(content);
  }

  /** Continues a prompt; rejects as sequenceOf throws, and where a step computes no finite number for it. */
  generate(request: GenerateRequest): Promise<Generated> {
    return runTask(request, this, (task) => this.start(task));
  }

  start(task: Task): void {
    if (task.stopped !== undefined) return task.end(task.stopped);
    if (this.gone !== undefined) return task.fail(this.gone);
    task.owner = this;
    this.tasks.set(task.sequence, task);
    this.scheduler.add(task.sequence);
    this.wake();
  }

  wake(): void {
    if (this.tasks.size > 0) this.loop ??= this.run();
  }

  stop(task: Task): void {
    if (task.sequence.awaited > 0) this.stopping.add(task);
    else if (this.tasks.has(task.sequence)) this.end(task, task.stopped!);
  }

  /** Settles when no call is on its way and none will begin without a new task. */
  get idle(): Promise<void> {
    return this.loop ?? Promise.resolve();
  }

  /** Sequences that have no pages yet, or none any more. */
  get waiting(): number {
    return this.scheduler.waiting.length;
  }

  /** Gives up the tasks that have not begun, for another device to do. */
  takeWaiting(): readonly Task[] {
    const waiting = this.scheduler.waiting.filter(
      ({ tokens, promptLength, awaited }) => tokens.length === promptLength && awaited === 0,
    );
    return waiting.map((sequence) => this.forget(sequence)!);
  }

  private forget(sequence: Sequence): Task | undefined {
    const task = this.tasks.get(sequence);
    this.scheduler.remove(sequence);
    this.tasks.delete(sequence);
    if (task !== undefined) this.stopping.delete(task);
    return task;
  }

  private async run(): Promise<void> {
    // Requests that are made together start together.
    await Promise.resolve();
    try {
      let flights: Flight[] = [];
      for (;;) {
        while (flights.length === 0 || this.mayLookAhead(flights)) {
          const flight = this.begin();
          if (flight === undefined) break;
          flights.push(flight);
        }
        const [first, ...later] = flights;
        if (first === undefined) return this.requireNothingLeft();
        flights = (await this.land(first, later)) ? later : [];
      }
    } finally {
      this.loop = undefined;
    }
  }

  /** A sequence that no call ever takes would hang whoever waits for it. Those that pause wake the loop again. */
  private requireNothingLeft(): void {
    const left = [...this.tasks.values()].filter(({ sequence }) => !sequence.isPaused);
    for (const task of left) this.forget(task.sequence)?.fail(new Error('The scheduler has left a sequence behind.'));
  }

  /**
   * Whether a call can be planned before these are read. It takes tokens that they draw; in a pipeline, it takes other
   * sequences.
   */
  private mayLookAhead(flights: readonly Flight[]): boolean {
    const { keptRows = 0, groups = 1 } = this.stepper.limits;
    if (flights.length >= Math.max(groups, keptRows > 0 ? 2 : 1)) return false;
    return flights.every(({ step }) => step.pieces.every(({ sequence }) => !sequence.isAlone));
  }

  /** Plans a call, without sequences that are no longer wanted, and begins it. */
  private begin(): Flight | undefined {
    for (const task of this.stopping) this.end(task, task.stopped!);
    const step = this.scheduler.next();
    if (step === undefined) return undefined;
    this.peakPages = Math.max(this.peakPages, this.pool.held);
    this.calls++;
    this.computedTokens += step.inputs.tokens.length;
    const answer = this.stepper.step(step.inputs).catch(asError);
    this.scheduler.foresee(step);
    return { step, answer };
  }

  /** Waits for a call and uses what it returned. Returns whether those begun after it are of use. */
  private async land({ step, answer }: Flight, later: readonly Flight[]): Promise<boolean> {
    const outputs = await answer;
    if (!(outputs instanceof Error)) {
      this.use(step, outputs);
      return true;
    }
    // What was begun meanwhile took tokens of this call, which are not known.
    await Promise.all(later.map((each) => each.answer));
    for (const each of later.toReversed()) this.scheduler.rewind(each.step);
    const { rows } = outputs as { readonly rows?: readonly number[] };
    if (outputs instanceof StateLost) await this.recover(step, outputs);
    else if (rows === undefined) {
      for (const { sequence } of step.pieces) this.forget(sequence)?.fail(outputs);
      this.scheduler.reset();
    } else {
      this.scheduler.rewind(step);
      this.giveUp(step, rows, outputs, later.length > 0);
    }
    return false;
  }

  /** What a call returned goes to the sequences that asked. */
  private use(step: Step, outputs: StepOutputs): void {
    const { logProb, isArgmax, nextToken, nextTokenLogProb, filtered, classLogits: logits } = outputs;
    const { classes = 0 } = this.stepper;
    const ended: (readonly [Task, EndReason])[] = [];
    step.asked.forEach(({ sequence, kind, at }, row) => {
      const task = this.tasks.get(sequence);
      if (task === undefined) return;
      const classLogits = logits?.slice(row * classes, (row + 1) * classes);
      const drawn = { token: nextToken[row]!, logProb: nextTokenLogProb[row]! };
      if (kind === 'score') {
        task.score({
          logProb: logProb[row]!,
          isArgmax: isArgmax[row] === 1,
          argmax: drawn.token,
          argmaxLogProb: drawn.logProb,
          classLogits,
        });
        return;
      }
      const token: GeneratedToken =
        filtered !== undefined && row < filtered.token.length ? chosenOf(filtered, row, sequence.topCount) : drawn;
      if (task.request.maxNewTokens > 0) sequence.read(at, token.token);
      const reason = task.take(token, this, classLogits);
      if (reason !== undefined) ended.push([task, reason]);
    });
    // Rows of a sequence need not be in order.
    for (const [task, reason] of ended) this.end(task, reason);
    this.scheduler.read(step);
  }

  private end(task: Task, reason: EndReason): void {
    this.forget(task.sequence);
    this.foundTokens += task.sequence.found;
    task.end(reason);
  }

  /**
   * The sequences of `rows` failed. Where another call was begun meanwhile, the layer could not be found: the sequence
   * is then computed once more, by itself and with nothing begun after it.
   */
  private giveUp(step: Step, rows: readonly number[], error: Error, wasAhead: boolean): void {
    const failed = new Set(rows.flatMap((row) => step.asked[row]?.sequence ?? []));
    for (const { sequence, from } of step.pieces) {
      if (!failed.has(sequence) || !this.tasks.has(sequence)) continue;
      sequence.withdraw(from, this.pool);
      if (wasAhead && !('where' in error && error.where !== undefined)) {
        sequence.isAlone = true;
        this.scheduler.restart(sequence);
      } else this.forget(sequence)!.fail(error);
    }
  }

  /** The device is gone, and what it knew. Others take the tasks over, or they wait for the next device. */
  private async recover(step: Step, error: StateLost): Promise<void> {
    this.isReady = false;
    this.scheduler.reset();
    for (const task of this.stopping) this.end(task, task.stopped!);
    if (error.wasAsked)
      for (const { sequence } of step.pieces)
        if (this.tasks.get(sequence)?.survive(error) === false) this.forget(sequence);
    this.handOver();
    try {
      if (this.stepper.recovered === undefined) throw error;
      await this.stepper.recovered();
      this.isReady = true;
    } catch (reason) {
      this.gone = asError(reason);
      for (const task of this.handOver()) this.forget(task.sequence)?.fail(this.gone);
    }
  }

  /** Returns the tasks that nobody else can do. */
  private handOver(): readonly Task[] {
    const tasks = this.scheduler.waiting.map((sequence) => this.tasks.get(sequence)!);
    const left = new Set(this.rescue(tasks));
    for (const task of tasks) if (!left.has(task)) this.forget(task.sequence);
    return [...left];
  }
}

/** What a filtered row was given, and its most likely tokens. */
function chosenOf(outputs: FilteredOutputs, row: number, topCount: number): GeneratedToken {
  const { token, logProb, topTokens, topLogProbs } = outputs;
  const first = (row * topTokens.length) / token.length;
  const top = Array.from({ length: topCount }, (_, i) => ({
    token: topTokens[first + i]!,
    logProb: topLogProbs[first + i]!,
  }));
  return { token: token[row]!, logProb: logProb[row]!, top };
}
