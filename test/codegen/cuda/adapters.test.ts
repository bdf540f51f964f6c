/** Contractions of many rows with adapters, over fibres: against the float64 interpreter, and bit by bit. */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { casesHere } from '../../support/thorough.js';
import { type Adapters, emulateAdapted, interpretAdapted, withAdapters } from './adapters.js';
import { layerGemm, type LayerGemm, type WgmmaCase } from './wgmmaKernels.js';

const FACTS = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const [HIDDEN, INTER, HEAD_DIM] = [144, 200, 48];

const gemm = (
  skeleton: CudaGemmSchedule['skeleton'],
  mode: CudaGemmSchedule['mode'],
  tile: readonly [tm: number, tn: number, tk: number, stages: number],
  more: Partial<Pick<CudaGemmSchedule, 'cluster' | 'remainderTn'>> = {},
): CudaGemmSchedule => {
  const [tm, tn, tk, stages] = tile;
  return { kind: 'gemm', skeleton, tm, tn, tk, stages, cluster: 1, raster: 2, mode, ...more };
};

const plain = (which: LayerGemm, half: 'bf16' | 'f16' = 'bf16'): WgmmaCase =>
  layerGemm(which, HIDDEN, INTER, HEAD_DIM, half);

/** Rows of these slots, `count` of each, again and again. */
const inTurns = (rows: number, count: number, slots: readonly number[]): number[] =>
  Array.from({ length: rows }, (_, i) => slots[Math.floor(i / count) % slots.length]!);

interface Case {
  readonly what: string;
  readonly which: LayerGemm;
  readonly schedule: CudaGemmSchedule;
  readonly adapters: Adapters;
  readonly slotOf: readonly number[];
  readonly options?: { readonly backwards?: boolean; readonly multiprocessors?: number };
}

/** Relative to the largest value of the buffer. */
function error(got: Float64Array, want: Float64Array): number {
  let [most, scale] = [0, 1e-30];
  want.forEach((x, i) => {
    if (x === got[i] || (Number.isNaN(x) && Number.isNaN(got[i]!))) return;
    const d = Math.abs(got[i]! - x);
    most = Number.isNaN(d) ? Infinity : Math.max(most, d);
    if (Number.isFinite(x)) scale = Math.max(scale, Math.abs(x));
  });
  return most / scale;
}

const CASES: readonly Case[] = [
  {
    what: 'on CUDA cores',
    which: 'gateUp',
    schedule: gemm('simt', 'cooperative', [32, 64, 32, 1]),
    adapters: { slots: 3, rank: 16 },
    slotOf: inTurns(50, 3, [0, -1, 2, 1]),
  },
  {
    what: 'by mma, interleaved',
    which: 'gateUp',
    schedule: gemm('mma', 'cooperative', [64, 128, 32, 2]),
    adapters: { slots: 3, rank: 32 },
    slotOf: inTurns(100, 13, [0, -1, 2, 1]),
  },
  {
    what: 'by mma, several segments',
    which: 'qkv',
    schedule: gemm('mma', 'cooperative', [32, 96, 64, 3]),
    adapters: { slots: 3, rank: 16 },
    slotOf: inTurns(50, 1, [0, -1, 2, 1]),
    options: { backwards: true },
  },
  {
    what: 'ping-pong',
    which: 'qkv',
    schedule: gemm('wgmma', 'pingpong', [64, 96, 64, 3]),
    adapters: { slots: 3, rank: 16 },
    slotOf: inTurns(150, 13, [0, -1, 2, 1]),
    options: { multiprocessors: 1 },
  },
  {
    what: 'cooperative, interleaved, pairs of blocks',
    which: 'gateUp',
    schedule: gemm('wgmma', 'cooperative', [128, 128, 64, 2], { cluster: 2 }),
    adapters: { slots: 2, rank: 32 },
    slotOf: inTurns(300, 140, [1, -1, 0]),
    options: { backwards: true },
  },
  {
    what: 'cooperative, interleaved, high rank, two slabs',
    which: 'gateUp',
    schedule: gemm('wgmma', 'cooperative', [128, 128, 128, 2]),
    adapters: { slots: 2, rank: 80 },
    slotOf: inTurns(130, 5, [1, -1, 0]),
  },
  {
    what: 'deferred, remainder tiles',
    which: 'o',
    schedule: gemm('wgmma', 'deferred', [128, 96, 64, 3], { remainderTn: 64 }),
    adapters: { slots: 4, rank: 16 },
    slotOf: inTurns(150, 3, [1, -1, 3, 3]),
    options: { multiprocessors: 3 },
  },
  {
    what: 'deferred, pairs of blocks',
    which: 'qkv',
    schedule: gemm('wgmma', 'deferred', [128, 192, 64, 3], { cluster: 2 }),
    adapters: { slots: 4, rank: 64 },
    slotOf: inTurns(150, 140, [1, 2]),
    options: { backwards: true, multiprocessors: 2 },
  },
];

describe('contractions of many rows with adapters', () => {
  it.each(casesHere(CASES, 1))('agree with float64: $what', ({ which, schedule, adapters, slotOf, options }) => {
    const own = withAdapters(plain(which), adapters);
    expect(isLegalCuda(own.kernel, own.module, schedule, FACTS)).toBe(true);
    const got = emulateAdapted(own, slotOf, schedule, options);
    const want = interpretAdapted(own, slotOf);
    for (const { outputs } of own.kernel.segments)
      for (const { buffer } of outputs)
        expect({ buffer, error: error(got.get(buffer)!, want.get(buffer)!) }).toSatisfy(
          (x: { error: number }) => x.error < 2e-2,
        );
  });
});
