/** A plan on its devices: any of its functions can be called, measured and searched. Every target has this one. */
import type { Extents } from '../ir/extents.js';
import { isReserved, mayBeRough } from '../ir/function.js';
import type { Bucket } from '../ir/plan.js';
import {
  arrayOf,
  bucketsFor,
  checkRoles,
  extentsOf,
  longestRun,
  longestTree,
  NonFiniteError,
  nonFiniteRows,
  withAdapters,
  type CallArrays,
  type CallResult,
  type Diagnosis,
  type LaunchProfile,
} from './call.js';
import { Gate } from './gate.js';
import type { StatePieces } from './reservedStates.js';
import { functionOf, kernelOf, nameOf, type RuntimePlan } from './runtimePlan.js';
import type { StageAnswer, StageCall, StageRunner } from './stageRunner.js';
import { checkWrites, type SlotWrite } from './weightPlan.js';

export interface ExecutorOptions<Memory> {
  readonly plan: RuntimePlan;
  readonly runner: StageRunner;
  /** The memory that it needs on its devices. */
  readonly memory: Memory;
  /** The bytes of it, on all devices, once everything is loaded. Default: 0. */
  readonly heldBytes?: number;
  /** Longest tree path (context) of the model, in tokens. Default: as many as fit in a call. */
  readonly maxLength?: number | undefined;
}

/** A call that was checked, and the buckets that hold it, best first. */
interface BucketedCall extends Omit<StageCall, 'bucket'> {
  readonly buckets: readonly number[];
}

/** A call that was executed, in the bucket that it ran in. */
interface Passed {
  readonly call: StageCall;
  readonly answer: StageAnswer;
}

export class Executor<Memory = unknown> {
  /** The largest call of each function. */
  readonly capacity: Readonly<Record<string, Extents>>;
  /** Number of calls that keep every device busy. Further calls wait. */
  readonly inFlight: number;
  readonly memory: Memory;
  readonly pieces: StatePieces;
  private readonly plan: RuntimePlan;
  private readonly runner: StageRunner;
  private readonly maxLength: number;
  private readonly bytesAtFirst: number;
  private readonly tokensAtFirst: number;
  /** Rows of each state that memory lies behind: calls reach no others. */
  private stateRows: Readonly<Record<string, number>> = {};
  private readonly gate: Gate;
  private lastSearch: Promise<unknown> = Promise.resolve();
  private lastResize: Promise<unknown> = Promise.resolve();
  private lastWrite: Promise<unknown> = Promise.resolve();
  /** Sizes that were asked for and not made yet, in order. */
  private readonly pendingSizes: number[] = [];
  /** Everything that uses states or will, until it is over. */
  private readonly working = new Set<Promise<unknown>>();
  /** The last call that went to the devices. */
  private lastCall: StageCall | undefined;
  /** Settles once every call that waits for its bucket, or behind such a one, has started. Undefined if none does. */
  private starting: Promise<void> | undefined;
  private isClosed = false;
  private readonly onExit = (): void => {
    this.runner.readiness?.stop();
    this.runner.stop();
  };

  constructor({ plan, runner, memory, heldBytes = 0, maxLength = Infinity }: ExecutorOptions<Memory>) {
    this.plan = plan;
    this.runner = runner;
    this.memory = memory;
    this.bytesAtFirst = heldBytes;
    this.tokensAtFirst = runner.tokens;
    this.maxLength = maxLength;
    this.inFlight = runner.inFlight;
    this.pieces = runner.pieces;
    this.gate = new Gate(runner.inFlight);
    this.capacity = Object.fromEntries(plan.functions.map((fn) => [nameOf(fn), largest(fn.buckets)]));
    this.limitRows();
    process.once('exit', this.onExit);
  }

  /** Rows of reserved states that there is memory for; undefined where all states have memory for good. */
  get tokens(): number | undefined {
    return this.plan.states.some(isReserved) ? this.runner.tokens : undefined;
  }

  /** Bytes of memory that it has on its devices. */
  get heldBytes(): number {
    const { tokens, bytes } = this.pieces;
    return this.bytesAtFirst + ((this.runner.tokens - this.tokensAtFirst) / tokens) * bytes;
  }

  /**
   * Calls a function. `inFlight` calls may be on the devices at once; they are executed in the order of these calls,
   * each in the best bucket of those that are ready, which changes no result. Where none is, it waits for the best.
   * Rejects with RangeError for inputs that are not the function's or reach outside the model or the plan, and with
   * NonFiniteError where an output is not finite, unless it may be so.
   */
  async call(name: string, inputs: CallArrays): Promise<CallResult> {
    const checked = this.checked(name, inputs, 'run');
    return this.atWork(this.finite(() => checked));
  }

  /**
   * Calls a function with inputs that `make` makes when its turn has come: after those of all calls before it, and
   * before those of any call behind it. The memory behind them may change once that one makes its own. Rejects as
   * `call` does, and with what `make` throws.
   */
  callInTurn(name: string, make: () => CallArrays): Promise<CallResult> {
    const rows = this.stateRows;
    return this.atWork(this.finite(() => this.checked(name, make(), 'run', rows)));
  }

  private async finite(check: () => BucketedCall): Promise<CallResult> {
    const { call, answer } = await this.pass(check);
    const { outputs, spans } = answer;
    const declared = call.fn.interface.outputs;
    const arrays = Object.fromEntries(declared.map((decl, i) => [decl.name, arrayOf(decl, outputs[i]!)]));
    if (mayBeRough(call.fn.interface)) return { outputs: arrays, spans };
    for (const decl of declared) {
      const rows = nonFiniteRows(decl, arrays[decl.name]!, call.extents);
      if (rows.length > 0) throw new NonFiniteError(await this.culprit(call), rows);
    }
    return { outputs: arrays, spans };
  }

  /**
   * Has memory behind the first `tokens` rows of the states that have a row for each token, and no others. Rows that
   * are given up are refused to calls from now on, and freed when the calls before are over; new ones can be used once
   * this has resolved. Resolves with the number of rows there is memory for: fewer where it ran out, never fewer than
   * before unless that was asked.
   */
  resize(tokens: number): Promise<number> {
    if (this.isClosed) return Promise.reject(new Error('This executor was closed.'));
    if (!Number.isInteger(tokens) || tokens < 0)
      return Promise.reject(new RangeError(`${tokens} is no number of tokens.`));
    this.pendingSizes.push(tokens);
    this.limitRows();
    const before = [...this.working];
    const resized = this.lastResize.then(async () => {
      if (tokens < this.runner.tokens) await Promise.allSettled(before);
      try {
        return await this.runner.resize(tokens);
      } finally {
        this.pendingSizes.shift();
        this.limitRows();
      }
    });
    this.lastResize = resized.catch(() => undefined);
    return resized;
  }

  /**
   * Writes slots of weights, on every device that has them. Other slots may be used meanwhile; no call on its way, and
   * none before this resolves, may name a slot that is written. The data must not change until then. Rejects with
   * RangeError for what is no slot of the plan's weights, before anything is written.
   */
  async writeSlots(writes: readonly SlotWrite[]): Promise<void> {
    if (this.isClosed) throw new Error('This executor was closed.');
    checkWrites(this.plan.weights, writes);
    const written = this.lastWrite.then(() => this.runner.writeSlots(writes));
    this.lastWrite = written.catch(() => undefined);
    await written;
  }

  /** Calls a function once, measuring each launch in the bucket that is best for the call. */
  async profile(
    name: string,
    inputs: CallArrays,
  ): Promise<{ readonly bucket: Bucket; readonly launches: readonly LaunchProfile[] }> {
    const checked = this.checked(name, inputs, 'profile');
    const { call, answer } = await this.atWork(this.pass(() => checked));
    const { launchNanoseconds } = answer;
    const launches = call.fn.launches.map((_, i) => {
      const { name: kernel, path } = kernelOf(call.fn, i);
      return { kernel, path, nanoseconds: launchNanoseconds[i] ?? NaN };
    });
    return { bucket: call.fn.buckets[call.bucket]!, launches };
  }

  /**
   * Calls a function, searching every launch's results: the first value that is not finite, or undefined. It is a
   * call: states change as they do in any other.
   */
  async diagnose(name: string, inputs: CallArrays): Promise<Diagnosis | undefined> {
    const checked = this.checked(name, inputs, 'search');
    // One at a time, because searches may share the memory of answers.
    const job = this.atWork(this.lastSearch.then(() => this.pass(() => checked)));
    this.lastSearch = job.catch(() => undefined);
    const { call, answer } = await job;
    const { nonFinite } = answer;
    if (nonFinite === undefined) return undefined;
    const { launch, ...place } = nonFinite;
    return { path: kernelOf(call.fn, launch).path, ...place };
  }

  /**
   * Waits for the work on the devices, then releases everything. Later calls reject, and so do those that still wait
   * for their bucket.
   */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    this.runner.readiness?.stop();
    process.removeListener('exit', this.onExit);
    await this.lastSearch;
    await this.lastResize;
    await this.lastWrite;
    await this.gate.drain();
    await this.runner.release();
  }

  /** Resolves when every bucket is ready, so that each call runs in the one that is best for it: for measurements. */
  async prepare(): Promise<void> {
    const { readiness } = this.runner;
    if (readiness === undefined) return;
    await Promise.all(
      this.plan.functions.flatMap((fn) => fn.buckets.map((_, bucket) => readiness.prepare(fn, bucket))),
    );
  }

  private atWork<T>(work: Promise<T>): Promise<T> {
    this.working.add(work);
    const end = (): unknown => this.working.delete(work);
    work.then(end, end);
    return work;
  }

  /** Rows that calls may reach: what there is memory for, and will be after every change that was asked for. */
  private limitRows(): void {
    const tokens = Math.min(this.runner.tokens, ...this.pendingSizes);
    this.stateRows = Object.fromEntries(
      this.plan.states.map((state) => [state.name, isReserved(state) ? tokens : state.rows]),
    );
  }

  /** `states`: the rows that it may reach. */
  private checked(name: string, given: CallArrays, kind: StageCall['kind'], states = this.stateRows): BucketedCall {
    if (this.isClosed) throw new Error('This executor was closed.');
    const fn = functionOf(this.plan, name);
    const extents = extentsOf(fn.interface, given);
    const { inputs, hasAdapters } = withAdapters(fn.interface, given, extents);
    const run = longestRun(fn.interface, inputs);
    const buckets = bucketsFor(fn.buckets, extents, longestTree(fn.interface, inputs), { run, hasAdapters });
    checkRoles(fn.interface, inputs, { extents, states, maxLength: this.maxLength });
    return { fn, buckets, extents, inputs, hasAdapters, kind };
  }

  /** Starts as soon as the devices have room and a bucket is ready. */
  private pass(check: () => BucketedCall): Promise<Passed> {
    return this.gate.pass(() => this.start(check));
  }

  /** The best bucket that is ready. What is measured or searched runs in the best one alone. */
  private readyBucket({ fn, buckets, kind }: BucketedCall): number | undefined {
    const { readiness } = this.runner;
    if (readiness === undefined) return buckets[0]!;
    if (readiness.failure !== undefined) throw readiness.failure;
    return (kind === 'run' ? buckets : buckets.slice(0, 1)).find((bucket) => readiness.isReady(fn, bucket));
  }

  /** In this turn, where nothing has to be waited for. Where a call waits for its bucket, later ones wait behind it. */
  private async start(check: () => BucketedCall): Promise<Passed> {
    let made: BucketedCall | undefined;
    if (this.starting === undefined) {
      made = check();
      const bucket = this.readyBucket(made);
      if (bucket !== undefined) return this.run(made, bucket);
    }
    const started = (this.starting ?? Promise.resolve()).then(async () => {
      const checked = made ?? check();
      let bucket = this.readyBucket(checked);
      if (bucket === undefined) {
        bucket = checked.buckets[0]!;
        await this.runner.readiness?.prepare(checked.fn, bucket);
      }
      // In an object, because the next call is to start once this one has, not once it has ended.
      return { passed: this.run(checked, bucket) };
    });
    const settled = started
      .then(
        () => undefined,
        () => undefined,
      )
      .finally(() => {
        if (this.starting === settled) this.starting = undefined;
      });
    this.starting = settled;
    return (await started).passed;
  }

  private async run({ buckets: _, ...checked }: BucketedCall, bucket: number): Promise<Passed> {
    const call: StageCall = { ...checked, bucket };
    this.lastCall = call;
    return { call, answer: await this.runner.run(call) };
  }

  /**
   * Where a call went wrong, found by calling again. A call that writes states then writes the same values to the same
   * rows, as long as no other call came between; after one, the place stays unknown.
   */
  private async culprit(call: StageCall): Promise<string | undefined> {
    const { bucket, ...same } = call;
    const isStateful = call.fn.interface.gives.length > 0;
    const job = this.lastSearch.then(() =>
      this.gate.pass(async () => {
        // A call that waits for its bucket comes first.
        await this.starting;
        if (isStateful && this.lastCall !== call) return undefined;
        return this.run({ ...same, kind: 'search', buckets: [bucket] }, bucket);
      }),
    );
    this.lastSearch = job.catch(() => undefined);
    const nonFinite = (await job)?.answer.nonFinite;
    return nonFinite === undefined ? undefined : kernelOf(call.fn, nonFinite.launch).path;
  }
}

/** The largest value of every extent over all buckets. */
function largest(buckets: readonly Bucket[]): Extents {
  const most: Record<string, number> = {};
  for (const { extents } of buckets)
    for (const [name, size] of Object.entries(extents)) most[name] = Math.max(most[name] ?? 0, size);
  return most;
}
