/** Targets, precisions and caches as users name them, and the arithmetic that results name. Loads next to nothing. */
import { CUDA_ARCHS } from '../ir/cuda.js';
import type { AdapterSlots } from '../ir/adapterRows.js';
import type { Numerics } from '../passes/numerics.js';

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

/** A target's numerics for a model with slots for adapters. */
export const withAdapters = (numerics: Numerics, adapters: AdapterSlots | undefined): Numerics =>
  adapters === undefined ? numerics : { ...numerics, adapters };

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

/** What tensor cores multiply. */
export const CUDA_ARITHMETICS = ['bf16', 'f16', 'fp8', 'int4'] as const;
export type CudaArithmetic = (typeof CUDA_ARITHMETICS)[number];
