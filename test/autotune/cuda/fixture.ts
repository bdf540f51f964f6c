/** A tiny LLaMA for a GPU, and facts of an imaginary GPU. */
import { cudaMachine, type CudaMachine } from '../../../autotune/cuda/costModel.js';
import type { CudaTuningTarget } from '../../../autotune/cuda/tune.js';
import type { CudaFacts } from '../../../codegen/cuda/index.js';
import type { Kernel, KernelModule } from '../../../ir/kernel.js';
import type { Bucket } from '../../../ir/plan.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { buildDecoder, buildStep, type DecoderShape } from '../../../models/decoder/graph.js';
import type { Numerics } from '../../../passes/numerics.js';
import { lower, optimize } from '../../../passes/runPasses.js';
import { CACHE_ROWS, SHAPE } from '../fixture.js';

const NUMERICS: Numerics = {
  activations: 'bf16',
  attention: 'bf16',
  products: 'f20',
  stream: 'f24',
  weights: { layout: 'kmajor', format: 'bf16', pairingWidth: 8 },
};

/** LLaMA-33B's widths, with two layers. */
export const WIDE: DecoderShape = {
  hiddenSize: 6656,
  intermediateSize: 17_920,
  layers: 2,
  heads: 52,
  kvHeads: 52,
  headDim: 128,
  vocabSize: 32_000,
  rmsNormEps: 1e-5,
  tieWordEmbeddings: false,
  biased: [],
};

export function cudaModule(shape: DecoderShape = SHAPE, numerics = NUMERICS): KernelModule {
  const frequencies = Float64Array.from({ length: shape.headDim / 2 }, (_, i) => 10_000 ** ((-2 * i) / shape.headDim));
  return lower(
    optimize(
      buildDecoder(shape, {
        mask: 'tree',
        window: 3,
        rotary: { inverseFrequencies: frequencies, factor: 1 },
        dtypeOf: () => 'bf16',
      }),
      numerics,
    ),
    numerics,
  );
}

/** The function step of the tiny model, with keys and values in bf16. */
export function cudaStepModule(): KernelModule {
  const inverseFrequencies = Float64Array.from({ length: 8 }, (_, i) => 10_000 ** (-i / 8));
  const rotary = { inverseFrequencies, factor: 1 };
  const cache = { rows: CACHE_ROWS, dtype: 'bf16' } as const;
  return lower(optimize(buildStep(SHAPE, { cache, rotary, dtypeOf: () => 'bf16' }), NUMERICS), NUMERICS);
}

export const CAPACITY: Bucket = scoringBucket({ tokens: 256, rows: 256, longest: 256 });
export const FACTS: CudaFacts = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 };
export const MACHINE: CudaMachine = cudaMachine(
  'sm_90a',
  { multiprocessors: 132, clockKHz: 1_980_000, sharedBytesPerMultiprocessor: 233_472 },
  3e12,
);
export const TARGET: CudaTuningTarget = {
  gpu: 'Paper GPU/132',
  arch: 'sm_90a',
  driver: 13_000,
  compiler: 'nvrtc 13.0',
  codegen: 'c0de',
};

/** What `of` gives for a kernel and a bucket, found once for each. */
export function once<T>(of: (kernel: Kernel, bucket: Bucket) => T): typeof of {
  const known = new Map<Kernel, Map<Bucket, T>>();
  return (kernel, bucket) => {
    const own = known.get(kernel) ?? new Map<Bucket, T>();
    known.set(kernel, own);
    const found = own.get(bucket) ?? of(kernel, bucket);
    own.set(bucket, found);
    return found;
  };
}
