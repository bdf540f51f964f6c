/** What a schedule of the wgmma skeleton means in shared memory, registers and tiles. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { physicalColumns } from '../../operands.js';
import { CONSUMERS, SLAB, WGMMA_ROWS } from './instruction.js';

const ALIGNMENT = 1024;
const BARRIER = 8;

export interface WgmmaLayout {
  readonly isPingPong: boolean;
  /** 64-row instructions that a consumer warpgroup issues for each 16 of k: accumulators are rowBlocks · tn/2 registers. */
  readonly rowBlocks: number;
  /** 64-wide slabs of k in a stage. */
  readonly slabs: number;
  readonly aBytes: number;
  readonly bBytes: number;
  readonly stageBytes: number;
  /** Bytes from the aligned base. */
  readonly barrierOffset: number;
  readonly rowValuesOffset: number;
  readonly sharedBytes: number;
  /** Registers of a thread after setmaxnreg; 504 in all for the three warpgroups of a block. */
  readonly producerRegisters: number;
  readonly consumerRegisters: number;
}

/** Shared memory and registers of a block; `rowValues` floats a row are kept, twice. */
export function wgmmaLayout({ tm, tn, tk, stages, mode }: CudaGemmSchedule, rowValues: number): WgmmaLayout {
  const isPingPong = mode === 'pingpong';
  const aBytes = tm * tk * 2;
  const bBytes = tn * tk * 2;
  const barrierOffset = stages * (aBytes + bBytes);
  // Two barriers a stage, and two pairs for the row values.
  const rowValuesOffset = barrierOffset + 2 * BARRIER * stages + 4 * BARRIER;
  const rowBlocks = tm / WGMMA_ROWS / (isPingPong ? 1 : CONSUMERS);
  const isTight = rowBlocks * (tn / 2) > MOST_RELAXED;
  return {
    isPingPong, rowBlocks, slabs: tk / SLAB, aBytes, bBytes, stageBytes: aBytes + bBytes, barrierOffset, rowValuesOffset,
    sharedBytes: ALIGNMENT + rowValuesOffset + 2 * tm * rowValues * 4,
    producerRegisters: isTight ? 24 : 40, consumerRegisters: isTight ? 240 : 232,
  };
}

/** Accumulators of a thread up to which 232 registers suffice; and the most that 240 hold beside a main loop's own. */
const MOST_RELAXED = 192;
export const MOST_ACCUMULATORS = 208;

/** Column tiles of each segment, in order: the first of each, and how many there are in all. */
export function columnTiles(segments: readonly Segment[], tn: number): { readonly first: readonly number[]; readonly total: number } {
  const first: number[] = [];
  let total = 0;
  for (const { columns, pairing } of segments) {
    first.push(total);
    total += Math.ceil(physicalColumns(columns, pairing) / tn);
  }
  return { first, total };
}
