/** Weights onto a (fake) device in many small steps, whose order chance decides as far as it may: bit for bit. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { planLoading } from '../../../runtime/cuda/loadPlan.js';
import { loadDeviceWeights, loadingBytes, weightSlots } from '../../../runtime/cuda/weights.js';
import { planWeights } from '../../../runtime/weightPlan.js';
import { decl, elements, K, weightWorld } from '../../support/weightWorld.js';
import { temporaryFolder } from '../kernels.js';
import { fakeCuda, type FakeKernel } from './fakeCudaAddon.js';
import { buildPackShim, hasCxx } from './packShim.js';

const isPossible = hasCxx();
if (!isPossible) process.stderr.write('SKIPPED: loading onto a fake device: no g++ on PATH\n');

describe.skipIf(!isPossible)('loadDeviceWeights', () => {
  const folder = temporaryFolder();
  const shim = buildPackShim(folder);
  const pack = Object.fromEntries(['tw_pack_rows', 'tw_pack_find'].map((symbol): [string, FakeKernel] =>
    [symbol, (launch, tokens, rows, pointers) => shim.run(symbol, launch, tokens, rows, pointers)]));

  const { tensors, weights, constants, expected } = weightWorld(folder);

  // 212 bytes: one row of the largest f32 source and no more. 1 MiB: everything at once.
  it.each([256, 700, 2048, 1 << 20])('is exact with staging buffers of %i bytes, and never overwrites one in use', async (staging) => {
    const { addon, state } = fakeCuda({ modules: { pack }, delay: staging < 1000 ? 0.5 : 3 });
    const weightPlan = planWeights(weights, constants, tensors, { isMapping: false });
    const loadPlan = planLoading(weightPlan, staging);
    for (const step of loadPlan.steps) {
      expect(step.stagedBytes).toBeLessThanOrEqual(staging);
      expect(step.pieces.length).toBeLessThanOrEqual(64);
    }
    const device = new addon.Device(0);
    const memory = new addon.Memory(device, weightPlan.packedBytes);
    const before = state.liveBytes;
    state.peakBytes = before;
    const done: number[] = [];
    await loadDeviceWeights({ addon, device, pack: new addon.Module(device, new TextEncoder().encode('pack')), weightPlan, loadPlan, weights: memory, onProgress: ({ doneBytes }) => done.push(doneBytes) });
    expect(state.peakBytes - before).toBe(loadingBytes(loadPlan));
    expect(state.liveBytes).toBe(before);
    if (staging < 1000) expect(state.mostCopies).toBeGreaterThan(1);  // copies are asked for ahead
    expect([...done].sort((a, b) => a - b)).toEqual(done);
    const slots = weightSlots(weightPlan, memory);
    expect(slots.get('w_twin')).toEqual(slots.get('w_q'));
    for (const weight of weights) {
      const { offset, bytes } = slots.get(weight.name)!;
      expect(elements(weight, memory.read(offset, bytes)), weight.name).toEqual(expected(weight));
    }
  });

  it('counts every byte of weights once in its progress', () => {
    const plan = planLoading(planWeights(weights, constants, tensors, { isMapping: false }), 700);
    const total = plan.steps.reduce((sum, step) => sum + step.weightBytes, 0);
    // Rows without their padding, 16-bit, k rounded up to 8: 56 columns of most, 64 of w_down, 52 of the table.
    expect(total).toBe((96 + 32 + 122 + 70 + 236) * 56 * 2 + K * 64 * 2 + 70 * 52 * 2);
  });

  it('refuses rows that no staging buffer holds, and layouts of CPUs', () => {
    expect(() => planLoading(planWeights(weights, constants, tensors, { isMapping: false }), 200)).toThrow(UserError);
    expect(() => planLoading(planWeights([decl('p', [['q', 96]], { layout: 'panels' })], [], tensors, { isMapping: false }))).toThrow('Weight p is laid out for a CPU');
  });
});
