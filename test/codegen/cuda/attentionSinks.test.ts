/** Attention with sinks on CUDA, run without a GPU: kernels agree with float64, and over paths to the bit. */
import { describe, expect, it } from 'vitest';
import { expectSame } from '../../support/numbers.js';
import { dataOf, ends, label, MMA, reference, SIMT, ZOO } from './attentionCases.js';
import { emulate, prepare } from './attentionHarness.js';
import { emulateClose } from './emulateClose.js';
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

describe('sinks', () => {
  it.each(PLANS.map((each) => ({ ...each, name: label(each.s, each.plans[0]!) })))(
    'are part of the sums of paths, with the same bits under every schedule: $name',
    ({ s, plans }) => {
      const world = new PathWorld(s, [1, 150, 33], 4);
      const data = withSinks(world.call(world.whole, { placement: 1 }), s);
      const answers = plans.map((plan) => ({ plan, out: emulateClose(s, data, plan, OPTIONS) }));
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
      emulateClose(s, withSinks(dataOf(s, ends(ZOO), 3), s), plan, OPTIONS);
    },
  );
});
