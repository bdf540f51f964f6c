/** Weights onto a (fake) device in many small steps, whose order chance decides as far as it may: bit for bit. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ConstantVector, WeightDecl } from '../../../ir/kernel.js';
import { UserError } from '../../../errors.js';
import { planLoading } from '../../../runtime/cuda/loadPlan.js';
import { loadDeviceWeights, loadingBytes, weightSlots } from '../../../runtime/cuda/weights.js';
import type { PackDType, TensorSource } from '../../../runtime/tensorSource.js';
import { planWeights } from '../../../runtime/weightPlan.js';
import { temporaryFolder } from '../kernels.js';
import { floatBits, packReference, randomValue, roundTo, toBf16, toF16, type Matrix } from '../packReference.js';
import { fakeCuda, type FakeKernel } from './fakeCudaAddon.js';
import { buildPackShim, hasCxx } from './packShim.js';

const isPossible = hasCxx();
if (!isPossible) process.stderr.write('SKIPPED: loading onto a fake device: no g++ on PATH\n');

describe.skipIf(!isPossible)('loadDeviceWeights', () => {
  const folder = temporaryFolder();
  const shim = buildPackShim(folder);
  const pack = Object.fromEntries(['tw_pack_rows', 'tw_pack_find'].map((symbol): [string, FakeKernel] =>
    [symbol, (launch, tokens, rows, pointers) => shim.run(symbol, launch, tokens, rows, pointers)]));

  const tensors = new Map<string, TensorSource>();
  const matrices = new Map<string, Matrix>();
  let seed = 1n;

  /** A tensor in a file of its own, at an odd offset, or made up. */
  function tensor(name: string, dtype: PackDType, shape: readonly number[], kind: 'file' | 'random' = 'file'): void {
    const own = seed++;
    const k = shape.at(-1)!;
    const value = (i: number): number => roundTo(dtype, randomValue(own, i, 0.5));
    matrices.set(name, (row, column) => value(row * k + column));
    if (kind === 'random') {
      tensors.set(name, { kind, dtype, shape, seed: own, scale: 0.5 });
      return;
    }
    const file = join(folder, `${name}.bin`);
    const bits = Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => (dtype === 'f32' ? floatBits : dtype === 'bf16' ? toBf16 : toF16)(value(i)));
    const bytes = Buffer.from((dtype === 'f32' ? Uint32Array : Uint16Array).from(bits).buffer);
    writeFileSync(file, Buffer.concat([Buffer.alloc(7), bytes]));
    tensors.set(name, { kind, dtype, shape, file, offset: 7, byteLength: bytes.length });
  }
  const K = 52;
  tensor('norm1', 'bf16', [K]);
  tensor('norm2', 'f32', [K]);
  tensor('q', 'bf16', [96, K]);
  tensor('k', 'f16', [32, K]);
  tensor('gate', 'f32', [61, K]);
  tensor('up', 'bf16', [61, K]);
  tensor('down', 'bf16', [K, 61]);
  tensor('table', 'f16', [70, K]);
  tensor('noise', 'bf16', [70, K], 'random');

  const decl = (name: string, sources: readonly [string, number][], change: Partial<WeightDecl> = {}): WeightDecl =>
    ({ name, layout: 'kmajor', dtype: 'bf16', k: K, pairing: { kind: 'none' }, sources: sources.map(([t, rows]) => ({ tensor: t, rows })), ...change });
  const weights: readonly WeightDecl[] = [
    decl('w_q', [['q', 96]], { pairing: { kind: 'rotate', headDim: 32, width: 8 }, columnScale: 'norm1' }),
    decl('w_k', [['k', 32]], { pairing: { kind: 'rotate', headDim: 32, width: 8 }, columnScale: 'norm1' }),
    decl('w_gu', [['gate', 61], ['up', 61]], { pairing: { kind: 'interleave', width: 8 }, columnScale: 'norm2' }),
    decl('w_down', [['down', K]], { k: 61 }),
    decl('w_table', [['table', 70]], { layout: 'rows', dtype: 'f16' }),
    decl('w_noise', [['noise', 70]], { dtype: 'f16', columnScale: 'norm2' }),
    decl('w_stacked', [['q', 96], ['noise', 70], ['table', 70]], { dtype: 'f16' }),
    decl('w_twin', [['q', 96]], { pairing: { kind: 'rotate', headDim: 32, width: 8 }, columnScale: 'norm1' }),
    decl('w_frequency', [['frequency', 5]], { layout: 'rows', dtype: 'f32', k: 1 }),
  ];
  const constants: readonly ConstantVector[] = [{ name: 'frequency', values: [1, 0.5, 0.25, 0.125, 3] }];

  const scaleOf = (weight: WeightDecl): ((column: number) => number) | undefined => {
    const matrix = weight.columnScale === undefined ? undefined : matrices.get(weight.columnScale);
    return matrix && ((column) => matrix(0, column));
  };

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
      const packed = memory.read(offset, bytes);
      const got = [...(weight.dtype === 'f32' ? new Uint32Array(packed) : new Uint16Array(packed))];
      const wanted = packReference(weight, weight.sources.map(({ tensor: name }) => matrices.get(name) ?? ((row) => constants[0]!.values[row]!)), scaleOf(weight));
      expect(got, weight.name).toEqual(wanted);
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
