/** What the GPU tests run every skeleton on: random models with random schedules, and sizes of micro-batches. */
import { scoreOf } from '../../../ir/plan.js';
import type { CudaFacts } from '../../../codegen/cuda/index.js';
import { randomSource } from '../harness.js';
import { kernelsToCheck, type Checked, type Sizes } from './checkKernels.js';
import { below, randomModel, type RandomModel } from './randomModel.js';
import { randomSchedules } from './randomSchedules.js';

/** Rows of every buffer. Rows behind a micro-batch hold NaN. */
export const CASE_CAPACITY = 320;

export interface Case {
  readonly model: RandomModel;
  readonly list: readonly Checked[];
  readonly sizes: readonly Pick<Sizes, 'T' | 'R'>[];
}

/**
 * Two models whose widths fill no tile and two whose widths fill many, in both element types. Writes a config.json to
 * `folder`.
 */
export function randomCases(folder: string, seed: number, facts: CudaFacts): Case[] {
  const random = randomSource(seed);
  const of = (index: number, dtype: 'bf16' | 'f16', step: number, sizes: Case['sizes']): Case => {
    const model = randomModel(folder, 10 * seed + index, dtype, facts, { scale: 0.8, step });
    const counts = {
      simt: 1,
      mma: 1,
      skinny: 1,
      skinnyWgmma: facts.arch === 'sm_90a' ? 1 : 0,
      grouped: 0,
      micro: 0,
      wgmma: facts.arch === 'sm_90a' ? 1 : 0,
    };
    const plan = scoreOf(model.plan);
    return {
      model,
      list: kernelsToCheck(plan, CASE_CAPACITY, (kernel) => randomSchedules(kernel, plan, facts, random, counts)),
      sizes,
    };
  };
  const any = (): Case['sizes'][number] => ({ T: 66 + below(random, 120), R: 3 + below(random, 100) });
  return [
    of(0, 'bf16', 2, [{ T: 1, R: 1 }, any()]),
    of(1, 'f16', 2, [any()]),
    of(2, 'bf16', 64, [{ T: 256, R: 128 }]),
    of(3, 'f16', 64, [any()]),
  ];
}
