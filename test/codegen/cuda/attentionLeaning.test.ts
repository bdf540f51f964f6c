/**
 * Attention with slopes of heads, and within chunks and windows over trees, on CUDA, run without a GPU: kernels agree
 * with float64; over paths they have the same bits in every kernel, and however a text is cut into calls.
 */
import { describe, expect, it } from 'vitest';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, isThorough } from '../../support/thorough.js';
import { label, MMA, reference, SIMT } from './attentionCases.js';
import { type AttentionData, emulate, prepare, type Shape } from './attentionHarness.js';
import { emulateClose } from './emulateClose.js';
import { LEANING_PATHS, LEANING_TREES, leaningTrees, withSlopes } from './leaningCases.js';
import { gather, pathSchedule, PathWorld, type Piece } from './pathCases.js';
import { sampleOf, schedulesOf } from './pathSchedules.js';

const OPTIONS = { tokensCapacity: 1024 };
const plansOf = (s: Shape): readonly CudaAttentionSchedule[] => {
  const plans = schedulesOf(s);
  return [...(isThorough ? plans : sampleOf(plans)), pathSchedule('simt', 4)];
};
const PLANS = casesHere(LEANING_PATHS, 0).map((s) => ({ s, plans: plansOf(s) }));
const TREE_PLANS = casesHere(LEANING_TREES, 0).flatMap((s) => [MMA, SIMT].map((plan) => ({ s, plan })));

prepare([
  ...PLANS.flatMap(({ s, plans }) => plans.map((plan) => ({ s, plan, capacity: OPTIONS.tokensCapacity }))),
  ...TREE_PLANS.map((each) => ({ ...each, capacity: OPTIONS.tokensCapacity })),
]);

describe('scores that fall with distance', () => {
  it.each(PLANS.map((each) => ({ ...each, name: label(each.s, each.plans[0]!) })))(
    'agree with float64 over paths, with the same bits under every schedule and in pieces: $name',
    ({ s, plans }) => {
      const world = new PathWorld(s, isThorough ? [1, 150, 33] : [1, 70, 8], 4);
      const call = (pieces: readonly Piece[], placement: number): AttentionData =>
        withSlopes(world.call(pieces, { placement }), s);
      const data = call(world.whole, 1);
      const answers = plans.map((plan) => ({ plan, out: emulateClose(s, data, plan, OPTIONS) }));
      const tensorCores = answers.filter(({ plan }) => plan.skeleton !== 'simt');
      const [first, ...others] = tensorCores;
      for (const { plan, out } of others) expectSame(out, first!.out, JSON.stringify(plan));
      tensorCores.slice(0, 3).forEach(({ plan }, i) => {
        const size = [41, 7, 1][i]!;
        const calls = world.chunks(size).slice(isThorough ? 0 : -2);
        const pieces = gather(world, calls, (given) => emulate(s, plan, call(given, i), OPTIONS).out);
        pieces.forEach((x, at) => {
          if (!Number.isNaN(x)) expect(x, `${at} in pieces of ${size}`).toBe(first!.out[at]);
        });
      });
      // Without slopes the answers are others.
      const { sloped: _, ...plain } = s;
      const without = reference(plain, data, emulate(s, plans[0]!, data, OPTIONS).buffers);
      expect(without.some((x, i) => Math.abs(x - first!.out[i]!) > 0.05)).toBe(true);
    },
  );

  it.each(TREE_PLANS.map((each) => ({ ...each, name: label(each.s, each.plan) })))(
    'agree with float64 over trees: $name',
    ({ s, plan }) => {
      emulateClose(s, leaningTrees(s, 3), plan, OPTIONS);
    },
  );
});
