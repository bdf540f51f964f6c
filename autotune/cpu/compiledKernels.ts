/** Kernels that a measurer has compiled and loaded, by symbol. */
import { availableParallelism } from 'node:os';
import { defined } from '../../system/defined.js';
import { unitOf, type EmittedKernel } from '../../codegen/cpu/index.js';
import { UserError } from '../../errors.js';
import type { CpuIsa } from '../../ir/plan.js';
import type { Addon } from '../../runtime/addon.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import type { NativeLibrary } from '../../runtime/nativeObjects.js';
import type { Settings } from '../../settings.js';

/** How kernels are compiled. */
export interface CompilerOptions {
  /** Instruction set that translation units are compiled for: the strongest in the plan. */
  readonly isa: CpuIsa;
  readonly settings?: Settings;
  /** Called as the candidates of a request are compiled. */
  readonly onCompiled?: (done: number, total: number) => void;
}

/** A kernel in a library that is loaded. */
export interface Compiled {
  readonly library: NativeLibrary;
  readonly emitted: EmittedKernel;
}

/** Compiles kernels when they are first asked for, and keeps them loaded. */
export class CompiledKernels {
  private readonly options: CompilerOptions;
  private readonly addon: Addon;
  private readonly libraries: NativeLibrary[] = [];
  /** The compiled kernel by symbol, or why it does not compile. */
  private readonly outcomes = new Map<string, Compiled | string>();

  constructor(options: CompilerOptions, addon: Addon) {
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
  ): Promise<Compiled | string> {
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
  private async compileOne(emitted: EmittedKernel, signal: AbortSignal | undefined): Promise<Compiled | string> {
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
