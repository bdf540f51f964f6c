/** Attention with sinks on CUDA, run without a GPU: kernels agree with float64, and over paths to the bit. */
import { describe, expect, it } from 'vitest';
import { expectSame } from '../../support/numbers.js';
import { dataOf, ends, label, MMA, reference, SIMT, tolerance, ZOO } from './attentionCases.js';
import { type AttentionData, emulate, prepare, type Shape } from './attentionHarness.js';
import { pathSchedule, PathWorld } from './pathCases.js';
import { sampleOf, schedulesOf } from './pathSchedules.js';
import { SINK_PATHS, SINK_TREES, withSinks } from './sinkCases.js';

const OPTIONS = { tokensCapacity: 1024 };
const PLANS = SINK_PATHS.map((s) => ({ s, plans: [...sampleOf(schedulesOf(s)), pathSchedule('simt', 4)] }));
const TREE_PLANS = SINK_TREES.flatMap((s) => [MMA, SIMT].map((plan) => ({ s, plan })));

prepare([
  ...PLANS.flatMap(({ s, plans }) => plans.map((plan) => ({ s, plan, capacity: OPTIONS.tokensCapacity }))),
  ...TREE_PLANS.map((each) => ({ ...each, capacity: OPTIONS.tokensCapacity })),
]);

function expectClose(s: Shape, data: AttentionData, plan: (typeof PLANS)[number]['plans'][number]): Float64Array {
  const { out, buffers } = emulate(s, plan, data, OPTIONS);
  const want = reference(s, data, buffers);
  const limit = tolerance(s, plan);
  out.forEach((x, i) => {
    if (!(Math.abs(x - want[i]!) < limit)) expect.fail(`${label(s, plan)}: element ${i} is ${x}, not ${want[i]!}`);
  });
  return out;
}

describe('sinks', () => {
  it.each(PLANS.map((each) => ({ ...each, name: label(each.s, each.plans[0]!) })))(
    'are part of the sums of paths, with the same bits under every schedule: $name',
    ({ s, plans }) => {
      const world = new PathWorld(s, [1, 150, 33], 4);
      const data = withSinks(world.call(world.whole, { placement: 1 }), s);
      const answers = plans.map((plan) => ({ plan, out: expectClose(s, data, plan) }));
      const [first, ...others] = answers.filter(({ plan }) => plan.skeleton !== 'simt');
      for (const { out } of others) expectSame(out, first!.out);
      // Without them the answers are others.
      const { sinks: _, ...plain } = s;
      const without = reference(plain, data, emulate(s, plans[0]!, data, OPTIONS).buffers);
      expect(without.some((x, i) => Math.abs(x - first!.out[i]!) > 0.05)).toBe(true);
    },
  );

  it.each(TREE_PLANS.map((each) => ({ ...each, name: label(each.s, each.plan) })))(
    'are part of the sums of trees: $name',
    ({ s, plan }) => {
      expectClose(s, withSinks(dataOf(s, ends(ZOO), 3), s), plan);
    },
  );
});
