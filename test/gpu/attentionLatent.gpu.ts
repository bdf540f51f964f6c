/** Latent attention on a real device: near float64, and the same bits under every schedule of tensor cores. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { attentionSchedules, isLegalAttention } from '../../codegen/cuda/attention/schedules.js';
import { label, reference, tolerance } from '../codegen/cuda/attentionCases.js';
import { attentionModule, type Shape } from '../codegen/cuda/attentionHarness.js';
import { LATENT_SHAPES, withTails } from '../codegen/cuda/latentCases.js';
import { PathWorld } from '../codegen/cuda/pathCases.js';
import { Bench, skip } from './attentionBench.js';

const CAPACITY = 4096;
/** DeepSeek's own, too: with these widths blocks have other numbers of slots and columns. */
const SHAPES: readonly Shape[] = [...LATENT_SHAPES, { ...LATENT_SHAPES[0], headDim: 512 }];
const ROWS = [0, 31, 32, 255, 256, 511, 512, 898, 1023, 1024, 1299, 1300, 2047, 2048, 2099, 2100, 2104];

describe('latent attention on a device', { skip }, () => {
  let bench: Bench;
  before(() => {
    bench = new Bench();
  });
  after(() => {
    bench.release();
  });

  it('is near float64, to the same bits', async () => {
    for (const s of SHAPES) {
      const { module, kernel } = attentionModule(s);
      const listed = attentionSchedules(kernel, module, bench.limits);
      // Chosen for few queries, where a device certainly runs it.
      const largest = { ...listed.find(({ teams, cluster }) => teams === 2 && cluster === 4)!, cluster: 16 } as const;
      const isLegal = isLegalAttention(kernel, module, largest, bench.limits) === true;
      const plans = isLegal ? [...listed, largest] : listed;
      assert(plans.some(({ skeleton, cluster }) => skeleton === 'mma' && cluster === 4));
      await bench.prepare(
        plans.map((plan) => ({ s, plan })),
        CAPACITY,
      );
      const world = new PathWorld(s, [2100, 5], 4);
      const data = withTails(world.call(world.whole, { placement: 1, row: ROWS }), s);
      let first: Float64Array | undefined;
      for (const plan of plans) {
        const { out, buffers } = await bench.run(s, plan, data, CAPACITY);
        const want = reference(s, data, buffers);
        const limit = 3 * tolerance(s, plan);
        // Results past 1 in f16 are rounded by more than `tolerance` has: by half a unit in their last place.
        const rounding = (s.out ?? s.dtype) === 'f16' ? 2 ** -11 : 0;
        const wrong = out.findIndex((x, i) => !(Math.abs(x - want[i]!) < limit + Math.abs(want[i]!) * rounding));
        assert(wrong < 0, `${label(s, plan)}: element ${wrong} is ${out[wrong]!}, not ${want[wrong]!} ± ${limit}`);
        if (plan.skeleton === 'mma') assert.deepEqual(out, (first ??= out), `${label(s, plan)}: other bits`);
      }
    }
  });
});
