/** A plan on its devices: any of its functions can be called, measured and searched. Every target has this one. */
import type { Extents } from '../ir/extents.js';
import type { Bucket } from '../ir/plan.js';
import {
  arrayOf,
  checkRoles,
  chooseBucket,
  extentsOf,
  longestRun,
  longestTree,
  NonFiniteError,
  nonFiniteRows,
  type CallArrays,
  type CallResult,
  type Diagnosis,
  type LaunchProfile,
} from './call.js';
import { Gate } from './gate.js';
import { functionOf, kernelOf, nameOf, type RuntimePlan } from './runtimePlan.js';
import type { StageAnswer, StageCall, StageRunner } from './stageRunner.js';

export interface ExecutorOptions<Memory> {
  readonly plan: RuntimePlan;
  readonly runner: StageRunner;
  /** The memory that it needs on its devices. */
  readonly memory: Memory;
  /** Longest tree path (context) of the model, in tokens. Default: as many as fit in a call. */
  readonly maxLength?: number | undefined;
}

export class Executor<Memory = unknown> {
  /** The largest call of each function. */
  readonly capacity: Readonly<Record<string, Extents>>;
  /** Number of calls that keep every device busy. Further calls wait. */
  readonly inFlight: number;
  readonly memory: Memory;
  private readonly plan: RuntimePlan;
  private readonly runner: StageRunner;
  private readonly maxLength: number;
  private readonly stateRows: Readonly<Record<string, number>>;
  private readonly gate: Gate;
  private lastSearch: Promise<unknown> = Promise.resolve();
  /** The last call that went to the devices. */
  private lastCall: StageCall | undefined;
  private isClosed = false;
  private readonly onExit = (): void => this.runner.stop();

  constructor({ plan, runner, memory, maxLength = Infinity }: ExecutorOptions<Memory>) {
    this.plan = plan;
    this.runner = runner;
    this.memory = memory;
    this.maxLength = maxLength;
    this.inFlight = runner.inFlight;
    this.gate = new Gate(runner.inFlight);
    this.capacity = Object.fromEntries(plan.functions.map((fn) => [nameOf(fn), largest(fn.buckets)]));
    this.stateRows = Object.fromEntries(plan.states.map(({ name, rows }) => [name, rows]));
    process.once('exit', this.onExit);
  }

  /**
   * Calls a function. `inFlight` calls may be on the devices at once; they are executed in the order of these calls.
   * Rejects with RangeError for inputs that are not the function's or reach outside the model or the plan, and with
   * NonFiniteError where an output is not finite.
   */
  async call(name: string, inputs: CallArrays): Promise<CallResult> {
    const call = this.checked(name, inputs, 'run');
    const { outputs, spans } = await this.pass(call);
    const declared = call.fn.interface.outputs;
    const arrays = Object.fromEntries(declared.map((decl, i) => [decl.name, arrayOf(decl, outputs[i]!)]));
    for (const decl of declared) {
      const rows = nonFiniteRows(decl, arrays[decl.name]!, call.extents);
      if (rows.length > 0) throw new NonFiniteError(await this.culprit(call), rows);
    }
    return { outputs: arrays, spans };
  }

  /** Calls a function once, measuring each launch. */
  async profile(
    name: string,
    inputs: CallArrays,
  ): Promise<{ readonly bucket: Bucket; readonly launches: readonly LaunchProfile[] }> {
    const call = this.checked(name, inputs, 'profile');
    const { launchNanoseconds } = await this.pass(call);
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
    const call = this.checked(name, inputs, 'search');
    // One at a time, because searches may share the memory of answers.
    const job = this.lastSearch.then(() => this.pass(call));
    this.lastSearch = job.catch(() => undefined);
    const { nonFinite } = await job;
    if (nonFinite === undefined) return undefined;
    const { launch, ...place } = nonFinite;
    return { path: kernelOf(call.fn, launch).path, ...place };
  }

  /** Waits for the work on the devices, then releases everything. Later calls reject. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    process.removeListener('exit', this.onExit);
    await this.lastSearch;
    await this.gate.drain();
    await this.runner.release();
  }

  private checked(name: string, inputs: CallArrays, kind: StageCall['kind']): StageCall {
    if (this.isClosed) throw new Error('This executor was closed.');
    const fn = functionOf(this.plan, name);
    const extents = extentsOf(fn.interface, inputs);
    const bucket = chooseBucket(
      fn.buckets,
      extents,
      longestTree(fn.interface, inputs),
      longestRun(fn.interface, inputs),
    );
    checkRoles(fn.interface, inputs, { extents, states: this.stateRows, maxLength: this.maxLength });
    return { fn, bucket, extents, inputs, kind };
  }

  /** Starts as soon as the devices have room. */
  private pass(call: StageCall): Promise<StageAnswer> {
    return this.gate.pass(() => {
      this.lastCall = call;
      return this.runner.run(call);
    });
  }

  /**
   * Where a call went wrong, found by calling again. A call that writes states then writes the same values to the same
   * rows, as long as no other call came between; after one, the place stays unknown.
   */
  private async culprit(call: StageCall): Promise<string | undefined> {
    const again: StageCall = { ...call, kind: 'search' };
    const isStateful = call.fn.interface.gives.length > 0;
    const job = this.lastSearch.then(() =>
      this.gate.pass(() => {
        if (isStateful && this.lastCall !== call) return Promise.resolve(undefined);
        this.lastCall = again;
        return this.runner.run(again);
      }),
    );
    this.lastSearch = job.catch(() => undefined);
    const nonFinite = (await job)?.nonFinite;
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
