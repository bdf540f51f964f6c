/**
 * Rows of adapters in kernels of few rows, over fibres: against float64; rows without adapter have the bits of a kernel
 * without adapters, all rows those that they have in other company and under other schedules.
 */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere } from '../../support/thorough.js';
import { adapterCase, emulateAdapters, emulateBase, interpretAdapters, outputsOf } from './adapterCases.js';

const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;

const skinny = (tm: number, tn: number, tk: number, stages: number): CudaGemmSchedule => ({
  ...GEMM,
  ...{ skeleton: 'skinny', tm, tn, tk, stages },
});
const onHopper = (tm: number, tn: number, tk: number, stages: number): CudaGemmSchedule => ({
  ...skinny(tm, tn, tk, stages),
  skeleton: 'skinnyWgmma',
});
const inPairs = (schedule: CudaGemmSchedule): CudaGemmSchedule => ({ ...schedule, cluster: 2 });

/** k of 144 and 200 ends within a stage; columns end within a tile. */
const SHAPE = { hidden: 144, inter: 200, headDim: 48 } as const;

/** More slots than the stages of a ring hold pieces for. */
const MIXED = [0, -1, 4, 4, 0, 1, -1, 5, 6, 3, 8, 9, 10, -1, 11, 12, 13, 2, 1, 7, 3];
const SLOTS = 14;

describe('rows of adapters', () => {
  const CASES = [
    ['gateUp', 16, [skinny(8, 48, 64, 4), onHopper(32, 96, 64, 3)]],
    ['qkv', 32, [skinny(32, 48, 64, 3), inPairs(onHopper(16, 48, 64, 2))]],
    ['o', 64, [skinny(16, 32, 128, 3), onHopper(8, 176, 64, 3)]],
    ['down', 48, [skinny(16, 80, 64, 16), onHopper(32, 80, 128, 2)]],
  ] as const;
  it.each(casesHere<(typeof CASES)[number]>(CASES, 0))('%s of rank %i', (which, rank, schedules) => {
    const own = adapterCase(which, SHAPE, { slots: SLOTS, rank });
    const count = MIXED.length;
    for (const schedule of schedules) expect(isLegalCuda(own.kernel, own.module, schedule, H100)).toBe(true);
    const all = { slots: MIXED };
    const [first, second] = schedules.map((gemm, i) => emulateAdapters(own, all, { gemm }, { backwards: i === 1 }));
    for (const [name, values] of second!) expectSame(first!.get(name), values, name);
    const got = outputsOf(own, first!, count);

    const expected = outputsOf(own, interpretAdapters(own, all), count);
    const base = outputsOf(own, emulateBase(own, all, schedules[0]), count);
    let changed = 0;
    for (const [name, rows] of got) {
      const most = Math.max(
        ...expected
          .get(name)!
          .flatMap((row) => [...row])
          .map(Math.abs),
      );
      rows.forEach((row, i) => {
        if (name !== 'nextTail')
          row.forEach((x, at) => expect(Math.abs(x - expected.get(name)![i]![at]!)).toBeLessThanOrEqual(most / 64));
        if (MIXED[i]! < 0) expectSame(row, base.get(name)![i], `${name} of base row ${i}`);
        else changed += row.some((x, at) => x !== base.get(name)![i]![at]!) ? 1 : 0;
      });
    }
    expect(changed).toBeGreaterThan(0);

    // In other company, and alone.
    const chosen = [12, 1, 17];
    const few = { slots: chosen.map((row) => MIXED[row]!), rows: chosen };
    const apart = outputsOf(own, emulateAdapters(own, few, { gemm: schedules[1] }), chosen.length);
    for (const [name, rows] of apart)
      rows.forEach((row, i) => expectSame(row, got.get(name)![chosen[i]!], `${name} of row ${chosen[i]}`));
  });
});
