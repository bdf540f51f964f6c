/** Kernels that a measurer has printed and compiled, by symbol, and programs of them. */
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import type { CudaKernelText, CudaSchedule } from '../../ir/cuda.js';
import type { Bucket } from '../../ir/plan.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaDevice, CudaProgram } from '../../runtime/cuda/native.js';
import type { MeasureRequest } from '../measurement.js';
import type { CompileKernels } from './fill.js';
import type { KernelCubin } from './sequence.js';
import { Hung } from './timing.js';
import type { CudaWorkbench } from './workbench.js';

export interface KernelCubinsOptions {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  /** Largest micro-batch of the plan. It fixes strides. */
  readonly capacity: Bucket;
  readonly compile: CompileKernels;
  /** Prints kernels. Tests replace it. */
  readonly emit?: typeof emitCudaKernel;
}

type OfKernel = Pick<MeasureRequest<CudaSchedule>, 'kernel' | 'module'>;

export class KernelCubins {
  private readonly options: KernelCubinsOptions;
  /** Machine code by symbol, or why compilation failed. */
  private readonly outcomes = new Map<string, Uint8Array | string>();

  constructor(options: KernelCubinsOptions) {
    this.options = options;
  }

  emit({ kernel, module }: OfKernel, schedule: CudaSchedule): CudaKernelText {
    return (this.options.emit ?? emitCudaKernel)(kernel, module, schedule, this.options.capacity.extents);
  }

  /** Compiles in parallel what is new of the kernels with these schedules that can be printed. */
  async prepare(
    requests: readonly (OfKernel & { readonly schedules: readonly CudaSchedule[] })[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const texts = requests.flatMap((own) => own.schedules.flatMap((schedule) => this.tryEmit(own, schedule) ?? []));
    await this.compile(texts, signal);
  }

  private tryEmit(own: OfKernel, schedule: CudaSchedule): CudaKernelText | undefined {
    try {
      return this.emit(own, schedule);
    } catch {
      // The measurement itself compiles it again and reports the failure.
      return undefined;
    }
  }

  async compile(texts: readonly CudaKernelText[], signal: AbortSignal | undefined): Promise<void> {
    const missing = [...new Map(texts.map((text) => [text.symbol, text])).values()].filter(
      ({ symbol }) => !this.outcomes.has(symbol),
    );
    if (missing.length === 0) return;
    const units = missing.map(({ symbol, source, headers }) => ({ symbol, source, headers }));
    const { cubins, failures } = await this.options.compile(units, signal);
    for (const { symbol } of missing) {
      const outcome = cubins.get(symbol) ?? failures.get(symbol)?.message;
      if (outcome !== undefined) this.outcomes.set(symbol, outcome);
    }
  }

  /** The compiled kernel, or why there is none. */
  get(text: CudaKernelText): KernelCubin | string {
    const cubin = this.outcomes.get(text.symbol);
    if (cubin === undefined) return 'it was not compiled';
    return typeof cubin === 'string' ? cubin : { text, cubin };
  }

  /** Throws Error if it did not compile. */
  require(text: CudaKernelText): KernelCubin {
    const compiled = this.get(text);
    if (typeof compiled === 'string') throw new Error(compiled);
    return compiled;
  }

  /** Calls back with the kernel's program on a workbench, and releases it. */
  async withProgram<T>(
    { text, cubin }: KernelCubin,
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
      // Memory that a hung kernel uses cannot be released. It is freed when the process exits.
      if (!isHung) {
        program?.release();
        module.release();
      }
    }
  }
}
