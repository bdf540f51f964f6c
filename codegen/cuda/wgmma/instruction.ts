/** Hopper's warpgroup instructions and descriptors as text and numbers. */
import { DTYPE_BYTES } from '../../../ir/types.js';
import { render } from '../text/statements.js';

/** Rows of one warpgroup instruction. */
export const WGMMA_ROWS = 64;
/** Bytes of a row of a slab: the width of the widest swizzle pattern. */
export const SLAB_BYTES = 128;
/** Bytes of k that an instruction multiplies: 16 elements of 16 bits, 32 of 8. */
const STEP_BYTES = 32;
/** Element types of both operands. */
export const WGMMA_TYPES = ['bf16', 'f16', 'e4m3'] as const;
export type WgmmaType = (typeof WGMMA_TYPES)[number];
/** The dtype of an operand that wgmma can read. Throws for other dtypes. */
export function operandType(dtype: string): WgmmaType {
  const found = WGMMA_TYPES.find((each) => each === dtype);
  if (found !== undefined) return found;
  throw new Error(`wgmma reads operands of ${WGMMA_TYPES.join(', ')}, not ${dtype}.`);
}

/** Elements of k in one slab. */
export const slabOf = (dtype: WgmmaType): number => SLAB_BYTES / DTYPE_BYTES[dtype];
/** Instructions for each row of a slab, one behind another along k. */
export const STEPS_OF_SLAB = SLAB_BYTES / STEP_BYTES;
/** Threads of a block without warpgroups for epilogues: a producer warpgroup and two consumer warpgroups. */
export const WGMMA_THREADS = 384;
export const CONSUMERS = 2;
export const WARPS_OF_GROUP = 4;
/** Consumer warps of a block. */
export const CONSUMER_WARPS = CONSUMERS * WARPS_OF_GROUP;
/**
 * Warps that neither load nor multiply: three of the producer's group, and those of `groups` warpgroups. They compute
 * row values and run deferred epilogues.
 */
export const idleWarps = (groups: number): number => WARPS_OF_GROUP * (groups + 1) - 1;
/** Threads of a block with this many warpgroups for epilogues. */
export const blockThreads = (groups: number): number => WGMMA_THREADS + 32 * WARPS_OF_GROUP * groups;

/**
 * Descriptor, without its address, of a K-major operand in slabs with 128-byte swizzle: 1024 bytes from one group of 8
 * rows to the next (bits 32–45, in units of 16 bytes), swizzle code 1 (bits 62–63). The leading offset (bits 16–29) is
 * not used. Source: PTX ISA, "matrix descriptor" of wgmma.
 */
const DESCRIPTOR = (1n << 62n) | (64n << 32n) | (1n << 16n);
const hex = (n: bigint): string => `0x${n.toString(16)}`;
export const DESCRIPTOR_BASE = hex(DESCRIPTOR);

/**
 * Words of descriptors in slabs of `slabBytes`, without addresses, which are in the lower ones. `rows`: of a K-major
 * operand. `columns`: of one whose columns are multiplied by rows (transposed), where the leading offset goes from 64
 * columns to the next.
 */
export const descriptorWords = (slabBytes: number): Readonly<Record<'upper' | 'rows' | 'columns', string>> => ({
  upper: hex(DESCRIPTOR >> 32n),
  rows: hex(DESCRIPTOR & 0xffff_ffffn),
  columns: hex(BigInt(descriptorUnits(slabBytes)) << 16n),
});

/** `bytes` in descriptor units of 16 bytes. */
export const descriptorUnits = (bytes: number): number => bytes / 16;

/** Elements of k that an instruction multiplies, and what follows its operands: whether 16-bit ones are transposed. */
export const stepOf = (dtype: WgmmaType): { readonly k: number; readonly transposed: string } => ({
  k: STEP_BYTES / DTYPE_BYTES[dtype],
  transposed: DTYPE_BYTES[dtype] === 2 ? ', 0, 0' : '',
});

/** Template values for wgmma.mma_async m64n<tn>: its operand lists. */
export function wgmmaOperands(tn: number): Readonly<
  Record<'accumulators' | 'aIndex' | 'bIndex' | 'predicateIndex', number>
> & {
  readonly registerList: string;
  readonly registerOperands: string;
} {
  const accumulators = tn / 2;
  const numbers = Array.from({ length: accumulators }, (_, i) => i);
  return {
    accumulators,
    aIndex: accumulators,
    bIndex: accumulators + 1,
    predicateIndex: accumulators + 2,
    registerList: numbers.map((i) => `%${i}`).join(', '),
    registerOperands: numbers.map((i) => `"+f"(d[${i}])`).join(', '),
  };
}

// What kernels on Hopper call: barriers in shared memory, boxes, clusters, and what epilogues exchange.

/** Barriers, and copies of boxes that they count. */
export const barrierFunctions = (): string => render('wgmmaBarriers', {}).trimEnd();

/** All that contractions call. `values`: those of the template, but for its barriers. */
export const contractionFunctions = (values: object): string =>
  render('wgmmaFunctions', { ...values, barriers: barrierFunctions() });
