/** A plan's kernels as C source and as a loaded library: one function for each pair of signature and schedule. */
import { readFile } from 'node:fs/promises';
import type { CpuIsa, CpuSchedule, Plan } from '../../ir/plan.js';
import { emitKernel, unitOf, unitsOf, type EmittedKernel } from '../../codegen/cpu/index.js';
import { loadAddon } from '../../runtime/addon.js';
import { compileShared, installShared, type CompiledLibrary, type SourceText } from '../../runtime/cpu/compiler.js';
import type { CpuModel } from './cpuModel.js';
import { compileOrUnpack, type CompiledCode, type PackedCode } from './machineCode.js';
import { distinctOf, kernelsOf, printKernels, type Printing } from './printedKernels.js';
import type { CompileOptions } from './target.js';
import { sharedObjectProblem } from '../../runtime/cpu/sharedObject.js';
import type { LaunchSymbol } from '../../runtime/cpu/bindPlan.js';

export interface EmittedPlan {
  /** A C file for each distinct kernel, written to the artifact's kernels/ folder. */
  readonly sources: readonly SourceText[];
  /** kernels[function][bucket][launch] */
  readonly kernels: Readonly<Record<string, readonly (readonly EmittedKernel[])[]>>;
}

/** How a plan's kernels are printed, and what is kept of them. */
export const CPU_PRINTING: Printing<CpuSchedule, EmittedKernel> = {
  name: 'cpu',
  print: (kernel, fn, schedule) => emitKernel(kernel, fn, schedule, fn.capacity.extents),
  // A launch says itself what it reads and writes.
  launched: (text) => text,
  factsOf: ({ symbol, scratchBytes }, digest) => ({ symbol, digest, scratchBytes }),
  textOf: (facts, parameters, print) => ({
    ...facts,
    parameters,
    get source() {
      return print();
    },
  }),
};

const emitted = (kernels: EmittedPlan['kernels']): EmittedPlan => ({
  kernels,
  sources: [...distinctOf(kernels).values()].map(unitOf),
});

/** Prints every kernel of every function with every schedule that the plan gives it. */
export const emitPlan = (plan: Plan): EmittedPlan => emitted(printKernels(plan, CPU_PRINTING));

/** The kernels of a model, whose texts may be printed when they are read. */
export const cpuKernelsOf = (model: CpuModel): EmittedPlan => emitted(kernelsOf(model, CPU_PRINTING));

/** Name of the shared object in an artifact. */
const LIBRARY = 'kernels.so';

/** The machines that a shared object runs on. */
const machineOf = (isa: CpuIsa): string => `${isa} ${process.platform}-${process.arch}`;

export interface CompiledKernels {
  /** symbols[function][bucket][launch] */
  readonly symbols: Readonly<Record<string, readonly (readonly LaunchSymbol[])[]>>;
  readonly isCached: boolean;
  readonly seconds: number;
  /** Whether the machine code came with the artifact. */
  readonly isUnpacked: boolean;
  /** The code in the form that an artifact carries. */
  code(): Promise<CompiledCode>;
}

/** An artifact's shared object, after checking that it is whole and loads here. */
async function unpack(emitted: EmittedPlan, isa: CpuIsa, packed: PackedCode): Promise<CompiledLibrary> {
  packed.requireFit(machineOf(isa), emitted.sources);
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

/** Compiles what emitPlan printed. Uses the cache, or, if there is no compiler, the artifact's code. */
export async function compileKernels(
  emitted: EmittedPlan,
  isa: CpuIsa,
  { signal, onProgress, packed }: CompileOptions = {},
): Promise<CompiledKernels> {
  const units = unitsOf(Object.values(emitted.kernels).flat(2));
  const kernelsOf = new Map(units.map(({ name, kernels }) => [name, kernels]));
  let done = 0;
  let isUnpacked = false;
  const library = await compileOrUnpack(
    packed,
    () =>
      compileShared(units, {
        isa,
        onUnit: ({ name }) => {
          done += kernelsOf.get(name) ?? 0;
          onProgress?.({ done, total: emitted.sources.length });
        },
        ...(signal === undefined ? {} : { signal }),
      }),
    (own) => {
      isUnpacked = true;
      return unpack(emitted, isa, own);
    },
  );
  const symbolOf = ({ symbol, scratchBytes }: EmittedKernel): LaunchSymbol => ({
    library: library.path,
    symbol,
    scratchBytes,
  });
  const symbols = Object.fromEntries(
    Object.entries(emitted.kernels).map(([name, buckets]) => [name, buckets.map((own) => own.map(symbolOf))]),
  );
  return {
    symbols,
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
