/**
 * Products of few rows that shrink the rows of their adapters themselves, over fibres: the bits of a shrink kernel and
 * a product, whatever slots rows have. The numbers are such that the order of sums decides these bits.
 */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, isLegalCuda, shrinkingSchedule } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { expectSame } from '../../support/numbers.js';
import { thorough } from '../../support/thorough.js';
import {
  type AdapterCase,
  adapterCase,
  emulateAdapters,
  emulateBoth,
  emulateShrinking,
  outputsOf,
} from './adapterCases.js';

const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const tile = (tm: number, tn: number, tk: number, stages: number, cluster: 1 | 2 = 1): CudaGemmSchedule => ({
  ...{ kind: 'gemm', skeleton: 'skinnyWgmma', tm, tn, tk, stages, cluster, raster: 1, mode: 'cooperative' },
});

const many = (
  mode: CudaGemmSchedule['mode'],
  [tm, tn, stages]: readonly [number, number, number],
  cluster: 1 | 2 = 1,
): CudaGemmSchedule => ({ kind: 'gemm', skeleton: 'wgmma', tm, tn, tk: 64, stages, cluster, raster: 2, mode });

/** k of 240 and 328 ends within a range and within a stage; columns end within a tile. */
const SHAPE = { hidden: 240, inter: 328, headDim: 16 } as const;
/** Ranges of 8,232 of k have three parts, of which the last is short. */
const DEEP_SHAPE = { hidden: 64, inter: 8232, headDim: 16 } as const;
const SLOTS = 14;

/** Slots of rows: all one, or none, more than eight rows of one, rows of one far apart, and many. */
const slotsOf = (rows: number, seed: number): number[] =>
  Array.from({ length: rows }, (_, row) =>
    seed === 0 ? 5 : (row * 7 + seed) % 5 === 0 ? -1 : row % 3 === 0 ? 2 : (row * seed) % SLOTS,
  );

type Options = Parameters<typeof emulateShrinking>[3];

function expectBitsOf(own: AdapterCase, gemm: CudaGemmSchedule, slots: readonly number[], options: Options = {}): void {
  expect(isLegalCuda(own.kernel, own.module, { ...gemm, adapters: 'shrinks' }, H100)).toBe(true);
  const rows = { slots, cancels: true };
  const { wanted, got } =
    options.mutate === undefined
      ? emulateBoth(own, rows, gemm, options)
      : { wanted: emulateAdapters(own, rows, { gemm }), got: emulateShrinking(own, rows, gemm, options) };
  const expected = outputsOf(own, wanted, slots.length);
  for (const [name, all] of outputsOf(own, got, slots.length))
    all.forEach((row, i) => expectSame(row, expected.get(name)![i], `${name} of row ${i}, slot ${slots[i]}`));
}

describe('products that shrink rows themselves', () => {
  it('have the bits of two kernels', () => {
    const own = adapterCase('o', { hidden: 80, inter: 96, headDim: 16 }, { slots: SLOTS, rank: 16 });
    expectBitsOf(own, tile(16, 80, 64, 2), slotsOf(11, 3));
  });

  thorough('have them where many rows are shrunk first', () => {
    const own = adapterCase('o', { hidden: 80, inter: 96, headDim: 16 }, { slots: SLOTS, rank: 16 });
    expectBitsOf(own, many('pingpong', [64, 80, 2]), slotsOf(70, 3));
  });

  it.each([
    [16, 512, true],
    [16, 1024, false],
    [64, 128, true],
    [256, 128, false],
  ])('shrink rows first where this is little work: rank %i, %i rows', (rank, rows, isLittle) => {
    const { kernel, module } = adapterCase('qkv', { hidden: 4096, inter: 14_336, headDim: 128 }, { slots: 64, rank });
    const schedule = defaultCudaSchedule(kernel, module, H100, scoringBucket({ tokens: rows, rows, longest: rows }));
    expect(schedule).toMatchObject({ kind: 'gemm', skeleton: 'wgmma' });
    const own = shrinkingSchedule(kernel, module, schedule as CudaGemmSchedule, rows);
    expect(own?.adapters).toBe(isLittle ? 'shrinks' : undefined);
    if (own !== undefined) expect(isLegalCuda(kernel, module, own, H100)).toBe(true);
  });

  const MANY = [
    ['o', 16, many('pingpong', [64, 80, 3]), 130],
    ['gateUp', 16, many('deferred', [128, 96, 3]), 140],
    ['qkv', 16, many('cooperative', [128, 48, 2], 2), 140],
    ['gateUp', 64, many('pingpong', [128, 48, 3], 2), 135],
    ['down', 48, many('cooperative', [128, 80, 2]), 129],
  ] as const;
  thorough.each(MANY)('have them where many rows are shrunk first: %s of rank %i', (which, rank, gemm, rows) => {
    const own = adapterCase(which, SHAPE, { slots: SLOTS, rank });
    // On fibres blocks run one after another, so the first ones shrink rows themselves instead of waiting for others.
    for (const [i, multiprocessors] of [gemm.cluster, 3 * gemm.cluster].entries())
      for (const seed of [0, 3])
        expectBitsOf(own, gemm, slotsOf(rows - seed, seed), { multiprocessors, backwards: i === 1 });
  });
  thorough('add up parts of long ranges before they multiply', () => {
    const own = adapterCase('down', DEEP_SHAPE, { slots: SLOTS, rank: 16 });
    expectBitsOf(own, many('pingpong', [64, 64, 3]), slotsOf(66, 3), { multiprocessors: 1 });
  });
  thorough('begin again with no work done', () => {
    const own = adapterCase('o', SHAPE, { slots: SLOTS, rank: 16 });
    const [gemm, rows] = [many('pingpong', [64, 80, 3]), { slots: slotsOf(70, 3), cancels: true }];
    const [once, twice] = [1, 3].map((times) => emulateShrinking(own, rows, gemm, { times }));
    for (const [name, values] of outputsOf(own, once!, 70))
      values.forEach((row, i) => expectSame(row, outputsOf(own, twice!, 70).get(name)![i], `${name} of row ${i}`));
  });

  const CASES = [
    ['o', 16, tile(16, 80, 64, 2), [1, 11]],
    ['gateUp', 16, tile(8, 48, 64, 3), [5, 8]],
    ['gateUp', 32, tile(64, 96, 64, 3), [33, 64]],
    ['qkv', 16, tile(16, 32, 64, 2, 2), [16]],
    ['qkv', 64, tile(32, 48, 64, 3), [33]],
    ['o', 64, tile(8, 176, 64, 3), [5, 16]],
    ['down', 48, tile(32, 80, 128, 2), [20]],
  ] as const;
  thorough.each(CASES)('have the bits of two kernels: %s of rank %i', (which, rank, gemm, counts) => {
    const own = adapterCase(which, SHAPE, { slots: SLOTS, rank });
    // Each launch begins with the numbers that the one before has left.
    for (const [i, rows] of counts.entries())
      for (const seed of [0, 3]) expectBitsOf(own, gemm, slotsOf(rows, seed), { backwards: i === 1 });
  });

  const DEEP = [
    [16, tile(16, 32, 64, 3), 13],
    [16, tile(64, 64, 64, 3), 34],
    [64, tile(32, 64, 64, 3), 20],
  ] as const;
  thorough.each(DEEP)('add up parts of long ranges: rank %i', (rank, gemm, rows) => {
    const own = adapterCase('down', DEEP_SHAPE, { slots: SLOTS, rank });
    expectBitsOf(own, gemm, slotsOf(rows, 3));
  });

  thorough('do nothing of it where no row has an adapter', () => {
    expectBitsOf(adapterCase('o', SHAPE, { slots: SLOTS, rank: 16 }), tile(16, 80, 64, 2), [-1, -1, -1]);
  });

  const MUTATIONS: readonly (readonly [string, string, string])[] = [
    ['the order of ranges', 'own[r % of_lane]', 'own[SHRINK_RANGES - r]'],
    ['rows behind the eighth of a slot', '% SHRINKERS_GROUP == 0;', '== 0;'],
    ['pieces of others', 'missing = first + r;', ''],
    ['that what is shrunk may not be there yet', 'if (slots.count > 0) named_sync', 'if (false) named_sync'],
    ['the part of a segment', 'second.shrunk_column,', '0,'],
    ['other slots', 'groups.slot[piece.group]', 'groups.slot[0]'],
  ];
  const FIRST_MUTATIONS: readonly (readonly [string, string, string])[] = [
    ['the order of ranges', 'sums[r * 32 + lane]', 'sums[(SHRINK_RANGES - r) * 32 + lane]'],
    ['slots of other rows', 'is_own = slot == first;', 'is_own = slot != NO_SLOT;'],
    ['that what is shrunk may not be there yet', '== (unsigned)works()', '>= 0u'],
    ['works that nobody has done', 'if (!is_done) run_alone', 'if (false) run_alone'],
    ['the columns of a work', 'work % across * SHRINK_TILE, part', '0, part'],
  ];
  thorough.each(FIRST_MUTATIONS)('notice %s where rows are shrunk first', (_, from, to) => {
    const own = adapterCase('qkv', SHAPE, { slots: SLOTS, rank: 16 });
    const mutate = (source: string): string => source.replaceAll(from, to);
    expect(() => {
      for (const multiprocessors of [1, 3])
        expectBitsOf(own, many('pingpong', [64, 48, 3]), slotsOf(70, 3), { mutate, multiprocessors });
    }).toThrow();
  });
  thorough.each(MUTATIONS)('notice %s', (_, from, to) => {
    const own = adapterCase('qkv', SHAPE, { slots: SLOTS, rank: 16 });
    const gemm = tile(16, 32, 64, 2, 2);
    const mutate = (source: string): string => source.replaceAll(from, to);
    expect(() => {
      for (const rows of [16, 15]) expectBitsOf(own, gemm, slotsOf(rows, rows % 2 === 0 ? 0 : 3), { mutate });
    }).toThrow();
  });
});
