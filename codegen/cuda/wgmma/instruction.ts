/** Numbers of Hopper's warpgroup instructions (lib/wgmma.cuh), and of the blocks that issue them. */
import { DTYPE_BYTES } from '../../../ir/types.js';

/** Rows of one warpgroup instruction. */
export const WGMMA_ROWS = 64;
/** Bytes of a row of a slab: the width of the widest swizzle pattern. */
export const SLAB_BYTES = 128;
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
