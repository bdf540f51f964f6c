/**
 * Measures candidates on this machine. Compiles them in parallel, checks that each result equals the default schedule's
 * bit for bit, then times launches on random data in trees of the bucket's shape.
 */
import { availableParallelism } from 'node:os';
import { emitKernel, type EmittedKernel, kernelSignature, unitOf } from '../../codegen/cpu/index.js';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { UserError } from '../../errors.js';
import type { KernelModule } from '../../ir/kernel.js';
import type { Bucket, CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import { type Addon, loadAddon } from '../../runtime/addon.js';
import { programExtents } from '../../runtime/bindPorts.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { sizesOf } from '../../runtime/bindPorts.js';
import type { NativeLibrary, NativeMemory, NativePool, NativeProgram } from '../../runtime/native.js';
import type { Settings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import type { Measure, Measurement, MeasureRequest } from '../measurement.js';
import type { Rates } from '../peaks.js';
import { median } from '../records.js';
import { measurePeaks } from './costModel.js';
import { type BenchOptions, type CpuWorkbench, CpuWorkbenches } from './workbench.js';

/** On what, and within what, candidates are measured. */
export interface CpuMeasurerOptions extends LoadedKernelsOptions, BenchOptions {
  readonly threads: number;
}

/** Measures one request after another, on a pool of threads of its own. */
export class CpuMeasurer {
  private readonly addon: Addon;
  private readonly options: CpuMeasurerOptions;
  private readonly pool: NativePool;
  private readonly kernels: LoadedKernels;
  private readonly benches: CpuWorkbenches;
  private readonly references = new Map<string, string>();
  private scratch: NativeMemory | undefined;
  /** The last request that was started. */
  private underWay: Promise<void> = Promise.resolve();

  /** Throws UserError if the addon is not built. */
  constructor(options: CpuMeasurerOptions) {
    this.options = options;
    this.addon = loadAddon();
    this.pool = new this.addon.Pool(options.threads);
    this.kernels = new LoadedKernels(options, this.addon);
    this.benches = new CpuWorkbenches(options, this.addon, this.pool);
  }

  /** Peak rates for the cost model and for shares of peak, all threads. */
  peaks(): Promise<Rates> {
    return measurePeaks(this.addon, this.pool, this.options.isa);
  }

  /** Bound to this object, so that it can be passed to the search. Throws UserError if no compiler works. */
  readonly measure: Measure<CpuSchedule> = (request) => this.run(request);

  /**
   * Compiles kernels whose schedules are known, as many at a time as there are processors, until `signal` is aborted.
   * `chosen`: signatures and schedules. Throws UserError if no compiler works.
   */
  async prepare(
    module: KernelModule,
    chosen: readonly { readonly signature: string; readonly schedule: CpuSchedule }[],
    signal: AbortSignal,
  ): Promise<void> {
    const { extents } = this.options.capacity;
    const kernels = new Map(module.kernels.map((kernel) => [kernelSignature(kernel, module, extents), kernel]));
    const emitted = chosen.flatMap(({ signature, schedule }) => {
      const kernel = kernels.get(signature);
      return kernel === undefined ? [] : [emitKernel(kernel, module, schedule, extents)];
    });
    await this.during(async () => {
      for (const each of emitted) {
        if (signal.aborted) return;
        await this.kernels.get(emitted, each, signal);
      }
    });
  }

  release(): void {
    this.benches.release();
    this.kernels.release();
    this.scratch?.release();
    this.pool.release();
  }

  /** Resolves when no request is in progress. Required before release(). */
  async idle(): Promise<void> {
    await this.underWay;
  }

  private async during(work: () => Promise<void>): Promise<void> {
    const before = this.underWay;
    const own = before.then(work);
    this.underWay = own.catch(() => undefined);
    await own;
  }

  private async *run(request: MeasureRequest<CpuSchedule>): AsyncGenerator<Measurement<CpuSchedule>> {
    let end: () => void = () => undefined;
    const before = this.underWay;
    this.underWay = new Promise((resolve) => (end = resolve));
    try {
      await before;
      if (request.signal?.aborted !== true) yield* this.measureAll(request);
    } finally {
      end();
    }
  }

  private async *measureAll(request: MeasureRequest<CpuSchedule>): AsyncGenerator<Measurement<CpuSchedule>> {
    const { kernel, module, bucket, reference, schedules, signal } = request;
    const signature = kernelSignature(kernel, module, this.options.capacity.extents);
    const emit = (schedule: CpuSchedule): EmittedKernel =>
      emitKernel(kernel, module, schedule, this.options.capacity.extents);
    const known = new Map([reference, ...schedules].map((schedule) => [cpuScheduling.key(schedule), emit(schedule)]));
    const compiled = (schedule: CpuSchedule): Promise<LoadedKernel | string> =>
      this.kernels.get([...known.values()], known.get(cpuScheduling.key(schedule))!, signal);
    const referenceCode = await compiled(reference);
    const bench = this.benches.get(kernel, module, signature);
    await bench.fill(bucket);
    const place = JSON.stringify([signature, bucket]);
    let expected = this.references.get(place);
    if (expected === undefined) {
      if (typeof referenceCode === 'string') throw new UserError(referenceCode);
      expected = await this.withProgram(referenceCode, bench, bucket, (program) =>
        this.resultOf(program, bench, bucket),
      );
      this.references.set(place, expected);
    }
    let best = request.bestSeconds ?? Infinity;
    for (const schedule of schedules) {
      const code = await compiled(schedule);
      if (typeof code === 'string') {
        yield { schedule, failure: code.slice(0, 400) };
        continue;
      }
      const right = expected;
      const measurement = await this.withProgram(
        code,
        bench,
        bucket,
        async (program): Promise<Measurement<CpuSchedule>> => {
          if ((await this.resultOf(program, bench, bucket)) !== right)
            return { schedule, failure: "its result differs from the default schedule's" };
          return { schedule, seconds: await sample(program, sizesOf(bench.interface, bucket.extents), best, signal) };
        },
      );
      if (signal?.aborted === true) return;
      if ('seconds' in measurement) best = Math.min(best, median(measurement.seconds));
      yield measurement;
    }
  }

  private async withProgram<T>(
    { library, emitted }: LoadedKernel,
    bench: CpuWorkbench,
    bucket: Bucket,
    use: (program: NativeProgram) => Promise<T>,
  ): Promise<T> {
    const copies = bench.slots();
    const scratchBytes = roundUp(emitted.scratchBytes, 4096);
    const needed = scratchBytes * this.options.threads;
    if (needed > (this.scratch?.sizeBytes ?? 0)) {
      this.scratch?.release();
      this.scratch = new this.addon.Memory(needed);
    }
    const width = copies[0]?.length ?? 0;
    const program = new this.addon.Program({
      pool: this.pool,
      extents: programExtents(bench.interface, bucket.extents),
      scratchBytes,
      ...(scratchBytes > 0 && this.scratch !== undefined
        ? { scratch: { memory: this.scratch, offset: 0, bytes: needed } }
        : {}),
      slots: copies.flat(),
      inputs: [],
      outputs: [],
      launches: copies.map((_, copy) => ({
        name: emitted.symbol,
        library,
        symbol: emitted.symbol,
        writes: [],
        slots: Array.from({ length: width }, (_slot, i) => copy * width + i),
      })),
    });
    try {
      return await use(program);
    } finally {
      program.release();
    }
  }

  /** Runs once and hashes the results. Always uses the last copy of the weights, whatever the schedule. */
  private async resultOf(program: NativeProgram, bench: CpuWorkbench, bucket: Bucket): Promise<string> {
    await bench.prepareCheck(bucket);
    await program.run({ extents: sizesOf(bench.interface, bucket.extents), inputs: [] });
    return bench.digest(bucket);
  }
}

/** How kernels are compiled. */
export interface LoadedKernelsOptions {
  /** Instruction set that translation units are compiled for: the strongest in the plan. */
  readonly isa: CpuIsa;
  readonly settings?: Settings;
  /** Called as the candidates of a request are compiled. */
  readonly onCompiled?: (done: number, total: number) => void;
}

/** A kernel in a library that is loaded. */
export interface LoadedKernel {
  readonly library: NativeLibrary;
  readonly emitted: EmittedKernel;
}

/** Compiles kernels when they are first asked for, and keeps them loaded. */
export class LoadedKernels {
  private readonly options: LoadedKernelsOptions;
  private readonly addon: Addon;
  private readonly libraries: NativeLibrary[] = [];
  /** The compiled kernel by symbol, or why it does not compile. */
  private readonly outcomes = new Map<string, LoadedKernel | string>();

  constructor(options: LoadedKernelsOptions, addon: Addon) {
    this.options = options;
    this.addon = addon;
  }

  release(): void {
    for (const library of this.libraries) library.release();
    this.libraries.length = 0;
  }

  /**
   * The compiled kernel, or why there is none. Where `wanted` is new, those behind it in `kernels` are compiled with
   * it. Throws UserError if no compiler works, and the reason of `signal` if it is aborted.
   */
  async get(
    kernels: readonly EmittedKernel[],
    wanted: EmittedKernel,
    signal: AbortSignal | undefined,
  ): Promise<LoadedKernel | string> {
    if (!this.outcomes.has(wanted.symbol)) await this.compileFrom(kernels, wanted, signal);
    return this.outcomes.get(wanted.symbol) ?? 'it was not compiled';
  }

  /**
   * Compiles `first` and the kernels after it in `kernels`, as many as there are processors. The next measurement does
   * not wait for later candidates to compile, and nothing compiles during a measurement. Throws the reason of `signal`
   * if it is aborted.
   */
  private async compileFrom(
    kernels: readonly EmittedKernel[],
    first: EmittedKernel,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const missing = [...new Map(kernels.map((k) => [k.symbol, k])).values()].filter(
      (k) => !this.outcomes.has(k.symbol),
    );
    const from = missing.findIndex(({ symbol }) => symbol === first.symbol);
    const next = missing.slice(from, from + availableParallelism());
    let done = 0;
    const tell = (): void => this.options.onCompiled?.(done, next.length);
    tell();
    await Promise.all(
      next.map(async (kernel) => {
        this.outcomes.set(kernel.symbol, await this.compileOne(kernel, signal));
        done++;
        tell();
      }),
    );
  }

  /** The loaded function, or the compiler's message. Other failures (no compiler, no disk space) are thrown. */
  private async compileOne(emitted: EmittedKernel, signal: AbortSignal | undefined): Promise<LoadedKernel | string> {
    try {
      const { isa, settings } = this.options;
      const { path } = await compileShared([unitOf(emitted)], {
        isa,
        ...defined({ settings, signal }),
      });
      const library = new this.addon.Library(path);
      this.libraries.push(library);
      return { library, emitted };
    } catch (error) {
      if (error instanceof UserError && error.message.includes('does not compile')) return error.message;
      throw error;
    }
  }
}

/** Enough for a stable median, and long enough for clocks to settle. */
const MIN_SAMPLES = 5;
const MAX_SAMPLES = 60;
const SAMPLE_SECONDS = 0.03;
/** After this many samples, a candidate is abandoned if it is this many times slower than the best. */
const EARLY_SAMPLES = 3;
const HOPELESS = 1.3;

/**
 * Seconds of each launch, over all copies in turn. The checked run has already warmed the caches. `best`: the median of
 * the best candidate so far. Fewer samples are taken where `signal` is aborted.
 */
export async function sample(
  program: NativeProgram,
  extents: readonly number[],
  best: number,
  signal: AbortSignal | undefined,
): Promise<number[]> {
  const seconds: number[] = [];
  let total = 0;
  while (seconds.length < MAX_SAMPLES && (seconds.length < MIN_SAMPLES || total < SAMPLE_SECONDS)) {
    const { launchNs } = await program.run({ extents, inputs: [], isTimed: true });
    for (const ns of launchNs ?? []) {
      // If the clock did not advance, the sample still counts, with a small positive time.
      seconds.push(Math.max(ns, 1) * 1e-9);
      total += ns * 1e-9;
    }
    if (signal?.aborted === true) break;
    if (seconds.length >= EARLY_SAMPLES && median(seconds) > HOPELESS * best) break;
    if (launchNs === undefined || launchNs.length === 0) throw new Error('The runtime timed no launch.');
  }
  return seconds;
}
