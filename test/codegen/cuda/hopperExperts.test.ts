/**
 * Products of experts by warpgroup products, over fibres: row tiles begin where an expert's rows do. Beside kernel IR,
 * and equal to the bit in all schedules.
 */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Kernel, RouteKernel } from '../../../ir/kernel.js';
import { interpretKernel } from '../../../ir/kernelInterpreter.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { besideCuts } from './besideCuts.js';
import { BATCH, emulateExperts, FACTS, GROUPED, PLAN, TENSORS, wgmma } from './expertCases.js';
import { expectGolden } from './golden.js';

const RESULTS = GROUPED.flatMap(({ segments }) =>
  segments.flatMap(({ outputs }) => outputs.map(({ buffer }) => buffer)),
);

const known = new Map<CudaGemmSchedule, ReadonlyMap<string, Float64Array>>();

function valuesOf(schedule: CudaGemmSchedule, options: { multiprocessors?: number; backwards?: boolean }) {
  const values = known.get(schedule) ?? emulateExperts(schedule, options);
  known.set(schedule, values);
  return values;
}

/** Of bf16 numbers, relative to the largest. */
const ROUNDING = 2 ** -8;

const CASES = [
  ['narrow, few blocks', wgmma('pingpong', 64, 96, 3), { multiprocessors: 2, backwards: true }],
  ['tall', wgmma('pingpong', 128, 64, 4), {}],
  ['wide', wgmma('pingpong', 64, 256, 2), { multiprocessors: 5 }],
  ['tall and wide', wgmma('pingpong', 128, 208, 2), { multiprocessors: 1, backwards: true }],
] as const;

describe('products of experts on Hopper', () => {
  it.each(casesHere<(typeof CASES)[number]>(CASES, 0))('agree with kernel IR: %s', (_, schedule, options) => {
    const values = valuesOf(schedule, options);
    const env = { sizes: BATCH.sizes, buffers: values, tensors: TENSORS, decls: PLAN, round: true };
    for (const kernel of GROUPED)
      for (const [name, wanted] of interpretKernel(kernel, env)) {
        const got = values.get(name)!;
        const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
        expect(largest).toBeGreaterThan(0.1);
        const { low, high } = besideCuts(kernel, env, 2e-5).get(name)!;
        got.forEach((x, i) => {
          expect(Math.max(low[i]! - x, x - high[i]!) / largest).toBeLessThan(ROUNDING);
        });
      }
  });

  it('have golden text', async () => {
    const schedule = wgmma('pingpong', 64, 96, 3);
    await expectGolden(emitCudaKernel(GROUPED[0]!, PLAN, schedule, PLAN.capacity.extents).source, 'wgmmaExperts');
    const mma = { ...schedule, skeleton: 'mma', mode: 'cooperative', tn: 64, tk: 32 } as const;
    await expectGolden(emitCudaKernel(GROUPED[0]!, PLAN, mma, PLAN.capacity.extents).source, 'mmaExperts');
  });

  it.each(['route', 'sortByExpert'] as const)('are chosen and put in order by golden text: %s', async (anchor) => {
    const { pairs, ...route } = PLAN.kernels.find((each): each is RouteKernel => each.anchor === 'route')!;
    const { weights: _, logits, ...own } = route;
    const kernel: Kernel = anchor === 'route' ? { ...route, pairs: pairs! } : { ...own, ...pairs!, anchor };
    const loop = { kind: 'loop', threads: 128 } as const;
    await expectGolden(emitCudaKernel(kernel, PLAN, loop, PLAN.capacity.extents).source, anchor);
  });

  thorough('have the same bits in every schedule', () => {
    const outputs = PLAN.buffers.filter(({ space }) => space === 'output').map(({ name }) => name);
    const [first, ...others] = casesHere<(typeof CASES)[number]>(CASES, 0, 1).map(([, schedule, options]) =>
      valuesOf(schedule, options),
    );
    for (const name of [...outputs, ...RESULTS])
      for (const values of others) expect(values.get(name), name).toEqual(first!.get(name));
  });

  it('take no clusters, and warpgroups in turn', () => {
    for (const illegal of [
      { ...wgmma('pingpong', 64, 64, 2), cluster: 2 } as const,
      wgmma('deferred', 128, 64, 2),
      wgmma('cooperative', 128, 64, 2),
    ])
      expect(isLegalCuda(GROUPED[0]!, PLAN, illegal, FACTS)).toMatch(/expert/);
  });
});
