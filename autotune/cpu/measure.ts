/**
 * Measures candidates on this machine. Compiles them in parallel, checks that each result equals the default schedule's
 * bit for bit, then times launches on random data in trees of the bucket's shape.
 */
import { emitKernel, kernelSignature, type EmittedKernel } from '../../codegen/cpu/index.js';
import { cpuScheduling } from '../../codegen/cpu/scheduling.js';
import { UserError } from '../../errors.js';
import type { KernelModule } from '../../ir/kernel.js';
import type { Bucket, CpuSchedule } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import { loadAddon, type Addon } from '../../runtime/addon.js';
import { programExtents, sizesOf } from '../../runtime/extents.js';
import type { NativeMemory, NativePool } from '../../runtime/nativeObjects.js';
import type { NativeProgram } from '../../runtime/nativeProgram.js';
import type { Rates } from '../bucketCost.js';
import type { Measure, Measurement, MeasureRequest } from '../measurement.js';
import { median } from '../median.js';
import { CompiledKernels, type Compiled, type CompilerOptions } from './compiledKernels.js';
import { measurePeaks } from './peaks.js';
import { sample } from './sample.js';
import type { Workbench } from './workbench.js';
import { Workbenches, type BenchOptions } from './workbenches.js';

/** On what, and within what, candidates are measured. */
export interface MeasurerOptions extends CompilerOptions, BenchOptions {
  readonly threads: number;
}

/** Measures one request after another, on a pool of threads of its own. */
export class Measurer {
  private readonly addon: Addon;
  private readonly options: MeasurerOptions;
  private readonly pool: NativePool;
  private readonly kernels: CompiledKernels;
  private readonly benches: Workbenches;
  private readonly references = new Map<string, string>();
  private scratch: NativeMemory | undefined;
  /** The last request that was started. */
  private underWay: Promise<void> = Promise.resolve();

  /** Throws UserError if the addon is not built. */
  constructor(options: MeasurerOptions) {
    this.options = options;
    this.addon = loadAddon();
    this.pool = new this.addon.Pool(options.threads);
    this.kernels = new CompiledKernels(options, this.addon);
    this.benches = new Workbenches(options, this.addon, this.pool);
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
    const compiled = (schedule: CpuSchedule): Promise<Compiled | string> =>
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
