/**
 * A tile whose rows have a slot each, over fibres: second factors fill the ring many times, whatever its stages hold.
 * Every skeleton gives the same bits; a row has those that it has alone, and a row without slot those of a kernel
 * without adapters.
 */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { expectSame } from '../support/numbers.js';
import { adapterCase, emulateAdapters, emulateBase, outputsOf } from '../codegen/cuda/adapterCases.js';
import type { LayerGemm } from '../codegen/cuda/wgmmaKernels.js';

const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
/** Four steps of k or two, fewer than some rings have stages. */
const SHAPE = { hidden: 144, inter: 200, headDim: 48 } as const;

type Tile = readonly [tm: number, tn: number, tk: number, stages: number];
const onHopper = (cluster: 1 | 2, ...[tm, tn, tk, stages]: Tile): CudaGemmSchedule => ({
  ...{ kind: 'gemm', skeleton: 'skinnyWgmma', raster: 1, mode: 'cooperative', cluster },
  ...{ tm, tn, tk, stages },
});
const skinny = (...tile: Tile): CudaGemmSchedule => ({ ...onHopper(1, ...tile), skeleton: 'skinny' });
const wgmma = (...tile: Tile): CudaGemmSchedule => ({ ...onHopper(1, ...tile), skeleton: 'wgmma', mode: 'pingpong' });

/** Distinct slots in no order; −1 in every `each`-th row where they are fewer than rows. */
function slotsOf(rows: number, distinct: number): number[] {
  let next = 0;
  return Array.from({ length: rows }, (_, row) =>
    (row * distinct) % rows < distinct ? (next++ * 27 + 5) % distinct : -1,
  );
}

interface Case {
  readonly which: LayerGemm;
  readonly rank: number;
  readonly half?: 'bf16' | 'f16';
  readonly rows: number;
  readonly distinct: number;
  readonly schedules: readonly CudaGemmSchedule[];
}

const CASES: readonly Case[] = [
  {
    ...{ which: 'down', rank: 16, rows: 40, distinct: 40 },
    schedules: [onHopper(1, 32, 80, 64, 2), skinny(16, 48, 64, 3)],
  },
  {
    ...{ which: 'down', rank: 16, rows: 64, distinct: 64 },
    schedules: [
      ...[2, 3, 4, 5, 6].map((stages) => onHopper(1, 64, 48, 64, stages)),
      ...[2, 5].map((stages) => onHopper(2, 64, 80, 64, stages)),
      onHopper(1, 8, 144, 128, 3),
      ...[skinny(64, 48, 64, 3), skinny(32, 80, 64, 6), wgmma(64, 80, 64, 2)],
    ],
  },
  {
    ...{ which: 'gateUp', rank: 32, rows: 64, distinct: 64 },
    schedules: [
      ...[2, 3, 6].map((stages) => onHopper(1, 64, 64, 64, stages)),
      ...[onHopper(2, 64, 112, 64, 3), onHopper(1, 64, 208, 64, 2), onHopper(2, 32, 112, 64, 4)],
      ...[skinny(64, 64, 64, 4), wgmma(64, 128, 64, 3)],
    ],
  },
  {
    ...{ which: 'qkv', rank: 16, half: 'f16', rows: 64, distinct: 40 },
    schedules: [
      ...[4, 5].map((stages) => onHopper(1, 64, 48, 64, stages)),
      ...[onHopper(2, 32, 48, 128, 2), skinny(32, 48, 64, 3), wgmma(64, 96, 64, 3)],
    ],
  },
  {
    ...{ which: 'o', rank: 32, rows: 64, distinct: 40 },
    schedules: [
      ...[onHopper(1, 64, 96, 64, 6), onHopper(1, 32, 176, 128, 3), onHopper(2, 16, 48, 64, 2)],
      ...[skinny(16, 32, 128, 3), wgmma(64, 96, 64, 2)],
    ],
  },
];

const textOf = ({ skeleton, tm, tn, tk, stages, cluster }: CudaGemmSchedule): string =>
  `${skeleton} ${tm}×${tn}×${tk}, ${stages} stages, clusters of ${cluster}`;

describe('as many slots as rows', () => {
  const titled = CASES.map((each) => ({ what: `${each.which} of rank ${each.rank}, ${each.distinct} slots`, each }));
  it.each(titled)('$what', ({ each: { which, rank, half, rows, distinct, schedules } }) => {
    const own = adapterCase(which, { ...SHAPE, ...(half && { half }) }, { slots: distinct, rank });
    const slots = slotsOf(rows, distinct);
    expect(new Set(slots.filter((slot) => slot >= 0)).size).toBe(distinct);
    for (const schedule of schedules)
      expect(isLegalCuda(own.kernel, own.module, schedule, H100), textOf(schedule)).toBe(true);
    const first = schedules[0]!;
    const want = outputsOf(own, emulateAdapters(own, { slots }, { gemm: first }), rows);
    const base = outputsOf(own, emulateBase(own, { slots }, first), rows);
    for (const [name, all] of want) {
      expect(all.some((row, i) => slots[i]! >= 0 && row.some((x, at) => x !== base.get(name)![i]![at]!))).toBe(true);
      all.forEach((row, i) => slots[i]! < 0 && expectSame(row, base.get(name)![i], `${name} of base row ${i}`));
    }
    schedules.slice(1).forEach((gemm, i) => {
      const got = outputsOf(own, emulateAdapters(own, { slots }, { gemm }, { backwards: i % 2 === 0 }), rows);
      for (const [name, all] of got)
        all.forEach((row, at) => expectSame(row, want.get(name)![at], `${name} of row ${at}: ${textOf(gemm)}`));
    });
    for (const row of [0, 33, rows - 1]) {
      const alone = outputsOf(own, emulateAdapters(own, { slots: [slots[row]!], rows: [row] }, { gemm: first }), 1);
      for (const [name, [values]] of alone) expectSame(values, want.get(name)![row], `${name} of row ${row} alone`);
    }
  });
});
