/**
 * Products of few rows that shrink the rows of their adapters themselves, over fibres: the bits of a shrink kernel and a
 * product, whatever slots rows have.
 */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere } from '../../support/thorough.js';
import { type AdapterCase, adapterCase, emulateAdapters, emulateShrinking, outputsOf } from './adapterCases.js';

const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const tile = (tm: number, tn: number, tk: number, stages: number, cluster: 1 | 2 = 1): CudaGemmSchedule => ({
  ...{ kind: 'gemm', skeleton: 'skinnyWgmma', tm, tn, tk, stages, cluster, raster: 1, mode: 'cooperative' },
});

/** k of 296 and 328 ends within a range and within a stage; columns end within a tile. */
const SHAPE = { hidden: 296, inter: 328, headDim: 8 } as const;
const SLOTS = 14;

/** Slots of rows: none, one, more than eight rows of one, rows of one far apart, and many. */
const slotsOf = (rows: number, seed: number): number[] =>
  Array.from({ length: rows }, (_, row) =>
    seed === 0 ? 5 : (row * 7 + seed) % 5 === 0 ? -1 : row % 3 === 0 ? 2 : (row * seed) % SLOTS,
  );

function expectBitsOf(own: AdapterCase, gemm: CudaGemmSchedule, slots: readonly number[], backwards = false): void {
  expect(isLegalCuda(own.kernel, own.module, { ...gemm, adapters: 'shrinks' }, H100)).toBe(true);
  const wanted = outputsOf(own, emulateAdapters(own, { slots }, { gemm }), slots.length);
  // A second launch begins with the numbers that the first has left.
  const got = outputsOf(own, emulateShrinking(own, { slots }, gemm, { backwards, times: 2 }), slots.length);
  for (const [name, rows] of got)
    rows.forEach((row, i) => expectSame(row, wanted.get(name)![i], `${name} of row ${i}, slot ${slots[i]}`));
}

describe('products that shrink rows themselves', () => {
  const CASES = [
    ['gateUp', 16, tile(8, 48, 64, 3), [1, 5, 8]],
    ['gateUp', 32, tile(64, 96, 64, 3), [33, 64]],
    ['qkv', 16, tile(16, 48, 64, 2, 2), [16]],
    ['qkv', 64, tile(32, 48, 64, 3), [33]],
    ['o', 64, tile(8, 176, 64, 3), [5, 16]],
    ['down', 48, tile(32, 80, 128, 2), [20]],
  ] as const;
  it.each(casesHere<(typeof CASES)[number]>(CASES, 0))('have the bits of two kernels: %s of rank %i', (...given) => {
    const [which, rank, gemm, counts] = given;
    const own = adapterCase(which, SHAPE, { slots: SLOTS, rank });
    for (const [i, rows] of counts.entries())
      for (const seed of [0, 3]) expectBitsOf(own, gemm, slotsOf(rows, seed), (i + seed) % 2 === 1);
    expectBitsOf(own, gemm, [-1, -1, -1]);
  });
});
