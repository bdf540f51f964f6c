/** A plan's kernels as C source and as libraries: one function for each pair of signature and schedule. */
import { readFile } from 'node:fs/promises';
import { emitKernel, type EmittedKernel, unitOf, unitsOf } from '../../codegen/cpu/index.js';
import type { CpuIsa, CpuSchedule, Plan } from '../../ir/plan.js';
import { loadAddon } from '../../runtime/addon.js';
import type { CompileLibrary, LaunchSymbol, PlanSymbols } from '../../runtime/cpu/buckets.js';
import { type CompiledLibrary, compileShared, installShared } from '../../runtime/cpu/compiler.js';
import { sharedObjectProblem } from '../../runtime/cpu/sharedObject.js';
import { expectedCompiler } from '../../runtime/cpu/systemCompiler.js';
import { defined } from '../../system/defined.js';
import type { CpuDevice } from './cpuDevice.js';
import { type CompiledPlan, compileOrUnpack, type PackedCode } from './machineCode.js';
import { emitKernels, type PrintedPlan, type Printing } from './printedKernels.js';
import type { CompiledModel, MachineCodeOptions } from './target.js';

/** A model compiled for a CPU. */
export type CpuModel = CompiledModel<CpuSchedule, CpuDevice>;

/** A plan's kernels as C. */
export type CpuPlanTexts = PrintedPlan<EmittedKernel>;

/** How a plan's kernels are printed, and what is kept of them. */
export const CPU_PRINTING: Printing<CpuSchedule, EmittedKernel> = {
  name: 'cpu',
  print: (kernel, fn, schedule) => emitKernel(kernel, fn, schedule, fn.capacity.extents),
  factsOf: ({ symbol, scratchBytes }, digest) => ({ symbol, digest, scratchBytes }),
  fileOf: unitOf,
};

/** Prints every kernel of every function with every schedule that the plan gives it. */
export const emitCpuPlan = (plan: Plan): CpuPlanTexts => emitKernels(plan, CPU_PRINTING);

/** Name of the shared object in an artifact. */
const LIBRARY = 'kernels.so';

/** The machines that a shared object runs on. */
const machineOf = (isa: CpuIsa): string => `${isa} ${process.platform}-${process.arch}`;

export interface CompiledCpuPlan extends CompiledPlan {
  readonly symbols: PlanSymbols;
}

/** An artifact's shared object, after checking that it is whole and loads here. */
async function unpack(emitted: CpuPlanTexts, isa: CpuIsa, packed: PackedCode): Promise<CompiledLibrary> {
  packed.requireFit(machineOf(isa), () => emitted.sources);
  const bytes = packed.read(LIBRARY);
  const damage = sharedObjectProblem(bytes);
  if (damage !== undefined) throw packed.problem(`${LIBRARY} is damaged: ${damage}`);
  const path = await installShared(bytes);
  try {
    new (loadAddon().Library)(path).release();
  } catch (error) {
    throw packed.problem(`it does not load on this system: ${error instanceof Error ? error.message : String(error)}`);
  }
  return { path, cached: true, seconds: 0, compiler: packed.record?.compiler ?? '' };
}

/** The symbol of every launch, in the library of a name. */
function symbolsIn(emitted: CpuPlanTexts, libraryOf: (symbol: string) => string): PlanSymbols {
  const symbolOf = ({ symbol, scratchBytes }: EmittedKernel): LaunchSymbol => ({
    library: libraryOf(symbol),
    symbol,
    scratchBytes,
  });
  return Object.fromEntries(
    Object.entries(emitted.kernels).map(([name, buckets]) => [name, buckets.map((own) => own.map(symbolOf))]),
  );
}

/**
 * Compiles what emitCpuPlan printed, all of it into one library. Uses the cache, or, if there is no compiler, the
 * artifact's code.
 */
export async function compileCpuKernels(
  emitted: CpuPlanTexts,
  isa: CpuIsa,
  { signal, onProgress, packed }: MachineCodeOptions = {},
): Promise<CompiledCpuPlan> {
  const units = unitsOf(emitted.kernels);
  const kernelsOf = new Map(units.map(({ name, symbols }) => [name, symbols.length]));
  const total = units.reduce((sum, { symbols }) => sum + symbols.length, 0);
  let done = 0;
  let isUnpacked = false;
  const library = await compileOrUnpack(
    packed,
    () =>
      compileShared(units, {
        isa,
        onUnit: ({ name }) => {
          done += kernelsOf.get(name) ?? 0;
          onProgress?.({ done, total });
        },
        ...defined({ signal }),
      }),
    (own) => {
      isUnpacked = true;
      return unpack(emitted, isa, own);
    },
  );
  return {
    symbols: symbolsIn(emitted, () => library.path),
    isCached: library.cached,
    seconds: library.seconds,
    isUnpacked,
    code: async () => ({
      machine: machineOf(isa),
      compiler: library.compiler,
      units: emitted.sources,
      files: [{ name: LIBRARY, bytes: await readFile(library.path) }],
    }),
  };
}

/** Kernels that are compiled as they are needed: a library for each unit of unitsOf. */
export interface KernelsAtNeed {
  readonly symbols: PlanSymbols;
  /** Absent if all are compiled. */
  readonly compile?: CompileLibrary;
  /** Whether the machine code came with the artifact. */
  readonly isUnpacked: boolean;
}

export interface NeedOptions extends Pick<MachineCodeOptions, 'onProgress' | 'packed'> {
  /** Called when no call waits any more, with the kernels that were compiled meanwhile. */
  readonly onCompiled?: (compiled: { readonly kernels: number; readonly seconds: number }) => void;
}

/** Reports kernels that a call waits for. */
class Wait {
  private readonly options: NeedOptions;
  private begin = 0;
  private libraries = 0;
  private total = 0;
  private done = 0;
  private compiled = 0;

  constructor(options: NeedOptions) {
    this.options = options;
  }

  async during(kernels: number, work: () => Promise<CompiledLibrary>): Promise<CompiledLibrary> {
    if (this.libraries++ === 0) {
      this.begin = performance.now();
      this.total = this.done = this.compiled = 0;
    }
    this.total += kernels;
    try {
      const library = await work();
      this.done += kernels;
      if (!library.cached) this.compiled += kernels;
      this.options.onProgress?.({ done: this.done, total: this.total });
      return library;
    } finally {
      if (--this.libraries === 0 && this.compiled > 0)
        this.options.onCompiled?.({ kernels: this.compiled, seconds: (performance.now() - this.begin) / 1000 });
    }
  }
}

/** Finds out where the kernels of a plan come from: the compiler, or the artifact's code if there is none. */
export async function kernelsAtNeed(
  emitted: CpuPlanTexts,
  isa: CpuIsa,
  options: NeedOptions = {},
): Promise<KernelsAtNeed> {
  const compiled = async (): Promise<KernelsAtNeed> => {
    await expectedCompiler();
    const units = unitsOf(emitted.kernels);
    const unitsByName = new Map(units.map((unit) => [unit.name, unit]));
    const nameOf = new Map(units.flatMap(({ name, symbols }) => symbols.map((symbol) => [symbol, name] as const)));
    const wait = new Wait(options);
    const compile: CompileLibrary = async (name, how) => {
      const unit = unitsByName.get(name)!;
      const work = (): Promise<CompiledLibrary> => compileShared([unit], { isa, ...how });
      const { path } = await (how.isBackground ? work() : wait.during(unit.symbols.length, work));
      return path;
    };
    return { symbols: symbolsIn(emitted, (symbol) => nameOf.get(symbol)!), compile, isUnpacked: false };
  };
  return compileOrUnpack(options.packed, compiled, async (own) => {
    const { path } = await unpack(emitted, isa, own);
    return { symbols: symbolsIn(emitted, () => path), isUnpacked: true };
  });
}
