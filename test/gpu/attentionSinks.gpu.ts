/** Attention with sinks on a real device: every kernel agrees with float64, and those over paths have the same bits. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { attentionSchedules } from '../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { dataOf, ends, label, MMA, reference, SIMT, tolerance, ZOO } from '../codegen/cuda/attentionCases.js';
import { type AttentionData, attentionModule, type Shape } from '../codegen/cuda/attentionHarness.js';
import { PathWorld } from '../codegen/cuda/pathCases.js';
import { SINK_PATHS, SINK_TREES, withSinks } from '../codegen/cuda/sinkCases.js';
import { Bench, skip } from './attentionBench.js';

/** Entries of the list of keys that buffers have room for. */
const CAPACITY = 2048;

describe('attention with sinks on a device', { skip }, () => {
  let bench: Bench;
  before(() => {
    bench = new Bench();
  });
  after(() => {
    bench.release();
  });

  const agrees = async (s: Shape, plan: CudaAttentionSchedule, data: AttentionData): Promise<Float64Array> => {
    const { out, buffers } = await bench.run(s, plan, data, CAPACITY);
    const right = reference(s, data, buffers);
    // Weights are rounded as those of mma.sync are.
    const limit = tolerance(s, plan.skeleton === 'wgmma' ? { ...plan, skeleton: 'mma' } : plan);
    const wrong = out.findIndex((x, i) => !(Math.abs(x - right[i]!) < limit));
    assert(wrong < 0, `${label(s, plan)}: element ${wrong} is ${out[wrong]!}, not ${right[wrong]!} ± ${limit}`);
    return out;
  };

  it('over paths', async () => {
    for (const s of SINK_PATHS) {
      const { module, kernel } = attentionModule(s);
      const plans = attentionSchedules(kernel, module, bench.limits);
      await bench.prepare(
        plans.map((plan) => ({ s, plan })),
        CAPACITY,
      );
      const world = new PathWorld(s, [1, 150, 33, 600], 4);
      const data = withSinks(world.call(world.whole, { placement: 1 }), s);
      let first: Float64Array | undefined;
      for (const plan of plans) {
        const out = await agrees(s, plan, data);
        if (plan.skeleton !== 'simt') assert.deepEqual(out, (first ??= out), `${label(s, plan)}: other bits`);
      }
    }
  });

  it('over trees', async () => {
    const plans = SINK_TREES.flatMap((s) => [MMA, SIMT].map((plan) => ({ s, plan })));
    await bench.prepare(plans, CAPACITY);
    for (const { s, plan } of plans) await agrees(s, plan, withSinks(dataOf(s, ends(ZOO), 3), s));
  });
});
