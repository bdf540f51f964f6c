/**
 * Continues sequences of tokens, many at a time, on one replica of a model. Each step takes what the scheduler gives
 * it: pieces of prompts beside single tokens of sequences that generate. What a sequence gets does not depend on the
 * others. Where the device keeps what it draws, a step is planned and begun while the one before it runs. A pipeline
 * has a step for each of its stages, with different sequences. The loop waits for the device and for nobody else.
 */
import type { AdapterQueue } from './adapterQueue.js';
import { chosenOf, drawnOf, isOfText, scoreOf } from './answers.js';
import { type DeviceModel, StateLost, type StepAnswer } from './device.js';
import { DeviceDrafts } from './deviceDrafts.js';
import { type Discarded, discardPages } from './discard.js';
import { findPages } from './foundPages.js';
import { GuidedSet } from './guide.js';
import { leftBehind } from './leftBehind.js';
import { type GeneratorCounts, loadOf, Measures, type ReplicaLoad } from './modelStats.js';
import { PAGE_TOKENS, type PagePool } from './pages.js';
import { ReplicaMemory } from './replicaMemory.js';
import type { EndReason } from './request.js';
import type { PagePressure, Scheduler } from './scheduler.js';
import type { Sequence } from './sequence.js';
import { type ModelDrafts, Speculation, type StepTiming } from './speculation.js';
import type { AskedRow, FoundAnswers, Step } from './stepMessage.js';
import { StepTimes } from './stepTimes.js';
import type { Task, TaskOwner } from './task.js';

/** A step on its way. */
interface Flight {
  readonly step: Step;
  readonly answer: Promise<StepAnswer | Error>;
  /** When it was sent, in milliseconds. */
  readonly sent: number;
  readonly follows: StepTiming['follows'];
}

/** A task, and the tokens that it had left to compute when they were last counted. */
interface Entry {
  readonly task: Task;
  work: number;
}

export interface GeneratorOptions {
  /** For messages. */
  readonly name?: string | undefined;
  /** Shared by the replicas of a model. */
  readonly measures?: Measures;
  /** Tokens of its vocabulary. Default: any number. */
  readonly vocabSize?: number | undefined;
  readonly drafts?: ModelDrafts | undefined;
}

/** Tries to have tasks done by another device. Returns those that it cannot place. */
export type Rescue = (tasks: readonly Task[]) => readonly Task[];

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));

export class Generator implements TaskOwner {
  readonly model: DeviceModel;
  readonly memory: ReplicaMemory;
  /** Why the device will not come back. */
  gone: Error | undefined;
  /** Whether the device is there. */
  isReady = true;
  /** Tokens that are left to compute, at most. */
  workTokens = 0;
  private readonly pool: PagePool;
  private readonly scheduler: Scheduler;
  private readonly rescue: Rescue;
  /** Shared by the replicas of a model. */
  private readonly measures: Measures;
  private readonly tasks = new Map<Sequence, Entry>();
  /** Tasks that end before the next step. */
  private readonly stopping = new Set<Task>();
  private readonly guided = new GuidedSet();
  private readonly times = new StepTimes();
  private readonly speculation: Speculation;
  /** The device ended while it loaded an adapter that these sequences wait for. */
  private lostLoad: { readonly error: StateLost; readonly sequences: readonly Sequence[] } | undefined;
  private loop: Promise<void> | undefined;
  private calls = 0;
  private computedTokens = 0;
  private foundTokens = 0;
  private peakPages = 0;

  /** Throws UserError where the device has no memory for it beside others. */
  constructor(model: DeviceModel, rescue: Rescue = (tasks) => tasks, options: GeneratorOptions = {}) {
    const { name = 'the model', measures = new Measures(), drafts, vocabSize } = options;
    this.model = model;
    this.rescue = rescue;
    this.measures = measures;
    this.memory = new ReplicaMemory(model, name, this.times, () => this.wake());
    this.pool = this.memory.pool;
    this.scheduler = this.memory.scheduler;
    this.scheduler.adapters.listen({
      onReady: () => {
        this.scheduler.noteAdapters();
        this.wake();
      },
      onFailed: (sequences, error) => this.failLoad(sequences, error),
    });
    const device = model.draft && new DeviceDrafts(model, model.draft, this.pool, this.scheduler);
    const { limits } = model;
    this.speculation = new Speculation(this.scheduler, { limits, measures, drafts, vocabSize, device });
  }

  get counts(): GeneratorCounts {
    const { calls, computedTokens, peakPages } = this;
    const foundTokens = [...this.tasks.keys()].reduce((sum, { found }) => sum + found, this.foundTokens);
    const { preemptions } = this.scheduler;
    const { evictions, total } = this.pool;
    return { calls, computedTokens, foundTokens, preemptions, evictions, peakPages, pages: total };
  }

  get load(): ReplicaLoad {
    return loadOf(this.scheduler, this.pool, this.times.steps);
  }

  /** Longest context of the model, in tokens. */
  get maxLength(): number {
    return this.model.maxLength;
  }

  /** Tokens of its vocabulary, if it chooses tokens from whole rows of logits. */
  get vocab(): number | undefined {
    return this.model.vocab;
  }

  /** Classes of its head, if that is none of a vocabulary. */
  get classes(): number | undefined {
    return this.model.classes;
  }

  /** Longest sequence that pages may ever have room for, and a step, in tokens. */
  get room(): number {
    return Math.min(this.memory.room.tokens, this.model.limits.keys);
  }

  /** How many pages are in use and wanted. */
  get pressure(): PagePressure {
    return this.scheduler.pressure;
  }

  /** Tokens of a sequence that would be found in pages. */
  findable(sequence: Sequence): number {
    if (this.model.isLost?.() === true) return 0;
    return PAGE_TOKENS * findPages(sequence, this.pool).pages;
  }

  /** Nobody goes on with a text. */
  discard(text: Discarded): void {
    discardPages(text, this.pool);
  }

  start(task: Task): void {
    if (task.stopped !== undefined) return task.end(task.stopped);
    if (this.gone !== undefined) return task.fail(this.gone);
    task.owner = this;
    this.tasks.set(task.sequence, { task, work: 0 });
    this.count(task.sequence);
    this.memory.accept(task.sequence);
    this.scheduler.add(task.sequence);
    this.guided.add(task.sequence.guided);
    this.speculation.begin(task);
    task.begin();
    this.wake();
    this.memory.report();
    if (task.sequence.adapter !== undefined) void this.loadAhead();
  }

  /** Adapters of requests that were made together are loaded while a step is on its way. */
  private async loadAhead(): Promise<void> {
    await Promise.resolve();
    if (this.isReady && this.gone === undefined) this.scheduler.adapters.arrange({ mayPreempt: false });
  }

  private failLoad(sequences: readonly Sequence[], error: Error): void {
    if (error instanceof StateLost) this.lostLoad = { error, sequences };
    else for (const sequence of sequences) this.forget(sequence)?.fail(error);
    this.wake();
  }

  stop(task: Task): void {
    if (task.sequence.awaited > 0) this.stopping.add(task);
    else if (this.tasks.has(task.sequence)) this.stopNow(task);
    // Others may have waited for its pages.
    this.wake();
  }

  pause(task: Task): void {
    this.scheduler.pause(task.sequence);
  }

  resume(task: Task): void {
    this.scheduler.resume(task.sequence);
    this.wake();
  }

  guide(task: Task): void {
    this.scheduler.guide(task.sequence);
    this.wake();
  }

  /** Settles when no step is on its way and none will begin without a new task. */
  get idle(): Promise<void> {
    return this.loop ?? Promise.resolve();
  }

  /** Sequences that have no pages yet, or none any more. */
  get waiting(): number {
    return this.scheduler.waiting.length + this.scheduler.adapters.length;
  }

  /** Slots, and who waits for one. */
  get adapters(): AdapterQueue {
    return this.scheduler.adapters;
  }

  /** Gives up the tasks that have not begun, for another device to do. */
  takeWaiting(): readonly Task[] {
    const fresh = [...this.scheduler.waiting, ...this.scheduler.adapters].filter(
      ({ tokens, promptLength, awaited }) => tokens.length === promptLength && awaited === 0,
    );
    return fresh.map((sequence) => this.forget(sequence)!);
  }

  private wake(): void {
    if (this.tasks.size > 0) this.loop ??= this.run();
  }

  private forget(sequence: Sequence): Task | undefined {
    const entry = this.tasks.get(sequence);
    this.scheduler.remove(sequence);
    this.guided.delete(sequence.guided);
    this.speculation.end(sequence);
    this.tasks.delete(sequence);
    if (entry === undefined) return undefined;
    this.stopping.delete(entry.task);
    this.workTokens -= entry.work;
    this.memory.forget(sequence, this.tasks.keys());
    return entry.task;
  }

  private count(sequence: Sequence): Task | undefined {
    const entry = this.tasks.get(sequence);
    if (entry === undefined) return undefined;
    const { workTokens } = entry.task;
    this.workTokens += workTokens - entry.work;
    entry.work = workTokens;
    return entry.task;
  }

  private async run(): Promise<void> {
    // Requests that are made together start together.
    await Promise.resolve();
    try {
      let flights: Flight[] = [];
      let follows: StepTiming['follows'] = 'nothing';
      for (;;) {
        const { lostLoad } = this;
        if (lostLoad !== undefined && flights.length === 0) await this.recover([], lostLoad.error);
        while (flights.length === 0 || this.mayLookAhead(flights)) {
          const masks = this.guided.wait(this.times.lastMs);
          if (masks !== undefined) await masks;
          if (flights.length > 0) follows = 'ahead';
          const drafts = this.speculation.prepare(follows === 'ahead' && this.model.limits.keptRows !== undefined);
          if (drafts !== undefined) await drafts;
          const looked = this.lookAhead();
          if (looked !== undefined) await looked;
          const flight = this.begin(follows);
          if (flight === undefined) break;
          flights.push(flight);
        }
        const [first, ...later] = flights;
        if (first === undefined) {
          if (this.requireNothingLeft()) continue;
          return;
        }
        flights = (await this.land(first, later)) ? later : [];
        follows = 'read';
      }
    } finally {
      this.loop = undefined;
    }
  }

  /** Guides are asked about drafts. What they answer late is for a later step. */
  private lookAhead(): Promise<void> | undefined {
    if (this.guided.size === 0) return undefined;
    for (const sequence of this.scheduler.running) sequence.lookAhead();
    return this.guided.wait(this.times.lastMs);
  }

  /**
   * A sequence that no step takes would hang its reader. It waits where pages may come, or its adapter, as of one that
   * thinks. Returns whether others may go on now.
   */
  private requireNothingLeft(): boolean {
    this.memory.report();
    if (this.lostLoad !== undefined) return true;
    const left = leftBehind(this.scheduler, this.memory);
    for (const { sequence, error } of left) this.forget(sequence)?.fail(error);
    return left.length > 0 && this.tasks.size > 0;
  }

  /**
   * Whether a step can be planned before these are read. It takes tokens that they draw; in a pipeline, it takes other
   * sequences.
   */
  private mayLookAhead(flights: readonly Flight[]): boolean {
    const { keptRows = 0, groups = 1 } = this.model.limits;
    if (flights.length >= Math.max(groups, keptRows > 0 ? 2 : 1)) return false;
    if (flights.some(({ step }) => step.pieces.some(({ sequence }) => sequence.isAlone))) return false;
    return this.speculation.mayLookAhead();
  }

  /** Plans a step, without sequences that are no longer wanted, and begins it. */
  private begin(follows: StepTiming['follows']): Flight | undefined {
    for (const task of this.stopping) this.stopNow(task);
    this.memory.beforeStep();
    const step = this.scheduler.next();
    this.memory.afterStep();
    if (step === undefined) return undefined;
    this.peakPages = Math.max(this.peakPages, this.pool.held);
    this.calls++;
    this.computedTokens += step.message.tokens.length;
    const ask = async (): Promise<StepAnswer> => this.model.step(step.message);
    const sent = performance.now();
    const answer = ask().catch(asError);
    this.scheduler.foresee(step);
    this.speculation.begun(step);
    for (const found of step.answers) this.answer(found);
    for (const { sequence } of step.pieces) {
      const task = this.count(sequence);
      if (task === undefined || task.begun !== undefined) continue;
      task.begun = sent;
      this.measures.begin(sequence.promptLength, sequence.found);
    }
    return { step, answer, sent, follows };
  }

  /** Waits for a step and uses what it returned. Returns whether those begun after it are of use. */
  private async land({ step, answer, sent, follows }: Flight, later: readonly Flight[]): Promise<boolean> {
    const outputs = await answer;
    const since = follows === 'nothing' ? sent : this.times.answered;
    if (!(outputs instanceof Error)) {
      const keys = step.pieces.reduce((sum, { to }) => sum + to, 0);
      this.times.answer(sent, step.message.tokens.length, keys);
      this.measures.step(step.message.tokens.length);
      this.take(step, outputs, { seconds: (this.times.answered - since) / 1000, follows });
      this.memory.report();
      return true;
    }
    // What was begun meanwhile took tokens of this step, which are not known.
    await Promise.all(later.map((each) => each.answer));
    for (const each of later.toReversed()) this.scheduler.rewind(each.step);
    const { rows } = outputs as { readonly rows?: readonly number[] };
    if (outputs instanceof StateLost)
      await this.recover(
        step.pieces.map(({ sequence }) => sequence),
        outputs,
      );
    else if (rows === undefined) {
      for (const { sequence } of step.pieces) this.forget(sequence)?.fail(outputs);
      this.scheduler.reset();
    } else {
      this.scheduler.rewind(step);
      this.giveUp(step, rows, outputs, later.length > 0);
    }
    return false;
  }

  /** What a step returned goes to the sequences that asked. */
  private take(step: Step, answer: StepAnswer, timing: StepTiming): void {
    const ended = new Map<Task, EndReason | Error>();
    step.asked.forEach((asked, row) => {
      const task = this.tasks.get(asked.sequence)?.task;
      if (task === undefined || !isOfText(asked, task, ended)) return;
      try {
        const reason = this.give(task, asked, answer, row);
        if (reason !== undefined) ended.set(task, reason);
        this.count(asked.sequence);
      } catch (error) {
        ended.set(task, asError(error));
      }
    });
    this.speculation.read(step, timing);
    // Others may find what is full, also of those that end now.
    this.scheduler.read(step);
    // Rows of a sequence need not be in order.
    for (const [task, reason] of ended) this.end(task, reason);
  }

  /** What a row says goes to its task. Returns why that ends with it, if it does. */
  private give(
    task: Task,
    { sequence, kind, at, ask = 0, node = -1 }: AskedRow,
    answer: StepAnswer,
    row: number,
  ): EndReason | undefined {
    if (kind === 'score') {
      const top = sequence.asks.tops[ask]!;
      const score = scoreOf(answer, row, top, this.model.classes);
      const isOfPath = sequence.tokens[at] === sequence.asks.targets[ask];
      // Nothing is kept of classes: their rows are computed again.
      if (score.classLogits === undefined && top === 0 && isOfPath) sequence.note(at, score, this.pool);
      return task.score(score, ask);
    }
    const drawn = drawnOf(answer, row);
    const token = chosenOf(answer, row, sequence.topCount) ?? drawn;
    if (task.request.maxNewTokens > 0) {
      task.firstToken ??= this.times.answered;
      this.measures.write(node < 0);
      sequence.read(at, token.token);
      // It has the bits of a score: the head computed both.
      if (token === drawn && sequence.drawAt(at) === undefined) {
        const { token: argmax, logProb } = drawn;
        sequence.note(at, { logProb, isArgmax: true, argmax, argmaxLogProb: logProb }, this.pool);
      }
    }
    return task.take(token, this);
  }

  /** Rows of tokens that need not be computed. */
  private answer({ sequence, facts, ownFrom }: FoundAnswers): void {
    const { answered, positions } = sequence.asks;
    const task = this.tasks.get(sequence)?.task;
    facts.forEach((fact, i) => {
      const place = positions[answered + i]! + 1;
      if (place >= ownFrom) sequence.note(place, fact, this.pool);
      task?.score(fact, answered + i);
    });
  }

  private stopNow(task: Task): void {
    this.end(task, task.failure ?? task.stopped!);
  }

  private end(task: Task, reason: EndReason | Error): void {
    if (this.forget(task.sequence) === undefined) return;
    this.foundTokens += task.sequence.found;
    this.measures.end(task, performance.now());
    if (reason instanceof Error) task.fail(reason);
    else task.end(reason);
  }

  /**
   * The sequences of `rows` failed. Where another step was begun meanwhile, the layer could not be found: the sequence
   * is then computed once more, by itself and with nothing begun after it.
   */
  private giveUp(step: Step, rows: readonly number[], error: Error, wasAhead: boolean): void {
    const failed = new Set(rows.flatMap((row) => step.asked[row]?.sequence ?? []));
    for (const { sequence, from, drafts } of step.pieces) {
      if (!failed.has(sequence) || !this.tasks.has(sequence)) continue;
      sequence.withdraw(from, this.pool);
      if (drafts.tokens.length > 0) {
        // It may be a wrong draft after which nothing is finite.
        this.speculation.stop(sequence);
        continue;
      }
      if (wasAhead && !('where' in error && error.where !== undefined)) {
        sequence.isAlone = true;
        this.scheduler.restart(sequence);
      } else this.forget(sequence)!.fail(error);
    }
  }

  /**
   * The device is gone, and what it knew. Others take the tasks over, or they wait for the next device. `computed`:
   * what it computed, if it was asked.
   */
  private async recover(computed: readonly Sequence[], error: StateLost): Promise<void> {
    this.isReady = false;
    const asked = [...computed, ...this.scheduler.adapters.loadedFor, ...(this.lostLoad?.sequences ?? [])];
    this.lostLoad = undefined;
    this.scheduler.reset();
    for (const task of this.stopping) this.stopNow(task);
    if (error.wasAsked)
      for (const sequence of asked) if (this.tasks.get(sequence)?.task.survive(error) === false) this.forget(sequence);
    this.handOver();
    try {
      if (this.model.recovered === undefined) throw error;
      do await this.model.recovered();
      while (!(await this.memory.restore()));
      this.isReady = true;
    } catch (reason) {
      this.gone = asError(reason);
      for (const task of this.handOver()) this.forget(task.sequence)?.fail(this.gone);
    }
  }

  /** Returns the tasks that nobody else can do. */
  private handOver(): readonly Task[] {
    const tasks = [...this.tasks.values()].map(({ task }) => task);
    const left = new Set(this.rescue(tasks));
    for (const task of tasks) if (!left.has(task)) this.forget(task.sequence);
    return [...left];
  }
}
