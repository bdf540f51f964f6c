/**
 * Attention with slopes of heads and within chunks on a real device: every kernel agrees with float64, and those over
 * paths have the same bits, of whole texts and of texts in pieces.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { attentionSchedules } from '../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { label, MMA, reference, SIMT, tolerance } from '../codegen/cuda/attentionCases.js';
import { type AttentionData, attentionModule, type Shape } from '../codegen/cuda/attentionHarness.js';
import { LEANING_PATHS, LEANING_TREES, leaningTrees, withSlopes } from '../codegen/cuda/leaningCases.js';
import { gather, type Piece, PathWorld } from '../codegen/cuda/pathCases.js';
import { pathShape } from '../codegen/cuda/pathSchedules.js';
import { Bench, skip } from './attentionBench.js';

/** Entries of the list of keys that buffers have room for. */
const CAPACITY = 4096;
/** As Falcon RW, BLOOM and Llama 4 have them, with fewer heads and a shorter chunk. */
const LARGE: readonly Shape[] = [
  { ...pathShape(4, 4, 64, 'bf16'), sloped: true, slopeFactor: 0.125 },
  { ...pathShape(4, 4, 128, 'bf16'), sloped: true },
  { ...pathShape(10, 2, 128, 'bf16'), chunk: 200 },
  // Prompts on Hopper, whose tiles have idle rows; a window.
  pathShape(14, 2, 128, 'bf16'),
  { ...pathShape(8, 1, 64, 'bf16'), window: 130 },
];

describe('attention that falls with distance, or ends at chunks, on a device', { skip }, () => {
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
    const how = `${label(s, plan)} ${JSON.stringify({ s, plan })}`;
    assert(wrong < 0, `${how}: element ${wrong} is ${out[wrong]!}, not ${right[wrong]!} ± ${limit}`);
    return out;
  };
  const same = (s: Shape, plan: CudaAttentionSchedule, got: Float64Array, want: Float64Array): void => {
    const other = got.findIndex((x, i) => !Number.isNaN(x) && !Object.is(x, want[i]));
    assert(other < 0, `${JSON.stringify({ s, plan })}: element ${other} is ${got[other]!}, not ${want[other]!}`);
  };

  for (const s of [...LEANING_PATHS, ...LARGE])
    it(`over paths: ${JSON.stringify(s)}`, async () => {
      const { module, kernel } = attentionModule(s);
      const plans = attentionSchedules(kernel, module, bench.limits);
      await bench.prepare(
        plans.map((plan) => ({ s, plan })),
        CAPACITY,
      );
      const world = new PathWorld(s, [1, 150, 33, 600], 4);
      const call = (pieces: readonly Piece[], placement: number): AttentionData =>
        withSlopes(world.call(pieces, { placement }), s);
      const data = call(world.whole, 1);
      let first: Float64Array | undefined;
      for (const plan of plans) {
        const out = await agrees(s, plan, data);
        if (plan.skeleton === 'simt') continue;
        same(s, plan, out, (first ??= out));
        // Decode, a token of each text at a time; prefill in pieces.
        const size = plan.queries === 1 ? 1 : 100;
        const calls = world.chunks(size).slice(size === 1 ? -8 : 0);
        const answers = new Map<readonly Piece[], Float64Array>();
        for (const pieces of calls) answers.set(pieces, (await bench.run(s, plan, call(pieces, 2), CAPACITY)).out);
        same(
          s,
          plan,
          gather(world, calls, (pieces) => answers.get(pieces)!),
          first,
        );
      }
    });

  it('over trees', async () => {
    const plans = LEANING_TREES.flatMap((s) => [MMA, SIMT].map((plan) => ({ s, plan })));
    await bench.prepare(plans, CAPACITY);
    for (const { s, plan } of plans) await agrees(s, plan, leaningTrees(s, 3));
  });
});
