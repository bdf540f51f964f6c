/**
 * Measures candidates on the device: compiles them side by side, compares each result with the one computed on CUDA
 * cores, then times launches on random data that the L2 cache does not hold.
 */
import { emitCudaKernel, kernelSignature } from '../../codegen/cuda/index.js';
import { UserError } from '../../errors.js';
import type { CudaKernelText, CudaSchedule } from '../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { isCudaError, type CudaAddon, type CudaDevice, type CudaProgram } from '../../runtime/cuda/addon.js';
import { cudaScheduleKey, median } from '../database.js';
import type { Measure, Measurement, MeasureRequest } from '../measure.js';
import type { DeviceFill } from './fill.js';
import { interleave, ratioOverRounds, secondsOfLaunch, warmUp, type Contender } from './interleave.js';
import { Hung, patiently } from './patience.js';
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
}

const FIRST_SAMPLES = 3;
const MIN_SAMPLES = 7;
const MAX_SAMPLES = 60;
const SAMPLE_SECONDS = 0.03;
/** Launches before the counted ones: clocks settle, the queue fills. */
const WARM_SECONDS = 0.004;
const MAX_WARM = 64;
/** Samples shorter than this are several launches: events tell half a microsecond. */
const SHORTEST_SAMPLE = 1e-4;
const MAX_PER_SAMPLE = 32;
/** After the first samples, a candidate this much slower than the best is given up. */
const HOPELESS = 1.3;
const FREE_SHARE = 0.6;
/** Of load before the final pair: what the card's power control takes to settle. */
const LOAD_SECONDS = 0.25;
const FINAL = { rounds: 4, seconds: 0.2 } as const;

export class CudaMeasurer {
  private readonly options: CudaMeasurerOptions;
  private readonly tools: DeviceTools;
  private readonly memoryBytes: number;
  /** Machine code by symbol, or why there is none. */
  private readonly compiled = new Map<string, Uint8Array | string>();
  /** By signature and bucket, least recently used first. */
  private readonly benches = new Map<string, CudaWorkbench>();

  private constructor(options: CudaMeasurerOptions, tools: DeviceTools) {
    this.options = options;
    this.tools = tools;
    this.memoryBytes = options.memoryBytes ?? FREE_SHARE * options.device.memory().freeBytes;
  }

  /** Compiles the tuner's own device code. Throws UserError where there is no compiler, CudaError where the device fails. */
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
    this.tools.release();
  }

  /** Compiles what many requests will need, all side by side. */
  readonly prepare = async (requests: readonly MeasureRequest<CudaSchedule>[]): Promise<void> => {
    await this.compile(requests.flatMap((request) => [this.referenceOf(request), ...request.schedules].flatMap((schedule) => this.tryEmit(request, schedule) ?? [])));
  };

  readonly measure: Measure<CudaSchedule> = (request) => this.run(request);

  private referenceOf({ kernel, module, bucket }: MeasureRequest<CudaSchedule>): CudaSchedule {
    return this.options.reference(kernel, module, bucket);
  }

  private emit({ kernel, module }: MeasureRequest<CudaSchedule>, schedule: CudaSchedule): CudaKernelText {
    return (this.options.emit ?? emitCudaKernel)(kernel, module, schedule, this.options.capacity.tokens);
  }

  private tryEmit(request: MeasureRequest<CudaSchedule>, schedule: CudaSchedule): CudaKernelText | undefined {
    try {
      return this.emit(request, schedule);
    } catch {
      // Asked again when it is measured, which tells why.
      return undefined;
    }
  }

  private async compile(texts: readonly CudaKernelText[]): Promise<void> {
    const missing = [...new Map(texts.map((text) => [text.symbol, text])).values()].filter(({ symbol }) => !this.compiled.has(symbol));
    if (missing.length === 0) return;
    const { cubins, failures } = await this.options.compile(missing.map(({ symbol, source }) => ({ symbol, source })));
    for (const { symbol } of missing) this.compiled.set(symbol, cubins.get(symbol) ?? failures.get(symbol)?.message ?? 'it was not compiled');
  }

  private async *run(request: MeasureRequest<CudaSchedule>): AsyncGenerator<Measurement<CudaSchedule>> {
    await this.prepare([request]);
    const bench = await this.benchWithReference(request);
    let best = request.bestSeconds ?? Infinity;
    if (request.isFinal === true && request.schedules.length === 2) {
      yield* await this.final(request, bench);
      return;
    }
    for (const schedule of request.schedules) {
      let measurement: Measurement<CudaSchedule>;
      let fatal: unknown;
      try {
        measurement = await this.one(request, schedule, bench, best);
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
   * The default against the best of the search, in turn, at the clock that the power limit leaves under a run's load: what
   * is faster in a moment's burst may take more energy, and so be slower for hours. The best keeps a time like those of
   * its rivals in the search; the default gets the multiple of it that it takes under load.
   */
  private async final(request: MeasureRequest<CudaSchedule>, bench: CudaWorkbench): Promise<readonly Measurement<CudaSchedule>[]> {
    const [start, best] = request.schedules as readonly [CudaSchedule, CudaSchedule];
    try {
      const measured = [await this.one(request, start, bench, Infinity), await this.one(request, best, bench, Infinity)] as const;
      const [first, second] = measured;
      if (!('seconds' in first) || !('seconds' in second)) return measured;
      const slowness = await this.slownessUnderLoad(request, start, best, bench);
      return [{ schedule: start, seconds: second.seconds.map((seconds) => seconds * slowness) }, second];
    } catch (error) {
      if (error instanceof Hung || (isCudaError(error) && error.isContextDead)) throw lost(request, best, error);
      throw error;
    }
  }

  /** How many times as long as `best` `start` takes. Both have been measured before, and so are compiled. */
  private slownessUnderLoad(request: MeasureRequest<CudaSchedule>, start: CudaSchedule, best: CudaSchedule, bench: CudaWorkbench): Promise<number> {
    const { tokens, rows } = request.bucket;
    const withContender = <T>(schedule: CudaSchedule, use: (contender: Contender) => Promise<T>): Promise<T> => {
      const text = this.emit(request, schedule);
      return this.withProgram(text, this.compiled.get(text.symbol) as Uint8Array, bench, (program) => use({
        name: cudaScheduleKey(schedule),
        time: async (shape) => secondsOfLaunch(await this.patiently(program.time({ tokens, rows, launches: bench.launches, ...shape })), shape.perSample),
      }));
    };
    return withContender(best, (ours) => withContender(start, async (other) => {
      await warmUp(ours, LOAD_SECONDS);
      const [oursSeconds = [], otherSeconds = []] = await interleave([ours, other], FINAL);
      return ratioOverRounds(oursSeconds, otherSeconds);
    }));
  }

  /** Checks and times one candidate. */
  private async one(request: MeasureRequest<CudaSchedule>, schedule: CudaSchedule, bench: CudaWorkbench, best: number): Promise<Measurement<CudaSchedule>> {
    let text: CudaKernelText;
    try {
      text = this.emit(request, schedule);
    } catch (error) {
      return { schedule, failure: shorten(`no code for it: ${error instanceof Error ? error.message : String(error)}`) };
    }
    const cubin = this.compiled.get(text.symbol);
    if (cubin === undefined || typeof cubin === 'string') return { schedule, failure: shorten(cubin ?? 'it was not compiled') };
    return this.withProgram(text, cubin, bench, async (program): Promise<Measurement<CudaSchedule>> => {
      const difference = await this.patiently(bench.difference(program));
      if (difference !== undefined) return { schedule, failure: shorten(difference) };
      return { schedule, seconds: await this.patiently(sample(program, bench.launches, request.bucket, best)) };
    });
  }

  private async withProgram<T>(text: CudaKernelText, cubin: Uint8Array, bench: CudaWorkbench, use: (program: CudaProgram) => Promise<T>): Promise<T> {
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
    const key = JSON.stringify([kernelSignature(kernel, module, capacity.tokens), bucket.tokens, bucket.rows, bucket.longest]);
    let bench = this.benches.get(key);
    this.benches.delete(key);
    if (bench === undefined) {
      const text = this.emit(request, this.referenceOf(request));
      const cubin = this.compiled.get(text.symbol);
      if (cubin === undefined || typeof cubin === 'string') throw new UserError(`The reference of ${kernel.path} does not compile: ${cubin ?? 'it was not tried'}`, 'Look at it: tilewright inspect MODEL --kernel NAME');
      bench = new CudaWorkbench({ kernel, module, bucket, capacity, addon, device, fill: this.tools.fill, compare: this.tools.compare });
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

const lost = (request: MeasureRequest<CudaSchedule>, schedule: CudaSchedule, cause: unknown): UserError => new UserError(
  `${request.kernel.path} with ${cudaScheduleKey(schedule)} ended the use of the device: ${cause instanceof Error ? cause.message : String(cause)}`,
  'run the same tune command again: it goes on where it was, without that schedule', { cause });

/** First line, as long as a record takes. */
const shorten = (text: string): string => (text.trim().slice(0, 400) || 'it failed without a word');

/** Seconds of a launch, once a sample, all copies in turn. */
async function sample(program: CudaProgram, launches: readonly number[], { tokens, rows }: Bucket, best: number): Promise<number[]> {
  const time = async (warmup: number, repeats: number, perSample: number): Promise<number[]> =>
    secondsOfLaunch(await program.time({ tokens, rows, launches, warmup, repeats, perSample }), perSample);
  const first = await time(1, FIRST_SAMPLES, 1);
  const estimate = median(first);
  if (estimate > HOPELESS * best) return first;
  const perSample = Math.max(1, Math.min(MAX_PER_SAMPLE, Math.ceil(SHORTEST_SAMPLE / estimate)));
  const repeats = Math.max(MIN_SAMPLES, Math.min(MAX_SAMPLES, Math.ceil(SAMPLE_SECONDS / (estimate * perSample))));
  return time(Math.min(MAX_WARM, Math.ceil(WARM_SECONDS / (estimate * perSample))), repeats, perSample);
}
