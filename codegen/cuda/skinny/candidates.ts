/** The default schedule for few rows: of skinnyWgmma on Hopper, of skinny on other GPUs. */
import { RESERVED_BYTES, type CudaArch, type CudaGemmSchedule } from '../../../ir/cuda.js';
import { LOGPROB_BLOCK } from '../../../ir/kernel.js';
import type { Contraction } from '../text/contraction.js';
import { segmentsOf } from '../text/contraction.js';
import { SLAB_BYTES, slabOf, type WgmmaType } from '../wgmma/instruction.js';
import { columnTiles } from '../wgmma/layout.js';
import { skinnyTileStep } from './layout.js';
import { FEW_ROWS } from './skeletons.js';

/** Most rows for which the skeleton is the default. */
export const SKINNY_ROWS = 64;
/** A stage is twice as deep where it has at most this many bytes, because each stage costs a barrier. */
const DEEP_STAGE = 18 << 10;

/**
 * Elements of a tile from which on its epilogue leaves memory idle, so that two narrower tiles share a multiprocessor:
 * a layer of 8B took 205 µs with tiles of 64 × 224 and 190 µs with 64 × 112 on an H100, 178 and 153 µs on an H200.
 */
const LONG_EPILOGUE = 8192;

export interface SkinnyDevice {
  readonly arch: CudaArch;
  readonly sharedBytesPerBlock: number;
  readonly multiprocessors: number;
}

/**
 * A good untuned schedule at `rows` rows; undefined if the skeleton cannot run the kernel. One tile for each
 * multiprocessor, or two where one would be too wide or have a long epilogue.
 *
 * A block of skinnyWgmma takes all shared memory that its share of a multiprocessor has: the more bytes are under way,
 * the nearer memory comes to its read rate. The next kernel's blocks come as these end. One of two on a multiprocessor,
 * and a block of skinny, take less than half, so that the next kernel's blocks read their weights beside it.
 */
export function defaultSkinnySchedule(
  kernel: Contraction,
  { arch, sharedBytesPerBlock, multiprocessors }: SkinnyDevice,
  rowValues: number,
  rows: number,
  dtype: WgmmaType = 'bf16',
): CudaGemmSchedule | undefined {
  const slab = slabOf(dtype);
  const skeleton = arch === 'sm_90a' ? 'skinnyWgmma' : 'skinny';
  const { stages, sharedBytes, problem } = FEW_ROWS[skeleton];
  // Deepest first.
  const depths = Array.from({ length: stages.most - stages.least + 1 }, (_, i) => stages.most - i);
  const segments = segmentsOf(kernel);
  const isLogProb = kernel.anchor === 'logprob';
  const tm = [8, 16, 32].find((each) => rows <= each) ?? 64;
  const tilesOf = (width: number): number => columnTiles(segments, width).total;
  const isOnHopper = skeleton === 'skinnyWgmma';
  const within = (most: number): readonly number[] => widths(skinnyTileStep(segments), tilesOf, most);
  const one = isLogProb ? [LOGPROB_BLOCK] : within(multiprocessors);
  const isLong = tm * one[0]! > LONG_EPILOGUE;
  const isWholeMemory = isOnHopper && !isLong && tilesOf(one[0]!) <= multiprocessors;
  // A pair loads its rows once, which pays where they are at least twice the bytes of a tile's weights.
  const sharesRows = (tn: number): boolean => isWholeMemory && tm >= 2 * tn && tilesOf(tn) % 2 === 0;
  const columns = isOnHopper && isLong && !isLogProb ? within(2 * multiprocessors) : one;
  /** The first tile that fits, of widths and depths in their order. */
  const fitting = (room: number): CudaGemmSchedule | undefined => {
    for (const tn of columns)
      for (const tk of (tm + tn) * 2 * SLAB_BYTES <= DEEP_STAGE ? [2 * slab, slab] : [slab])
        for (const depth of depths) {
          const tile: CudaGemmSchedule = {
            kind: 'gemm',
            skeleton,
            tm,
            tn,
            tk,
            stages: depth,
            cluster: sharesRows(tn) ? 2 : 1,
            raster: 1,
            mode: 'cooperative',
          };
          const isFitting = sharedBytes(tile, rowValues, isLogProb, dtype) <= room;
          if (isFitting && problem(segments, tile, isLogProb, dtype) === undefined) return tile;
        }
    return undefined;
  };
  for (const blocks of isWholeMemory ? [1] : [2, 1]) {
    const found = fitting(Math.floor(sharedBytesPerBlock / blocks) - 2 * RESERVED_BYTES);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Widths to try, best first: the narrowest with at most one tile for each multiprocessor, then narrower ones. */
export function widths(
  step: number,
  tilesOf: (width: number) => number,
  multiprocessors: number,
  most: number = LOGPROB_BLOCK,
): readonly number[] {
  const all = Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step);
  const within = (blocks: number): number | undefined => all.find((width) => tilesOf(width) <= blocks);
  const best = within(multiprocessors) ?? within(2 * multiprocessors) ?? all.at(-1) ?? step;
  return [...all.filter((width) => width <= best).reverse(), step];
}
