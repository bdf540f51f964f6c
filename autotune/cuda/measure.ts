/**
 * Measures candidates on the device: compiles them side by side, compares each result with the one computed on CUDA
 * cores, then times launches on random data that the L2 cache does not hold. Clocks wander by more than candidates
 * differ: each is timed beside the default, and told in the default's terms.
 */
import { tokensIn } from '../../ir/scoring.js';
import { emitCudaKernel, kernelSignature } from '../../codegen/cuda/index.js';
import { UserError } from '../../errors.js';
import type { CudaKernelText, CudaSchedule } from '../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { isCudaError, type CudaAddon, type CudaDevice, type CudaProgram } from '../../runtime/cuda/addon.js';
import { median } from '../median.js';
import { cudaScheduling } from '../../codegen/cuda/scheduling.js';
import type { FinalRequest, HoldFinal } from '../finals.js';
import type { Measure, Measurement, MeasureRequest } from '../measurement.js';
import type { DeviceFill } from './fill.js';
import { contend, type Compiled } from './finals.js';
import { Hung, patiently } from './patience.js';
import { launchTimes } from './interleave.js';
import { sample, wasGivenUp } from './sample.js';
import { SequenceBench } from './sequence.js';
import { loadDeviceTools, type CompileKernels, type DeviceTools } from './tools.js';
import { CudaWorkbench } from './workbench.js';

export { isDeviceHung } from './patience.js';
export type { CompileKernels } from './tools.js';

export interface CudaMeasurerOptions {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  /** Largest micro-batch of the plan: fixes strides. */
  readonly capacity: Bucket;
  readonly compile: CompileKernels;
  /** The schedule whose result is right: CUDA cores, no tricks. */
  readonly reference: (kernel: Kernel, module: KernelModule, bucket: Bucket) => CudaSchedule;
  /** Prints kernels; tests bring their own. */
  readonly emit?: typeof emitCudaKernel;
  /** Device memory for operands of kernels that may be measured again. Default: three fifths of what is free. */
  readonly memoryBytes?: number;
  /** Seconds after which a launch counts as hung. */
  readonly patienceSeconds?: number;
  /** A final could not be held: hears why. */
  readonly onNoFinal?: (reason: string) => void;
}

const FREE_SHARE = 0.6;

export class CudaMeasurer {
  private readonly options: CudaMeasurerOptions;
  private readonly tools: DeviceTools;
  private readonly memoryBytes: number;
  /** Machine code by symbol, or why there is none. */
  private readonly compiled = new Map<string, Uint8Array | string>();
  /** By signature and bucket, least recently used first. */
  private readonly benches = new Map<string, CudaWorkbench>();
  private readonly underWay = new Set<Promise<unknown>>();
  /** Of the last final in a sequence. */
  private sequence: { readonly key: string; readonly bench: SequenceBench } | undefined;

  private constructor(options: CudaMeasurerOptions, tools: DeviceTools) {
    this.options = options;
    this.tools = tools;
    this.memoryBytes = options.memoryBytes ?? FREE_SHARE * options.device.memory().freeBytes;
  }

  /**
   * Compiles the tuner's own device code. Throws UserError where there is no compiler, CudaError where the device
   * fails.
   */
  static async create(options: CudaMeasurerOptions): Promise<CudaMeasurer> {
    return new CudaMeasurer(options, await loadDeviceTools(options));
  }

  /** Random operands for others, such as the vendor's library. */
  get randomFill(): DeviceFill {
    return this.tools.fill;
  }

  release(): void {
    for (const bench of this.benches.values()) bench.release();
    this.benches.clear();
    this.sequence?.bench.release();
    this.sequence = undefined;
    this.tools.release();
  }

  /** Compiles what many requests will need, all side by side. */
  readonly prepare = async (requests: readonly MeasureRequest<CudaSchedule>[]): Promise<void> => {
    await this.during(this.prepareAll(requests));
  };

  private async prepareAll(requests: readonly MeasureRequest<CudaSchedule>[]): Promise<void> {
    await this.compile(
      requests.flatMap((request) =>
        [this.referenceOf(request), ...request.schedules].flatMap((schedule) => this.tryEmit(request, schedule) ?? []),
      ),
      requests[0]?.signal,
    );
  }

  readonly measure: Measure<CudaSchedule> = (request) => this.run(request);

  /**
   * Seconds that `time` gives, told like a candidate's: as if the device ran as fast as when the default of `request`
   * was measured.
   */
  readonly tellBeside = (
    request: MeasureRequest<CudaSchedule>,
    time: () => Promise<readonly number[]>,
  ): Promise<readonly number[]> => this.during(this.timeBeside(request, time));

  private async timeBeside(
    request: MeasureRequest<CudaSchedule>,
    time: () => Promise<readonly number[]>,
  ): Promise<readonly number[]> {
    const { referenceSeconds } = request;
    if (referenceSeconds === undefined) return time();
    await this.prepareAll([{ ...request, schedules: [request.reference] }]);
    const bench = await this.benchWithReference(request);
    const before = await this.defaultNow(request, bench);
    const seconds = await time();
    const after = await this.defaultNow(request, bench);
    return before === undefined || after === undefined
      ? seconds
      : seconds.map((each) => (each * 2 * referenceSeconds) / (before + after));
  }

  /** Holds finals (HoldFinal). What is short of memory or does not compile is told to `onNoFinal`. */
  readonly hold: HoldFinal<CudaSchedule> = (request) => this.during(this.holdFinal(request));

  private async holdFinal({
    module,
    bucket,
    kernels,
    contenders,
    seconds,
    settling,
    onRound,
    signal,
  }: FinalRequest<CudaSchedule>): Promise<readonly (readonly number[])[] | undefined> {
    const { addon, device, patienceSeconds } = this.options;
    try {
      const texts = contenders.map((schedules) =>
        kernels.map((kernel, i) => this.emit({ kernel, module }, schedules[i]!)),
      );
      await this.compile(texts.flat(), signal);
      if (signal?.aborted === true) return undefined;
      const bench = await this.sequenceBench(kernels, module, bucket);
      return await contend(
        {
          addon,
          device,
          bucket,
          seconds,
          settling,
          onRound,
          signal,
          patienceSeconds,
          contenders: texts.map((parts) => parts.map((text) => this.compiledAs(text))),
        },
        bench,
      );
    } catch (error) {
      if (error instanceof Hung || (isCudaError(error) && error.isContextDead)) {
        throw new UserError(
          `A final of ${kernels.length} kernels at ${tokensIn(bucket)} tokens ended the use of the device: ${error.message}`,
          'run the same tune command again: what was measured is kept',
          { cause: error },
        );
      }
      this.options.onNoFinal?.(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }

  private referenceOf({ kernel, module, bucket }: MeasureRequest<CudaSchedule>): CudaSchedule {
    return this.options.reference(kernel, module, bucket);
  }

  private emit(
    { kernel, module }: Pick<MeasureRequest<CudaSchedule>, 'kernel' | 'module'>,
    schedule: CudaSchedule,
  ): CudaKernelText {
    return (this.options.emit ?? emitCudaKernel)(kernel, module, schedule, this.options.capacity.extents);
  }

  private tryEmit(request: MeasureRequest<CudaSchedule>, schedule: CudaSchedule): CudaKernelText | undefined {
    try {
      return this.emit(request, schedule);
    } catch {
      // Asked again when it is measured, which tells why.
      return undefined;
    }
  }

  private async compile(texts: readonly CudaKernelText[], signal: AbortSignal | undefined): Promise<void> {
    const missing = [...new Map(texts.map((text) => [text.symbol, text])).values()].filter(
      ({ symbol }) => !this.compiled.has(symbol),
    );
    if (missing.length === 0) return;
    const units = missing.map(({ symbol, source }) => ({ symbol, source }));
    const { cubins, failures } = await this.options.compile(units, signal);
    for (const { symbol } of missing) {
      const outcome = cubins.get(symbol) ?? failures.get(symbol)?.message;
      if (outcome !== undefined) this.compiled.set(symbol, outcome);
    }
  }

  /** Ends when nothing that was asked for is under way: release() needs that. */
  async idle(): Promise<void> {
    while (this.underWay.size > 0) await Promise.allSettled(this.underWay);
  }

  private async during<T>(work: Promise<T>): Promise<T> {
    this.underWay.add(work);
    try {
      return await work;
    } finally {
      this.underWay.delete(work);
    }
  }

  private async *run(request: MeasureRequest<CudaSchedule>): AsyncGenerator<Measurement<CudaSchedule>> {
    let end: () => void = () => undefined;
    const whole = new Promise<void>((resolve) => (end = resolve));
    this.underWay.add(whole);
    try {
      yield* this.measureAll(request);
    } finally {
      this.underWay.delete(whole);
      end();
    }
  }

  private async *measureAll(request: MeasureRequest<CudaSchedule>): AsyncGenerator<Measurement<CudaSchedule>> {
    await this.prepareAll([{ ...request, schedules: [request.reference, ...request.schedules] }]);
    const isStopped = (): boolean => request.signal?.aborted === true;
    if (isStopped()) return;
    const bench = await this.benchWithReference(request);
    const pace = this.paceOf(request, bench);
    let best = request.bestSeconds ?? Infinity;
    for (const schedule of request.schedules) {
      if (isStopped()) return;
      let measurement: Measurement<CudaSchedule>;
      let fatal: unknown;
      try {
        measurement = await this.one(request, schedule, bench, best);
        if ('seconds' in measurement) measurement = { schedule, seconds: await pace(schedule, measurement.seconds) };
      } catch (error) {
        if (!isCudaError(error) && !(error instanceof Hung)) throw error;
        if (isCudaError(error) ? error.isContextDead : true) fatal = error;
        measurement = { schedule, failure: shorten(error.message) };
      }
      if ('seconds' in measurement) best = Math.min(best, median(measurement.seconds));
      // Recorded first: the next run knows better than to try it.
      yield measurement;
      if (fatal !== undefined) throw lost(request, schedule, fatal);
    }
  }

  /**
   * Tells seconds of a candidate as if the device ran as fast as when the default was measured: the default runs again
   * after each, and what it takes before and after says how fast the device is. As they are where the default fails,
   * and where the candidate was given up.
   */
  private paceOf(
    request: MeasureRequest<CudaSchedule>,
    bench: CudaWorkbench,
  ): (schedule: CudaSchedule, seconds: readonly number[]) => Promise<readonly number[]> {
    const own = cudaScheduling.key(request.reference);
    let nominal = request.referenceSeconds;
    let before: number | undefined;
    return async (schedule, seconds) => {
      const taken = median(seconds);
      if (cudaScheduling.key(schedule) === own) {
        nominal ??= taken;
        before = taken;
        return seconds;
      }
      if (nominal === undefined || wasGivenUp(seconds)) return seconds;
      const after = await this.defaultNow(request, bench);
      if (after === undefined) return seconds;
      const factor = (2 * nominal) / ((before ?? after) + after);
      before = after;
      return seconds.map((each) => each * factor);
    };
  }

  /** Seconds of a burst of the default; undefined where it did not compile. */
  private async defaultNow(request: MeasureRequest<CudaSchedule>, bench: CudaWorkbench): Promise<number | undefined> {
    const text = this.emit(request, request.reference);
    const cubin = this.compiled.get(text.symbol);
    if (cubin === undefined || typeof cubin === 'string') return undefined;
    return median(
      await this.withProgram(text, cubin, bench, (program) => this.burst(program, bench, request, Infinity)),
    );
  }

  /** Throws Error where it did not compile. */
  private compiledAs(text: CudaKernelText): Compiled {
    const cubin = this.compiled.get(text.symbol);
    if (cubin === undefined || typeof cubin === 'string') throw new Error(cubin ?? `${text.symbol} was not compiled`);
    return { text, cubin };
  }

  private async sequenceBench(
    kernels: readonly Kernel[],
    module: KernelModule,
    bucket: Bucket,
  ): Promise<SequenceBench> {
    const { addon, device, capacity } = this.options;
    const key = JSON.stringify([kernels.map(({ name }) => name), bucket]);
    if (this.sequence?.key === key) return this.sequence.bench;
    this.sequence?.bench.release();
    this.sequence = undefined;
    // The search is over, or nearly: what it kept for kernels one by one makes room.
    for (const old of this.benches.values()) old.release();
    this.benches.clear();
    const bench = new SequenceBench({ addon, device, fill: this.tools.fill, module, kernels, bucket, capacity });
    try {
      await bench.fill();
    } catch (error) {
      bench.release();
      throw error;
    }
    this.sequence = { key, bench };
    return bench;
  }

  /** Checks and times one candidate. */
  private one(
    request: MeasureRequest<CudaSchedule>,
    schedule: CudaSchedule,
    bench: CudaWorkbench,
    best: number,
  ): Promise<Measurement<CudaSchedule>> {
    return this.withCandidate<Measurement<CudaSchedule>>(
      request,
      schedule,
      bench,
      (failure) => ({ schedule, failure: shorten(failure) }),
      async (program) => ({ schedule, seconds: await this.burst(program, bench, request, best) }),
    );
  }

  /** Seconds of a launch, all copies in turn. */
  private burst(
    program: CudaProgram,
    { launches }: CudaWorkbench,
    { bucket }: MeasureRequest<CudaSchedule>,
    best: number,
  ): Promise<readonly number[]> {
    return sample(launchTimes(program, launches, bucket, { patienceSeconds: this.options.patienceSeconds }), best);
  }

  /** Its program, once its result has been compared. */
  private async withCandidate<T>(
    request: MeasureRequest<CudaSchedule>,
    schedule: CudaSchedule,
    bench: CudaWorkbench,
    fail: (failure: string) => T,
    use: (program: CudaProgram) => Promise<T>,
  ): Promise<T> {
    let text: CudaKernelText;
    try {
      text = this.emit(request, schedule);
    } catch (error) {
      return fail(`no code for it: ${error instanceof Error ? error.message : String(error)}`);
    }
    const cubin = this.compiled.get(text.symbol);
    if (cubin === undefined || typeof cubin === 'string') return fail(cubin ?? 'it was not compiled');
    return this.withProgram(text, cubin, bench, async (program) => {
      const difference = await this.patiently(bench.difference(program));
      return difference === undefined ? use(program) : fail(difference);
    });
  }

  private async withProgram<T>(
    text: CudaKernelText,
    cubin: Uint8Array,
    bench: CudaWorkbench,
    use: (program: CudaProgram) => Promise<T>,
  ): Promise<T> {
    const module = new this.options.addon.Module(this.options.device, cubin);
    let program: CudaProgram | undefined;
    let isHung = false;
    try {
      program = bench.program(text, module);
      return await use(program);
    } catch (error) {
      isHung = error instanceof Hung;
      throw error;
    } finally {
      // What a hung kernel uses cannot be taken from it: the process ends with it.
      if (!isHung) {
        program?.release();
        module.release();
      }
    }
  }

  private async benchWithReference(request: MeasureRequest<CudaSchedule>): Promise<CudaWorkbench> {
    const { kernel, module, bucket } = request;
    const { capacity, addon, device } = this.options;
    const key = JSON.stringify([kernelSignature(kernel, module, capacity.extents), bucket]);
    let bench = this.benches.get(key);
    this.benches.delete(key);
    if (bench === undefined) {
      const text = this.emit(request, this.referenceOf(request));
      const cubin = this.compiled.get(text.symbol);
      if (cubin === undefined || typeof cubin === 'string')
        throw new UserError(
          `The reference of ${kernel.path} does not compile: ${cubin ?? 'it was not tried'}`,
          'Look at it: tilewright inspect MODEL --kernel NAME',
        );
      bench = new CudaWorkbench({
        kernel,
        module,
        bucket,
        capacity,
        addon,
        device,
        fill: this.tools.fill,
        compare: this.tools.compare,
      });
      const fresh = bench;
      try {
        await fresh.fill();
        await this.withProgram(text, cubin, fresh, (program) => this.patiently(fresh.learnReference(program)));
      } catch (error) {
        fresh.release();
        throw error;
      }
    }
    this.benches.set(key, bench);
    this.trim(bench);
    return bench;
  }

  private trim(kept: CudaWorkbench): void {
    let total = [...this.benches.values()].reduce((sum, b) => sum + b.bytes, 0);
    for (const [key, old] of this.benches) {
      if (total <= this.memoryBytes || old === kept) break;
      total -= old.bytes;
      old.release();
      this.benches.delete(key);
    }
  }

  private patiently<T>(work: Promise<T>): Promise<T> {
    return patiently(work, this.options.patienceSeconds);
  }
}

const lost = (request: MeasureRequest<CudaSchedule>, schedule: CudaSchedule, cause: unknown): UserError =>
  new UserError(
    `${request.kernel.path} with ${cudaScheduling.key(schedule)} ended the use of the device: ${cause instanceof Error ? cause.message : String(cause)}`,
    'run the same tune command again: it goes on where it was, without that schedule',
    { cause },
  );

/** First line, as long as a record takes. */
const shorten = (text: string): string => text.trim().slice(0, 400) || 'it failed without a word';
