/**
 * Measures candidates on this machine. Compiles them in parallel, checks that each result equals the default schedule's
 * bit for bit, then times launches on random data in trees of the bucket's shape.
 */
import { everyExtent } from '../../ir/function.js';
import { availableParallelism } from 'node:os';
import { emitKernel, kernelSignature, unitOf, type EmittedKernel } from '../../codegen/cpu/index.js';
import { UserError } from '../../errors.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Measure, Measurement, MeasureRequest } from '../measurement.js';
import type { Bucket, CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import { loadAddon, type Addon } from '../../runtime/addon.js';
import type { NativeLibrary, NativeMemory, NativePool } from '../../runtime/nativeObjects.js';
import type { NativeProgram } from '../../runtime/nativeProgram.js';
import { programExtents, sizesOf } from '../../runtime/extents.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import type { Settings } from '../../settings.js';
import { cpuScheduling } from '../../codegen/cpu/scheduling.js';
import type { Rates } from '../bucketCost.js';
import { median } from '../median.js';
import { kernelWork } from '../work.js';
import { measurePeaks } from './peaks.js';
import { Workbench } from './workbench.js';

export interface MeasurerOptions {
  /** Instruction set that translation units are compiled for: the strongest in the plan. */
  readonly isa: CpuIsa;
  readonly threads: number;
  /** Largest micro-batch of the plan. It fixes strides. */
  readonly capacity: Bucket;
  /** Bytes of the shared cache, which decide how many copies of weights exceed it. 0: unknown. */
  readonly l3Bytes?: number;
  /** Limit on the bytes of weights and buffers kept between measurements. */
  readonly memoryBytes?: number;
  readonly settings?: Settings;
  /** Called as the candidates of a request are compiled. */
  readonly onCompiled?: (done: number, total: number) => void;
}

/** Enough for a stable median, and long enough for clocks to settle. */
const MIN_SAMPLES = 5;
const MAX_SAMPLES = 60;
const SAMPLE_SECONDS = 0.03;
/** After this many samples, a candidate is abandoned if it is this many times slower than the best. */
const EARLY_SAMPLES = 3;
const HOPELESS = 1.3;
/** Limit on the bytes of weights, all copies together. */
const MAX_COPY_BYTES = 160 << 20;
const MAX_COPIES = 8;
const KEPT_BYTES = 768 << 20;

interface Compiled {
  readonly library: NativeLibrary;
  readonly emitted: EmittedKernel;
}

export class Measurer {
  private readonly addon: Addon;
  private readonly options: MeasurerOptions;
  private readonly pool: NativePool;
  private readonly libraries: NativeLibrary[] = [];
  /** The compiled kernel by symbol, or why it does not compile. */
  private readonly compiled = new Map<string, Compiled | string>();
  /** By signature, least recently used first. */
  private readonly benches = new Map<string, Workbench>();
  private readonly references = new Map<string, string>();
  private readonly counts = new Map<KernelModule, ReadonlyMap<string, number>>();
  private scratch: NativeMemory | undefined;
  /** The last request that was started. */
  private underWay: Promise<void> = Promise.resolve();

  /** Throws UserError if the addon is not built. */
  constructor(options: MeasurerOptions) {
    this.options = options;
    this.addon = loadAddon();
    this.pool = new this.addon.Pool(options.threads);
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
        if (!this.compiled.has(each.symbol)) await this.compileFrom(emitted, each, signal);
      }
    });
  }

  release(): void {
    for (const bench of this.benches.values()) bench.release();
    this.benches.clear();
    for (const library of this.libraries) library.release();
    this.libraries.length = 0;
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
    const compiled = async (schedule: CpuSchedule): Promise<Compiled | string> => {
      const emitted = known.get(cpuScheduling.key(schedule))!;
      if (!this.compiled.has(emitted.symbol)) await this.compileFrom([...known.values()], emitted, signal);
      return this.compiled.get(emitted.symbol) ?? 'it was not compiled';
    };
    const referenceCode = await compiled(reference);
    const bench = this.bench(kernel, module, signature);
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
      (k) => !this.compiled.has(k.symbol),
    );
    const from = missing.findIndex(({ symbol }) => symbol === first.symbol);
    const next = missing.slice(from, from + availableParallelism());
    let done = 0;
    const tell = (): void => this.options.onCompiled?.(done, next.length);
    tell();
    await Promise.all(
      next.map(async (kernel) => {
        this.compiled.set(kernel.symbol, await this.compileOne(kernel, signal));
        done++;
        tell();
      }),
    );
  }

  /** The loaded function, or the compiler's message. Other failures (no compiler, no disk space) are thrown. */
  private async compileOne(emitted: EmittedKernel, signal: AbortSignal | undefined): Promise<Compiled | string> {
    try {
      const { isa, settings } = this.options;
      const { path } = await compileShared([unitOf(emitted)], {
        isa,
        ...(settings === undefined ? {} : { settings }),
        ...(signal === undefined ? {} : { signal }),
      });
      const library = new this.addon.Library(path);
      this.libraries.push(library);
      return { library, emitted };
    } catch (error) {
      if (error instanceof UserError && error.message.includes('does not compile')) return error.message;
      throw error;
    }
  }

  /** One copy of the weights for each layer that shares the kernel, up to what exceeds the shared cache. */
  private bench(kernel: Kernel, module: KernelModule, signature: string): Workbench {
    const known = this.benches.get(signature);
    if (known !== undefined) {
      this.benches.delete(signature);
      this.benches.set(signature, known);
      return known;
    }
    const layers = this.countOf(module, signature);
    const weights = Math.max(
      1,
      kernelWork(kernel, module, { extents: everyExtent(module.interface, 0), longest: 0 }).bytes,
    );
    const outOfCache = Math.ceil((2 * (this.options.l3Bytes ?? 0)) / weights);
    const copies = Math.max(1, Math.min(layers, outOfCache, Math.floor(MAX_COPY_BYTES / weights), MAX_COPIES));
    const bench = new Workbench(kernel, module, this.options.capacity, copies, this.addon, this.pool);
    this.benches.set(signature, bench);
    let total = [...this.benches.values()].reduce((sum, b) => sum + b.bytes, 0);
    for (const [key, old] of this.benches) {
      if (total <= (this.options.memoryBytes ?? KEPT_BYTES) || old === bench) break;
      total -= old.bytes;
      old.release();
      this.benches.delete(key);
    }
    return bench;
  }

  private countOf(module: KernelModule, signature: string): number {
    let counts = this.counts.get(module);
    if (counts === undefined) {
      const made = new Map<string, number>();
      for (const kernel of module.kernels) {
        const key = kernelSignature(kernel, module, this.options.capacity.extents);
        made.set(key, (made.get(key) ?? 0) + 1);
      }
      this.counts.set(module, made);
      counts = made;
    }
    return counts.get(signature) ?? 1;
  }

  private async withProgram<T>(
    { library, emitted }: Compiled,
    bench: Workbench,
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
  private async resultOf(program: NativeProgram, bench: Workbench, bucket: Bucket): Promise<string> {
    await bench.prepareCheck(bucket);
    await program.run({ extents: sizesOf(bench.interface, bucket.extents), inputs: [] });
    return bench.digest(bucket);
  }
}

/** Seconds of each launch, over all copies in turn. The checked run has already warmed the caches. */
async function sample(
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
