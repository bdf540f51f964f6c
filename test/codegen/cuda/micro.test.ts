/** Microscaled weights of experts, on fibres: bits that depend on no tile, those of the same weights in bf16. */
import { beforeAll, describe, expect, it } from 'vitest';
import { emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import { TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { emulateModule, type EmulateOptions } from './emulate.js';
import { expectGolden } from './golden.js';
import { arrangeMicro, microCase, outputsOf, SMALL } from './microCases.js';

const FACTS = TYPICAL_FACTS.sm_90a;
const CASE = microCase(SMALL);
const { module: PLAN, products: PRODUCTS } = CASE;

const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
const micro = (tm: number, tn: number, tk: number, stages: number, raster = 1): CudaGemmSchedule => ({
  ...{ ...GEMM, skeleton: 'micro' },
  ...{ tm, tn, tk, stages, raster },
});
const MMA: CudaGemmSchedule = { ...GEMM, skeleton: 'mma', tm: 32, tn: 64, tk: 32, stages: 3 };
const SIMT: CudaGemmSchedule = { ...GEMM, skeleton: 'simt', tm: 16, tn: 64, tk: 32, stages: 1 };

type Values = readonly (readonly [string, Float64Array])[];

function run(
  schedules: readonly CudaGemmSchedule[],
  isDecoded: boolean,
  more: Pick<EmulateOptions, 'multiprocessors' | 'backwards'> = {},
): Values {
  const { module, options } = arrangeMicro(CASE, schedules, isDecoded);
  PRODUCTS.forEach((kernel, i) => expect(isLegalCuda(kernel, module, schedules[i]!, FACTS)).toBe(true));
  const { values } = emulateModule(module, { ...options, ...more });
  return outputsOf(CASE).map((name) => [name, values.get(name)!]);
}

describe('microscaled weights of experts', () => {
  let reference: Values = [];
  beforeAll(() => {
    expect(PRODUCTS).toHaveLength(2);
    reference = run([MMA, MMA], true);
    for (const [, values] of reference) {
      expect(values.every((x) => Number.isFinite(x))).toBe(true);
      expect(new Set(values).size).toBeGreaterThan(1000);
    }
  });
  const CASES = [
    ['eight rows, many by warpgroups', [micro(8, 48, 192, 2), micro(64, 192, 128, 2)], { multiprocessors: 7 }],
    ['few rows by warpgroups', [micro(16, 128, 128, 2, 4), micro(32, 64, 64, 4, 4)], { multiprocessors: 5 }],
    ['many rows, sixteen, few blocks', [micro(128, 64, 128, 3), micro(16, 96, 64, 4, 2)], { multiprocessors: 2 }],
    ['wide, backwards', [micro(32, 256, 128, 2, 2), micro(128, 128, 128, 2)], { backwards: true }],
  ] as const;
  it.each(casesHere<(typeof CASES)[number]>(CASES, 0))('have the bits of bf16: %s', (_, schedules, options) => {
    expect(run(schedules, false, options)).toEqual(reference);
  });
  thorough('have the bits of bf16 by warpgroups in turn', () => {
    const pingpong = { ...MMA, skeleton: 'wgmma', tm: 64, tn: 64, tk: 64, mode: 'pingpong' } as const;
    expect(run([pingpong, pingpong], true)).toEqual(reference);
  });
  thorough('are near what CUDA cores compute', () => {
    run([SIMT, SIMT], false).forEach(([, values], at) => {
      const [, wanted] = reference[at]!;
      const most = wanted.reduce((all, x) => Math.max(all, Math.abs(x)), 0);
      values.forEach((x, i) => expect(Math.abs(x - wanted[i]!)).toBeLessThan(most * 2 ** -6));
    });
  });
});

describe('the text', () => {
  it('is golden', async () => {
    const textOf = (schedule: CudaGemmSchedule): string =>
      emitCudaKernel(PRODUCTS[0]!, PLAN, schedule, PLAN.capacity.extents).source;
    await expectGolden(textOf(micro(8, 48, 192, 2)), 'micro');
    await expectGolden(textOf(micro(128, 192, 128, 3)), 'microWide');
  });
});
