/**
 * Measures candidates on the device. Compiles them in parallel, compares each result with one computed on CUDA cores,
 * then times launches on random data that is not in the L2 cache. Clocks vary by more than candidates differ, so each
 * candidate is timed next to the default and its time is scaled to the default's first measurement.
 */
import { at } from '../../system/at.js';
import { kernelSignature } from '../../codegen/cuda/index.js';
import { UserError } from '../../errors.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { isCudaError } from '../../runtime/cuda/addon.js';
import type { CudaProgram } from '../../runtime/cuda/native.js';
import type { FinalRequest, HoldFinal } from '../finals.js';
import type { Measure, Measurement, MeasureRequest } from '../measurement.js';
import { median } from '../records.js';
import { KernelCubins, type KernelCubinsOptions } from './compiledKernels.js';
import { type DeviceFill, type DeviceTools, loadDeviceTools } from './fill.js';
import { contend, SequenceBench } from './sequence.js';
import {
  endsDevice,
  Hung,
  launchTimes,
  lostInFinal,
  lostToCandidate,
  paceOf,
  patiently,
  sample,
  shorten,
  timedBetween,
} from './timing.js';
import { KeptBenches } from '../workbench.js';
import { CudaWorkbench } from './workbench.js';

/** On what, and within what, candidates are measured. */
export interface CudaMeasurerOptions extends KernelCubinsOptions {
  /** The schedule whose result is taken as correct: CUDA cores, no optimizations. */
  readonly reference: (kernel: Kernel, module: KernelModule, bucket: Bucket) => CudaSchedule;
  /** Limit on device memory for the operands of kernels that may be measured again. Default: 60 % of free memory. */
  readonly memoryBytes?: number;
  /** Seconds after which a launch counts as hung. */
  readonly patienceSeconds?: number;
  /** Called with the reason when a final cannot be held. */
  readonly onNoFinal?: (reason: string) => void;
}

const FREE_SHARE = 0.6;

/** Measures requests on one device. */
export class CudaMeasurer {
  private readonly options: CudaMeasurerOptions;
  private readonly tools: DeviceTools;
  private readonly kernels: KernelCubins;
  /** By signature and bucket. */
  private readonly benches: KeptBenches<CudaWorkbench>;
  /** The last sequence of a final. It takes the place of all benches: the search is then over, or nearly. */
  private sequence: { readonly key: string; readonly bench: SequenceBench } | undefined;
  private readonly underWay = new Set<Promise<unknown>>();

  private constructor(options: CudaMeasurerOptions, tools: DeviceTools) {
    this.options = options;
    this.tools = tools;
    this.kernels = new KernelCubins(options);
    this.benches = new KeptBenches(options.memoryBytes ?? FREE_SHARE * options.device.memory().freeBytes);
  }

  /** Compiles the tuner's own device code. Throws UserError if there is no compiler, CudaError if the device fails. */
  static async create(options: CudaMeasurerOptions): Promise<CudaMeasurer> {
    return new CudaMeasurer(options, await loadDeviceTools(options));
  }

  /** Random operands for other users, such as the vendor's library. */
  get randomFill(): DeviceFill {
    return this.tools.fill;
  }

  release(): void {
    this.benches.release();
    this.releaseSequence();
    this.tools.release();
  }

  /** Compiles the kernels of several requests in parallel. */
  readonly prepare = async (requests: readonly MeasureRequest<CudaSchedule>[]): Promise<void> => {
    await this.during(this.prepareAll(requests));
  };

  private async prepareAll(requests: readonly MeasureRequest<CudaSchedule>[]): Promise<void> {
    const all = requests.map((request) => ({
      ...request,
      schedules: [this.referenceOf(request), ...request.schedules],
    }));
    await this.kernels.prepare(all, requests[0]?.signal);
  }

  readonly measure: Measure<CudaSchedule> = (request) => this.run(request);

  /**
   * Seconds from `time`, scaled as a candidate's are: to the device's speed when the default of `request` was measured.
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
    return timedBetween(referenceSeconds, () => this.defaultNow(request, bench), time);
  }

  /** Holds finals (HoldFinal). Memory shortages and compile errors are reported to `onNoFinal`. */
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
        kernels.map((kernel, i) => this.kernels.emit({ kernel, module }, at(schedules, i))),
      );
      await this.kernels.compile(texts.flat(), signal);
      if (signal?.aborted === true) return undefined;
      const bench = await this.sequenceBench(kernels, module, bucket);
      return await contend(
        {
          addon,
          device,
          seconds,
          settling,
          onRound,
          signal,
          patienceSeconds,
          contenders: texts.map((parts) => parts.map((text) => this.kernels.require(text))),
        },
        bench,
      );
    } catch (error) {
      if (endsDevice(error)) throw lostInFinal(kernels, bucket, error);
      this.options.onNoFinal?.(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }

  private referenceOf({ kernel, module, bucket }: MeasureRequest<CudaSchedule>): CudaSchedule {
    return this.options.reference(kernel, module, bucket);
  }

  /** Resolves when no request is in progress. Required before release(). */
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
    const pace = paceOf(request, () => this.defaultNow(request, bench));
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
        if (endsDevice(error)) fatal = error;
        measurement = { schedule, failure: shorten(error.message) };
      }
      if ('seconds' in measurement) best = Math.min(best, median(measurement.seconds));
      // Recorded first, so that the next run does not try it again.
      yield measurement;
      if (fatal !== undefined) throw lostToCandidate(request, schedule, fatal);
    }
  }

  /** Seconds of a burst of the default; undefined if it did not compile. */
  private async defaultNow(request: MeasureRequest<CudaSchedule>, bench: CudaWorkbench): Promise<number | undefined> {
    const compiled = this.kernels.get(this.kernels.emit(request, request.reference));
    if (typeof compiled === 'string') return undefined;
    return median(await this.kernels.withProgram(compiled, bench, (program) => this.burst(program, bench, Infinity)));
  }

  private async sequenceBench(
    kernels: readonly Kernel[],
    module: KernelModule,
    bucket: Bucket,
  ): Promise<SequenceBench> {
    const { addon, device, capacity } = this.options;
    const key = JSON.stringify([kernels.map(({ name }) => name), bucket]);
    if (this.sequence?.key === key) return this.sequence.bench;
    this.releaseSequence();
    this.benches.release();
    const fresh = new SequenceBench({ addon, device, fill: this.tools.fill, module, kernels, bucket, capacity });
    const bench = await prepared(fresh, () => fresh.fill());
    this.sequence = { key, bench };
    return bench;
  }

  private releaseSequence(): void {
    this.sequence?.bench.release();
    this.sequence = undefined;
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
      async (program) => ({ schedule, seconds: await this.burst(program, bench, best) }),
    );
  }

  /** Seconds per launch, over all copies in turn. */
  private burst(program: CudaProgram, { launches, sizes }: CudaWorkbench, best: number): Promise<readonly number[]> {
    return sample(launchTimes(program, launches, sizes, { patienceSeconds: this.options.patienceSeconds }), best);
  }

  /** Calls back with the candidate's program once its result has been compared. */
  private async withCandidate<T>(
    request: MeasureRequest<CudaSchedule>,
    schedule: CudaSchedule,
    bench: CudaWorkbench,
    fail: (failure: string) => T,
    use: (program: CudaProgram) => Promise<T>,
  ): Promise<T> {
    let compiled: ReturnType<KernelCubins['get']>;
    try {
      compiled = this.kernels.get(this.kernels.emit(request, schedule));
    } catch (error) {
      return fail(`no code could be generated: ${error instanceof Error ? error.message : String(error)}`);
    }
    if (typeof compiled === 'string') return fail(compiled);
    return this.kernels.withProgram(compiled, bench, async (program) => {
      const difference = await this.patiently(bench.difference(program));
      return difference === undefined ? use(program) : fail(difference);
    });
  }

  private async benchWithReference(request: MeasureRequest<CudaSchedule>): Promise<CudaWorkbench> {
    const { kernel, module, bucket } = request;
    const { capacity, addon, device } = this.options;
    const { fill, compare } = this.tools;
    const key = JSON.stringify([kernelSignature(kernel, module, capacity.extents), bucket]);
    const known = this.benches.find(key);
    if (known !== undefined) return known;
    const fresh = new CudaWorkbench({ kernel, module, bucket, capacity, addon, device, fill, compare });
    const bench = await prepared(fresh, async () => {
      const compiled = this.kernels.get(this.kernels.emit(request, this.referenceOf(request)));
      if (typeof compiled === 'string')
        throw new UserError(
          `The reference of ${kernel.path} does not compile: ${compiled}`,
          'See its source: tilewright inspect MODEL --kernel NAME',
        );
      await fresh.fill();
      await this.kernels.withProgram(compiled, fresh, (program) => this.patiently(fresh.learnReference(program)));
    });
    return this.benches.keep(key, bench);
  }

  private patiently<T>(work: Promise<T>): Promise<T> {
    return patiently(work, this.options.patienceSeconds);
  }
}

/** A bench that has been prepared; released where that fails. */
async function prepared<B extends { release(): void }>(fresh: B, prepare: () => Promise<void>): Promise<B> {
  try {
    await prepare();
    return fresh;
  } catch (error) {
    fresh.release();
    throw error;
  }
}
