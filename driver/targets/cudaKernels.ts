/** A CUDA plan's kernels as text, one translation unit each, and as cubins. */
import { z } from 'zod';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { CLUSTER_SIZES, type CudaArch, type CudaKernelText, type CudaSchedule } from '../../ir/cuda.js';
import type { CudaPlan } from '../../ir/plan.js';
import { headersOfAll } from '../../ir/unit.js';
import type { SourceText } from '../../runtime/cpu/compiler.js';
import { type Cubins, knownCubins } from '../../runtime/cuda/compileQueue.js';
import {
  compileCubins,
  type CompileCubinsOptions,
  type CubinResult as CompiledUnits,
  CubinSession,
  type CudaUnit,
} from '../../runtime/cuda/compiler.js';
import { isCubin } from '../../runtime/cuda/cubinCache.js';
import { versionProblem } from '../../runtime/cuda/nvrtc.js';
import { PACK_SOURCE, PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';
import { defined } from '../../system/defined.js';
import { dim, extent, extentName } from '../kernelSchema.js';
import type { GpuDevice } from './cudaDevice.js';
import { type CompiledPlan, compileOrUnpack, type PackedCode } from './machineCode.js';
import { emitKernels, factsSchema, kernelSymbol, type PrintedPlan, type Printing } from './printedKernels.js';
import type { CompiledModel, MachineCodeOptions } from './target.js';

/** A model compiled for a GPU. */
export type CudaModel = CompiledModel<CudaSchedule, GpuDevice>;

/** A plan's kernels as CUDA, one translation unit each. */
export type CudaPlanTexts = PrintedPlan<CudaKernelText>;

const textOf = ({ symbol, source }: CudaUnit): SourceText => ({ name: `${symbol}.cu`, text: source });

/** All that is compiled for these units, as files. */
const filesOf = (units: readonly CudaUnit[]): readonly SourceText[] => [...units.map(textOf), ...headersOfAll(units)];

/** How a plan's kernels are printed, and what is kept of them. */
export const CUDA_PRINTING: Printing<CudaSchedule, CudaKernelText> = {
  name: 'cuda',
  print: (kernel, fn, schedule) => emitCudaKernel(kernel, fn, schedule, fn.capacity.extents),
  factsOf: ({ symbol, tensorMaps, launch, waitsForPredecessor, origins }, digest) => ({
    ...{ symbol, digest, tensorMaps, launch, waitsForPredecessor },
    ...defined({ origins }),
  }),
  fileOf: textOf,
};

/** Prints every kernel of every function with every schedule that the plan gives it. */
export const emitCudaPlan = (plan: CudaPlan): CudaPlanTexts => emitKernels(plan, CUDA_PRINTING);

const grid = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('constant'), count: extent }),
  z.strictObject({ kind: z.literal('tiles'), extent: extentName, per: extent, times: extent }),
  z.strictObject({
    kind: z.literal('persistent'),
    extent: extentName,
    per: extent,
    times: extent,
    blocksPerMultiprocessor: z.int().min(1).max(64),
  }),
]);
const tensorMap = z.strictObject({
  parameter: z.int().min(0).max(63),
  dtype: z.enum(['f16', 'bf16', 'f32', 'u8']),
  rows: dim,
  columns: extent,
  stride: extent,
  boxRows: z.int().min(1).max(256),
  boxColumns: z.int().min(1).max(256),
  swizzle: z.literal([0, 32, 64, 128]),
});

/** What an artifact says of its kernels. */
export const CUDA_FACTS = factsSchema(
  z.strictObject({
    symbol: kernelSymbol,
    tensorMaps: z.array(tensorMap).max(64),
    launch: z.strictObject({
      threads: z.int().min(1).max(1024),
      sharedBytes: z
        .int()
        .min(0)
        .max(1 << 20),
      cluster: z.literal(CLUSTER_SIZES),
      gridX: grid,
      gridY: grid,
    }),
    waitsForPredecessor: z.boolean(),
    origins: z.array(z.string().max(300).nullable()).max(10_000).optional(),
  }),
);

export interface CompiledCudaPlan extends CompiledPlan {
  /** Keyed by symbol; includes the runtime's own PACK_SYMBOL. */
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  /** `NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13)`. */
  readonly compiler: string;
}

const PACK: CudaUnit = { symbol: PACK_SYMBOL, source: PACK_SOURCE };

/** What is compiled of a plan: its kernels and the runtime's own. */
const unitsOf = ({ distinct }: Pick<CudaPlanTexts, 'distinct'>): readonly CudaUnit[] => [...distinct.values(), PACK];

const fileOf = (symbol: string): string => `${symbol}.cubin`;

const compilerOf = ({ record }: PackedCode): string => record?.compiler ?? 'an unknown compiler';

/** An artifact's cubins, if this driver can load the output of their compiler. */
function unpack(
  units: readonly CudaUnit[],
  arch: CudaArch,
  driverVersion: number | undefined,
  packed: PackedCode,
): ReadonlyMap<string, Uint8Array> {
  packed.requireFit(arch, () => filesOf(units));
  const compiler = compilerOf(packed);
  const [, major, minor] = /(\d{1,3})\.(\d{1,3})$/.exec(compiler) ?? [];
  const version = { major: Number(major), minor: Number(minor) };
  const misfit = major === undefined ? 'its compiler is not known' : versionProblem(version, arch, driverVersion);
  if (misfit !== undefined) throw packed.problem(`made by ${compiler}: ${misfit}`);
  return new Map(
    units.map(({ symbol }) => {
      const cubin = packed.read(fileOf(symbol));
      if (!isCubin(cubin)) throw packed.problem(`${fileOf(symbol)} is no cubin`);
      return [symbol, cubin];
    }),
  );
}

/** Machine code of every kernel: compiled, from the cache or, if there is no compiler, the artifact's own. */
export async function compileCudaKernels(
  emitted: Pick<CudaPlanTexts, 'distinct'>,
  arch: CudaArch,
  { driverVersion, signal, onProgress, packed }: MachineCodeOptions & { readonly driverVersion?: number } = {},
): Promise<CompiledCudaPlan> {
  const units = unitsOf(emitted);
  let isUnpacked = false;
  const compiled = await compileOrUnpack<
    Pick<CompiledUnits, 'cubins' | 'isCached' | 'seconds' | 'compiler' | 'compilerVersion'>
  >(
    packed,
    () =>
      compileCubins(units, {
        arch,
        ...defined({ driverVersion, signal, onProgress }),
      }),
    (own) => {
      isUnpacked = true;
      const cubins = unpack(units, arch, driverVersion, own);
      return { cubins, isCached: true, seconds: 0, compiler: compilerOf(own), compilerVersion: compilerOf(own) };
    },
  );
  const { cubins, isCached, seconds, compiler, compilerVersion } = compiled;
  return {
    cubins,
    isCached,
    seconds,
    compiler,
    isUnpacked,
    code: () => ({
      machine: arch,
      compiler: compilerVersion,
      units: filesOf(units),
      files: [...cubins].map(([symbol, bytes]) => ({ name: fileOf(symbol), bytes })),
    }),
  };
}

/** Machine code of every kernel, some of which may still be on its way. */
export type OpenedCubins =
  /** It is found in the cache or compiled, in the order of `rankOf`. */
  | { readonly kind: 'session'; readonly cubins: CubinSession }
  /** It came with the artifact. */
  | { readonly kind: 'unpacked'; readonly cubins: Cubins };

/** As compileCudaKernels, but resolves when what is in the cache is known and the rest is being compiled. */
export const openCudaKernels = (
  emitted: Pick<CudaPlanTexts, 'distinct'>,
  { packed, ...options }: CompileCubinsOptions & Pick<MachineCodeOptions, 'packed'>,
): Promise<OpenedCubins> => {
  const units = unitsOf(emitted);
  return compileOrUnpack<OpenedCubins>(
    packed,
    async () => ({ kind: 'session', cubins: await CubinSession.open(units, options) }),
    (own) => ({ kind: 'unpacked', cubins: knownCubins(unpack(units, options.arch, options.driverVersion, own)) }),
  );
};
