/**
 * Blocks of ggml: neighbours of a row with their scales, packed together. Layouts: ggml-common.h and ggml-quants.c of
 * https://github.com/ggml-org/ggml. Scales of blocks are f16; `d` is the first unless said otherwise.
 */
import { e2m1Value } from './microscaled.js';
import { BLOCK_NAMES, FORMATS } from './storage.js';

export { BLOCK_NAMES, type BlockName } from './storage.js';

/** Blocks that files may have: those that kernels read as they are, and one that is decoded while it is packed. */
export const STORED_BLOCKS = [...BLOCK_NAMES, 'mxfp4'] as const;
export type StoredBlock = (typeof STORED_BLOCKS)[number];

export interface Block {
  readonly elements: number;
  readonly bytes: number;
  /** The elements of one block, exact in float64. */
  readonly decode: (block: Uint8Array) => Float64Array;
}

const f16At = (block: Uint8Array, at: number): number => FORMATS.f16.decode(block.subarray(at, at + 2))[0]!;
const signed = (byte: number): number => (byte << 24) >> 24;

/** Scale and minimum of sub-block `j` of 8: 6 bits each, in 12 bytes. */
function scaleAndMinimum(s: Uint8Array, j: number): readonly [number, number] {
  return j < 4
    ? [s[j]! & 63, s[j + 4]! & 63]
    : [(s[j + 4]! & 15) | ((s[j - 4]! >> 6) << 4), (s[j + 4]! >> 4) | ((s[j]! >> 6) << 4)];
}

/** 256 elements in 8 sub-blocks, d·scale·code − dmin·minimum; `codeOf` reads a code of a sub-block. */
function inSubBlocks(block: Uint8Array, codeOf: (subBlock: number, i: number) => number): Float64Array {
  const [d, dmin] = [f16At(block, 0), f16At(block, 2)];
  return Float64Array.from({ length: 256 }, (_, at) => {
    const [scale, minimum] = scaleAndMinimum(block.subarray(4, 16), at >> 5);
    return d * scale * codeOf(at >> 5, at & 31) - dmin * minimum;
  });
}

/** The code of 4 bits of element i of sub-block g: low halves of 32 bytes are one sub-block, high halves the next. */
const nibble = (codes: Uint8Array, g: number, i: number): number => (codes[32 * (g >> 1) + i]! >> (4 * (g & 1))) & 15;

export const BLOCKS: Readonly<Record<StoredBlock, Block>> = {
  /** d, i8[32] */
  q8_0: {
    elements: 32,
    bytes: 34,
    decode: (block) => {
      const d = f16At(block, 0);
      return Float64Array.from(block.subarray(2, 34), (byte) => d * signed(byte));
    },
  },
  /** d, 16 bytes: low halves are elements 0 … 15, high halves 16 … 31; d·(code − 8) */
  q4_0: {
    elements: 32,
    bytes: 18,
    decode: (block) => {
      const d = f16At(block, 0);
      return Float64Array.from({ length: 32 }, (_, i) => d * (((block[2 + (i & 15)]! >> (i < 16 ? 0 : 4)) & 15) - 8));
    },
  },
  /** d, dmin, 12 bytes of scales and minima, 128 bytes of codes */
  q4_k: {
    elements: 256,
    bytes: 144,
    decode: (block) => inSubBlocks(block, (g, i) => nibble(block.subarray(16), g, i)),
  },
  /** d, dmin, 12 bytes of scales and minima, 32 bytes whose bit g is bit 4 of sub-block g, 128 bytes of codes */
  q5_k: {
    elements: 256,
    bytes: 176,
    decode: (block) =>
      inSubBlocks(block, (g, i) => nibble(block.subarray(48), g, i) | (((block[16 + i]! >> g) & 1) << 4)),
  },
  /** 128 bytes of low halves, 64 of the upper two bits, 16 scales of 8 bits, d; d·scale·(code − 32) */
  q6_k: {
    elements: 256,
    bytes: 210,
    decode: (block) => {
      const d = f16At(block, 208);
      return Float64Array.from({ length: 256 }, (_, at) => {
        const [half, quarter, i] = [at >> 7, (at >> 5) & 3, at & 31];
        const low = (block[64 * half + 32 * (quarter & 1) + i]! >> (4 * (quarter >> 1))) & 15;
        const high = (block[128 + 32 * half + i]! >> (2 * quarter)) & 3;
        return d * signed(block[192 + (at >> 4)]!) * ((low | (high << 4)) - 32);
      });
    },
  },
  /** A byte e, 16 bytes: low halves are elements 0 … 15, high halves 16 … 31; 2^(e − 127) · code of E2M1. */
  mxfp4: {
    elements: 32,
    bytes: 17,
    decode: (block) => {
      const scale = block[0] === 255 ? NaN : 2 ** (block[0]! - 127);
      return Float64Array.from(
        { length: 32 },
        (_, i) => scale * e2m1Value((block[1 + (i & 15)]! >> (i < 16 ? 0 : 4)) & 15),
      );
    },
  },
};
