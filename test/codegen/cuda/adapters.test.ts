/**
 * Contractions of many rows with adapters, over fibres: near to float64; tensor cores give the same bits under every
 * schedule, to rows without adapter those of a kernel without any, and to others those that they have in company of
 * their own.
 */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { type Adapters, emulateAdapted, interpretAdapted, withAdapters } from './adapters.js';
import { layerGemm, type LayerGemm } from './wgmmaKernels.js';

const FACTS = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
/** k ends within a stage, columns within a tile. */
const [HIDDEN, INTER, HEAD_DIM] = [144, 200, 48];

interface Run {
  readonly schedule: CudaGemmSchedule;
  readonly backwards?: boolean;
  readonly multiprocessors?: number;
}

const gemm = (
  skeleton: CudaGemmSchedule['skeleton'],
  mode: CudaGemmSchedule['mode'],
  tile: readonly [tm: number, tn: number, tk: number, stages: number],
  more: Partial<Pick<CudaGemmSchedule, 'cluster' | 'remainderTn'> & Omit<Run, 'schedule'>> = {},
): Run => {
  const [tm, tn, tk, stages] = tile;
  const { backwards = false, multiprocessors, ...rest } = more;
  return {
    schedule: { kind: 'gemm', skeleton, tm, tn, tk, stages, cluster: 1, raster: 2, mode, ...rest },
    backwards,
    ...(multiprocessors === undefined ? {} : { multiprocessors }),
  };
};

/** Rows of these slots, `count` of each, again and again. */
const inTurns = (rows: number, count: number, slots: readonly number[]): number[] =>
  Array.from({ length: rows }, (_, i) => slots[Math.floor(i / count) % slots.length]!);

interface Case extends Adapters {
  readonly which: LayerGemm;
  readonly half?: 'bf16' | 'f16';
  readonly slotOf: readonly number[];
  readonly runs: readonly Run[];
}

const CASES: readonly Case[] = [
  {
    which: 'gateUp',
    ...{ slots: 3, rank: 32, slotOf: inTurns(150, 13, [0, -1, 2, 1]) },
    runs: [
      gemm('wgmma', 'pingpong', [64, 128, 64, 3], { multiprocessors: 1 }),
      gemm('mma', 'cooperative', [64, 128, 32, 2]),
      gemm('skinnyWgmma', 'cooperative', [64, 112, 64, 3], { cluster: 2, backwards: true }),
    ],
  },
  {
    which: 'gateUp',
    ...{ slots: 2, rank: 80, slotOf: inTurns(300, 140, [1, -1, 0]) },
    runs: [
      gemm('wgmma', 'cooperative', [128, 128, 64, 2], { cluster: 2, backwards: true }),
      gemm('wgmma', 'cooperative', [128, 192, 128, 2]),
      gemm('mma', 'cooperative', [32, 64, 64, 3]),
    ],
  },
  {
    which: 'o',
    half: 'f16',
    ...{ slots: 4, rank: 16, slotOf: inTurns(150, 3, [1, -1, 3, 3]) },
    runs: [
      gemm('wgmma', 'deferred', [128, 96, 64, 3], { remainderTn: 64, multiprocessors: 3 }),
      gemm('wgmma', 'deferred', [128, 96, 64, 3], { remainderTn: 64, multiprocessors: 7, backwards: true }),
      gemm('wgmma', 'pingpong', [128, 96, 64, 2], { cluster: 2 }),
      gemm('skinnyWgmma', 'cooperative', [16, 48, 64, 3], { cluster: 2 }),
    ],
  },
  {
    which: 'qkv',
    ...{ slots: 4, rank: 64, slotOf: inTurns(150, 140, [1, 2]) },
    runs: [
      gemm('wgmma', 'deferred', [128, 192, 64, 3], { cluster: 2, multiprocessors: 2 }),
      gemm('wgmma', 'deferred', [128, 256, 64, 2], { multiprocessors: 1, backwards: true }),
      gemm('wgmma', 'pingpong', [64, 96, 64, 3], { multiprocessors: 1 }),
    ],
  },
  {
    // Tiles whose rows all have one slot, and one of whose rows some have none.
    which: 'gateUp',
    ...{ slots: 2, rank: 16, slotOf: Array.from({ length: 330 }, (_, row) => (row < 256 ? 1 : row < 320 ? 0 : -1)) },
    runs: [
      gemm('wgmma', 'deferred', [128, 192, 64, 3], { cluster: 2, multiprocessors: 2 }),
      gemm('wgmma', 'pingpong', [64, 128, 64, 3]),
      gemm('wgmma', 'cooperative', [128, 128, 64, 3], { backwards: true }),
      gemm('mma', 'cooperative', [64, 128, 32, 2]),
    ],
  },
  {
    // As many slots as rows, more than a ring has stages.
    which: 'down',
    ...{ slots: 40, rank: 16, slotOf: Array.from({ length: 40 }, (_, row) => 39 - row) },
    runs: [
      gemm('wgmma', 'pingpong', [64, 80, 64, 2], { multiprocessors: 1 }),
      gemm('skinnyWgmma', 'cooperative', [32, 80, 64, 2]),
      gemm('skinny', 'cooperative', [16, 32, 64, 3]),
    ],
  },
];

type Values = ReadonlyMap<string, Float64Array>;

/** Of the rows that `slotOf` gives to `slot`. */
function expectSameRows(got: Values, want: Values, slotOf: readonly number[], slot: number, names: readonly string[]) {
  for (const name of names) {
    const columns = got.get(name)!.length / slotOf.length;
    const rowsOf = (values: Values): Float64Array =>
      values.get(name)!.filter((_, i) => slotOf[Math.floor(i / columns)] === slot);
    expectSame(rowsOf(got), rowsOf(want), `${name} of slot ${slot}`);
  }
}

const check = ({ which, half = 'bf16', slotOf, runs, ...adapters }: Case): void => {
  const plain = layerGemm(which, HIDDEN, INTER, HEAD_DIM, half);
  const own = withAdapters(plain, adapters);
  const names = own.kernel.segments.flatMap(({ outputs }) => outputs.map(({ buffer }) => buffer));
  const run = (of: typeof own, slots: readonly number[], { schedule, ...options }: Run): Values => {
    expect(isLegalCuda(of.kernel, of.module, schedule, FACTS)).toBe(true);
    return emulateAdapted(of, slots, schedule, options);
  };
  const [first, ...others] = runs;
  const got = run(own, slotOf, first!);
  for (const other of others) {
    const values = run(own, slotOf, other);
    for (const name of names) expectSame(values.get(name), got.get(name), name);
  }

  const want = interpretAdapted(own, slotOf);
  for (const name of names) {
    if (name === 'nextTail') continue;
    const all = want.get(name)!;
    const most = all.reduce((max, x) => Math.max(max, Math.abs(x)), 0);
    all.forEach((x, i) => expect(Math.abs(got.get(name)![i]! - x)).toBeLessThanOrEqual(most / 64));
  }
  const base = run(plain, slotOf, first!);
  expect(names.some((name) => got.get(name)!.some((x, i) => x !== base.get(name)![i]))).toBe(true);
  expectSameRows(got, base, slotOf, -1, names);
  const slot = Math.max(...slotOf);
  const alone = run(
    own,
    slotOf.map(() => slot),
    first!,
  );
  expectSameRows(got, alone, slotOf, slot, names);
};

describe('contractions of many rows with adapters', () => {
  const titled = (each: Case, i: number) => ({ what: `${i}: ${each.which} of rank ${each.rank}`, each });
  it.each(casesHere(CASES.map(titled), 0))('have the bits of every skeleton, row by row: $what', ({ each }) => {
    check(each);
  });

  it('do not share rows in clusters of few where only some columns have adapters', () => {
    const pairs = gemm('skinnyWgmma', 'cooperative', [16, 48, 64, 3], { cluster: 2 }).schedule;
    const some = { slots: 2, rank: 16 };
    const plain = layerGemm('qkv', HIDDEN, INTER, HEAD_DIM);
    const verdict = ({ kernel, module }: typeof plain, schedule: CudaGemmSchedule) =>
      isLegalCuda(kernel, module, schedule, FACTS);
    const first = withAdapters(plain, some, (segment) => segment === 0);
    expect(verdict(withAdapters(plain, some), pairs)).toBe(true);
    expect(verdict(first, { ...pairs, cluster: 1 })).toBe(true);
    expect(verdict(first, pairs)).toMatch(/only some of its columns have adapters/);
  });

  thorough('agree with float64 on CUDA cores', () => {
    const slotOf = inTurns(50, 3, [0, -1, 2, 1]);
    const own = withAdapters(layerGemm('gateUp', HIDDEN, INTER, HEAD_DIM), { slots: 3, rank: 16 });
    const got = emulateAdapted(own, slotOf, gemm('simt', 'cooperative', [32, 64, 32, 1]).schedule);
    const want = interpretAdapted(own, slotOf).get('gated')!;
    const most = want.reduce((max, x) => Math.max(max, Math.abs(x)), 0);
    want.forEach((x, i) => expect(Math.abs(got.get('gated')![i]! - x)).toBeLessThanOrEqual(most / 64));
  });
});
