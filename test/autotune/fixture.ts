/** A tiny LLaMA as kernels, and facts of an imaginary machine. */
import { cpuMachine, type CpuMachine } from '../../autotune/cpu/costModel.js';
import type { CpuFacts } from '../../autotune/cpu/candidates.js';
import type { CpuTuningTarget } from '../../autotune/cpu/tune.js';
import type { KernelModule } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { scoringBucket } from '../../ir/scoring.js';
import { stepExtents } from '../../ir/stepping.js';
import { buildDecoder, buildStep, type DecoderShape } from '../../models/decoder/graph.js';
import type { MaskKind } from '../../models/model/model.js';
import type { AdapterSlots } from '../../ir/adapterRows.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';

export const SHAPE: DecoderShape = {
  hiddenSize: 64,
  intermediateSize: 160,
  layers: 3,
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  vocabSize: 700,
  rmsNormEps: 1e-5,
  tieWordEmbeddings: false,
  biased: [],
};

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
const BF16: Numerics = { activations: 'bf16', weights: { layout: 'vnni', format: 'bf16' } };

export function llamaModule(
  shape: DecoderShape = SHAPE,
  arithmetic: 'f32' | 'bf16' = 'f32',
  mask: MaskKind = 'tree',
): KernelModule {
  const numerics = arithmetic === 'f32' ? F32 : BF16;
  const frequencies = Float64Array.from({ length: shape.headDim / 2 }, (_, i) => 10_000 ** ((-2 * i) / shape.headDim));
  return lower(
    optimize(
      buildDecoder(shape, {
        mask,
        window: 3,
        rotary: { inverseFrequencies: frequencies, factor: 1 },
        dtypeOf: () => 'bf16',
      }),
      numerics,
    ),
    numerics,
  );
}

/** Rows of the states of `stepModule`. */
export const CACHE_ROWS = 640;

/** The function step of the same model, on a CPU in f32. */
export function stepModule(adapters?: AdapterSlots): KernelModule {
  const numerics = adapters === undefined ? F32 : { ...F32, adapters };
  const inverseFrequencies = Float64Array.from({ length: 8 }, (_, i) => 10_000 ** (-i / 8));
  const rotary = { inverseFrequencies, factor: 1 };
  return lower(
    optimize(buildStep(SHAPE, { cache: { rows: CACHE_ROWS, dtype: 'f32' }, rotary, dtypeOf: () => 'bf16' }), numerics),
    numerics,
  );
}

/** Paths of at most `longest` tokens, `tokens` of them new, with a row for each. */
export const stepBucket = (tokens: number, longest: number, run?: number): Bucket => ({
  extents: stepExtents({ tokens, keys: 4096, rows: tokens }),
  longest,
  ...(run === undefined ? {} : { run }),
});

export const CAPACITY: Bucket = scoringBucket({ tokens: 256, rows: 256, longest: 256 });
export const FACTS: CpuFacts = { isas: ['portable', 'avx2', 'avx512'], l1: 32 << 10, l2: 1 << 20 };
export const AMX_FACTS: CpuFacts = { isas: ['portable', 'avx2', 'avx512', 'amx'], l1: 48 << 10, l2: 2 << 20 };

export const MACHINE: CpuMachine = cpuMachine(
  { ...FACTS, l3: 32 << 20 },
  { isa: 'avx512', threads: 2, flopsPerSecond: 400e9, bytesPerSecond: 30e9 },
);
export const AMX_MACHINE: CpuMachine = cpuMachine(
  { ...AMX_FACTS, l3: 100 << 20 },
  { isa: 'amx', threads: 2, flopsPerSecond: 6300e9, bytesPerSecond: 31e9 },
);

export const TARGET: CpuTuningTarget = {
  isa: 'x64/avx512',
  cpu: 'Paper CPU',
  threads: 2,
  compiler: 'cc 1.0',
  abi: 1,
  codegen: 'c0de',
};

/** The kernel whose model path ends with `end`. */
export function kernelAt(module: KernelModule, end: string): KernelModule['kernels'][number] {
  const kernel = module.kernels.find((k) => k.path.endsWith(end));
  if (kernel === undefined) throw new Error(`no kernel ${end} among ${module.kernels.map((k) => k.path).join(', ')}`);
  return kernel;
}
