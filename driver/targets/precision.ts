/** What a model is compiled for, and its arithmetic. */
import type { CudaFacts } from '../../codegen/cuda/index.js';
import { UsageError } from '../../errors.js';
import { CUDA_ARCHS, type CudaArch } from '../../ir/cuda.js';
import type { FormatName } from '../../ir/storage.js';
import type { Numerics } from '../../passes/numerics.js';

/** Values of `--target`: the names of all target records, repeated so that the command line need not load them. */
export const TARGETS = ['cpu', 'cuda', ...CUDA_ARCHS.map((arch) => `cuda:${arch}` as const)] as const;
export type TargetName = (typeof TARGETS)[number];

/** The user's choice. `auto`, the default, is resolved on this machine (devices/chooseTarget.ts). */
export const TARGET_CHOICES = ['auto', ...TARGETS] as const;
export type TargetChoice = (typeof TARGET_CHOICES)[number];

/** A request whose target may not be resolved yet. */
export type WithTargetChoice<R extends { readonly target?: TargetName }> = Omit<R, 'target'> & {
  readonly target?: TargetChoice;
};

/**
 * Values of `--quantize`. `fp8`, `int8`: the matrices of a checkpoint are rounded to 8 bits while they load. `int4`:
 * matrices that a checkpoint stores in 4 bits stay so in memory.
 */
export const QUANTIZED = ['fp8', 'int8', 'int4'] as const;

/**
 * `auto`: 16-bit contractions if the target has matrix units for them (f16 if the checkpoint is f16), else f32. Other
 * values name the precision; fp8: both operands of contractions are E4M3, everything between them is bf16; int8, on
 * CPUs: both are integers; int4: weights of 4 bits become bf16 in registers.
 */
export const PRECISIONS = ['auto', 'f32', 'bf16', 'f16', ...QUANTIZED] as const;
export type Precision = (typeof PRECISIONS)[number];

/** Name of the arithmetic in results and journals. Answers are comparable only if it is equal. */
export const ARITHMETICS = ['bf16', 'f16', 'f32', 'int8', 'int8 and bf16', 'fp8', 'int4'] as const;
export type Arithmetic = (typeof ARITHMETICS)[number];

/** Those of CPUs: what is multiplied as integers, and the other matrices in f32, or on AMX in bf16. */
export const CPU_ARITHMETICS = ['bf16', 'f32', 'int8', 'int8 and bf16'] as const;
export type CpuArithmetic = (typeof CPU_ARITHMETICS)[number];

/** Whether contractions of a CPU are of integers. */
export const isInteger = (arithmetic: Arithmetic): boolean => arithmetic === 'int8' || arithmetic === 'int8 and bf16';

/**
 * How keys and values are kept: in the type that attention multiplies, or in 8 bits with a scale for each head of a
 * token, as E4M3 or as whole numbers.
 */
export const CODED_CACHES = ['fp8', 'int8'] as const;
export type CodedCache = (typeof CODED_CACHES)[number];
export const KV_CACHES = ['16bit', ...CODED_CACHES] as const;
export type KvCache = (typeof KV_CACHES)[number];

/** The type of codes, and the name in results. */
const CACHES = {
  fp8: { format: 'e4m3', name: 'FP8 cache' },
  int8: { format: 'i8', name: 'int8 cache' },
} as const satisfies Readonly<Record<CodedCache, unknown>>;

/** Undefined for a cache in 16 bits. */
export const codedCache = (kvCache: KvCache = '16bit'): CodedCache | undefined =>
  kvCache === '16bit' ? undefined : kvCache;

/** A target's numerics for a cache of this kind. */
export function withCache(numerics: Numerics, kvCache?: KvCache): Numerics {
  const coded = codedCache(kvCache);
  return coded === undefined ? numerics : { ...numerics, cache: CACHES[coded].format };
}

/** What results and journals name: a model's arithmetic and its cache. Answers are comparable only if it is equal. */
export function arithmeticName({
  arithmetic,
  kvCache,
}: {
  readonly arithmetic: Arithmetic;
  readonly kvCache?: KvCache;
}): string {
  const coded = codedCache(kvCache);
  return coded === undefined ? arithmetic : `${arithmetic}, ${CACHES[coded].name}`;
}

/** The largest chip of each architecture, for compiling without one: A100, H100 SXM. */
export const TYPICAL_FACTS: Readonly<Record<CudaArch, CudaFacts>> = {
  sm_80: { arch: 'sm_80', sharedBytesPerBlock: 166_912, multiprocessors: 108 },
  sm_90a: { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 },
};

/** What tensor cores multiply. */
export const CUDA_ARITHMETICS = ['bf16', 'f16', 'fp8', 'int4'] as const;
export type CudaArithmetic = (typeof CUDA_ARITHMETICS)[number];

/** Matrices of a checkpoint's floats are rounded to E4M3, besides those of its first layers; codes stay. */
const e4m3Of = (codes?: readonly string[]): Pick<Numerics, 'narrow' | 'stored'> =>
  codes === undefined
    ? { narrow: { format: 'e4m3', from: 'values', keep: [], wide: 'first' } }
    : {
        narrow: { format: 'e4m3', from: 'codes', keep: [], only: new Set(codes) },
        stored: new Map(codes.map((name) => [name, 'e4m3'])),
      };

/**
 * Tensor cores multiply operands of 16 or 8 bits, products are rounded to 20 bits, and pairs are grouped by 8 columns
 * to match the fragment layout. `codes`: tensors that the checkpoint stores in E4M3.
 */
export function cudaNumerics(arithmetic: CudaArithmetic, codes?: readonly string[]): Numerics {
  const dtype = arithmetic === 'f16' ? 'f16' : 'bf16';
  return {
    activations: dtype,
    attention: dtype,
    products: 'f20',
    stream: 'f24',
    writes: 'epilogues',
    rows: 'contractions',
    states: 'byColumn',
    ...(arithmetic === 'int4' ? { groups: 'kept' } : {}),
    weights: { layout: 'kmajor', format: dtype, pairingWidth: 8 },
    ...(arithmetic === 'fp8' ? e4m3Of(codes) : {}),
  };
}

/**
 * What a GPU's contractions multiply for a checkpoint stored in `stored`. Throws UsageError where the GPU cannot.
 */
export function cudaArithmetic(precision: Precision, stored: FormatName, arch: CudaArch): CudaArithmetic {
  if ((precision === 'fp8' || precision === 'int4') && arch !== 'sm_90a')
    throw new UsageError(
      `--quantize ${precision} needs Hopper (sm_90a), not ${arch}`,
      'leave --quantize out, or use --target cuda:sm_90a',
    );
  if (precision === 'f32')
    throw new UsageError(
      '--precision f32 is for the CPU: GPUs multiply 16-bit numbers here',
      'use --target cpu, or leave --precision out',
    );
  if (precision === 'int8')
    throw new UsageError(
      '--quantize int8 is for the CPU: GPUs multiply 8 bits as FP8 here',
      'use --quantize fp8, or --target cpu',
    );
  if (precision !== 'auto') return precision;
  return stored === 'f16' ? 'f16' : 'bf16';
}
