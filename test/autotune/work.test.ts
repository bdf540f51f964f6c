/** Arithmetic and traffic of kernels, counted by hand for a tiny model. */
import { describe, expect, it } from 'vitest';
import { kernelWork, moduleWork } from '../../autotune/work.js';
import { stepExtents } from '../../ir/stepping.js';
import { attentionModule } from '../codegen/cuda/attentionHarness.js';
import { kernelAt, llamaModule, SHAPE, stepModule } from './fixture.js';

const module = llamaModule();
const SIZE = { extents: { T: 100, R: 40 }, longest: 50, averageDepth: 20, averageScoredDepth: 30 };

describe('kernelWork', () => {
  it('counts two operations per multiply-add, over every segment and both matrices of a pair', () => {
    expect(kernelWork(kernelAt(module, '0.attention.qkv'), module, SIZE).flops).toBe(2 * 100 * 64 * (64 + 32 + 32));
    expect(kernelWork(kernelAt(module, '0.ffn.gate_up'), module, SIZE).flops).toBe(2 * 100 * 64 * 160 * 2);
    expect(kernelWork(kernelAt(module, '2.ffn.gate_up'), module, SIZE).flops).toBe(2 * 40 * 64 * 160 * 2);
    expect(kernelWork(kernelAt(module, 'head'), module, SIZE).flops).toBe(2 * 40 * 64 * 700);
  });

  it('counts pairs of a query and a key that it attends to', () => {
    expect(kernelWork(kernelAt(module, '0.attention.mix'), module, SIZE).flops).toBe(4 * 100 * 20 * 4 * 16);
    expect(kernelWork(kernelAt(module, '2.attention.mix'), module, SIZE).flops).toBe(4 * 40 * 30 * 4 * 16);
  });

  it('counts no work, and no bytes but those of weights, in a call of no tokens', () => {
    const step = stepModule();
    const none = { extents: stepExtents({ tokens: 0, keys: 0, rows: 0 }), longest: 0 };
    for (const kernel of step.kernels) {
      const { flops, bytes } = kernelWork(kernel, step, none);
      expect([flops, Number.isFinite(bytes)], kernel.path).toEqual([0, true]);
    }
    expect(kernelWork(kernelAt(step, '0.attention.mix'), step, none).bytes).toBe(0);
  });

  it('takes half of the longest path as the depth of tokens, three quarters for scored rows', () => {
    const size = { extents: { T: 100, R: 40 }, longest: 49 };
    expect(kernelWork(kernelAt(module, '0.attention.mix'), module, size).flops).toBe(4 * 100 * 25 * 64);
    expect(kernelWork(kernelAt(module, '2.attention.mix'), module, { ...size, longest: 40 }).flops).toBe(
      4 * 40 * 30 * 64,
    );
    expect(
      kernelWork(kernelAt(module, '2.attention.mix'), module, { extents: { T: 10, R: 10 }, longest: 1000 }).flops,
    ).toBe(4 * 10 * 10 * 64);
  });

  it('counts the keys of paths, not those of the whole cache', () => {
    const { module: attend, kernel } = attentionModule({
      heads: 4,
      kvHeads: 2,
      headDim: 16,
      dtype: 'bf16',
      mask: 'path',
    });
    const few = { extents: stepExtents({ tokens: 4, keys: 1000, rows: 4 }), longest: 100 };
    const { flops, bytes } = kernelWork(kernel, attend, few);
    expect(flops).toBe(4 * 4 * 100 * 4 * 16);
    // Keys and values, queries and results, and the mask.
    expect(bytes).toBe(2 * 400 * 32 * 2 + 2 * 4 * 64 * 2 + 4 * 4);
    const prompts = { extents: stepExtents({ tokens: 9, keys: 1000, rows: 9 }), longest: 3 };
    expect(kernelWork(kernel, attend, prompts).flops).toBe(4 * 9 * 2 * 4 * 16);
  });

  it('counts weights and activations once, and only the gathered rows of tables', () => {
    const o = kernelWork(kernelAt(module, '0.attention.o'), module, SIZE);
    // a[100, 64], weight [64, 64], residual and its sum [100, 64], partial sums of squares [100, 4], all f32.
    expect(o.bytes).toBe(4 * (6400 + 4096 + 6400 + 6400 + 400));
    const embed = kernelWork(kernelAt(module, 'embed'), module, { ...SIZE, extents: { T: 3, R: 3 } });
    // Three rows of a bf16 table, three token ids, h and its four partial sums.
    expect(embed.bytes).toBe(3 * 64 * 2 + 3 * 4 + 3 * 64 * 4 + 3 * 4 * 4);
    expect(embed.flops).toBe(0);
    expect(embed.scalarOps).toBeGreaterThan(0);
  });

  it('adds up to the whole model', () => {
    const { hiddenSize: h, intermediateSize: f, vocabSize: v } = SHAPE;
    const layer = h * 128 + h * h + 3 * h * f;
    const last = 2 * 100 * h * 128 + 2 * 40 * (h * h + 3 * h * f) + 4 * 40 * 30 * 64;
    expect(moduleWork(module, SIZE).flops).toBe(2 * (2 * 100 * layer + 4 * 100 * 20 * 64) + last + 2 * 40 * h * v);
  });

  it('names a buffer that the module does not declare', () => {
    expect(() => kernelWork(kernelAt(module, 'head'), { ...module, weights: [] }, SIZE)).toThrow(
      /declares no buffer and no weight 'head_w0'/,
    );
  });
});
