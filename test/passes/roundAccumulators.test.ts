/** Products of 20 bits: which are rounded, to what, and how it affects a module's values. */
import { describe, expect, it } from 'vitest';
import { printScalar, roundToF20 } from '../../ir/scalar.js';
import { roundAccumulators } from '../../passes/roundAccumulators.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama } from './llamaGraph.js';
import { TENSOR_CORES } from './lowered.js';

describe('roundToF20', () => {
  it('is within 2⁻¹² of a number, keeps its sign, and is idempotent', () => {
    let state = 7;
    for (let i = 0; i < 2000; i++) {
      state = (state * 1103515245 + 12345) % 2 ** 31;
      const x = Math.fround((state / 2 ** 30 - 1) * 2 ** ((i % 200) - 100));
      const y = roundToF20(x);
      expect(Math.abs(y - x)).toBeLessThanOrEqual(Math.abs(x) * 2 ** -12);
      expect(roundToF20(y)).toBe(y);
    }
  });

  it('turns infinity and NaN into NaN', () => {
    for (const x of [NaN, Infinity, -Infinity]) expect(roundToF20(x)).toBeNaN();
  });
});

describe('roundAccumulators', () => {
  const { products: _, ...plain } = TENSOR_CORES;
  const module = lower(optimize(llama(), plain), plain);

  it('rounds every product that an epilogue reads, except those of the vocabulary', () => {
    const before = module.kernels.flatMap((kernel) =>
      kernel.anchor === 'gemm'
        ? kernel.segments.flatMap(({ outputs }) => outputs.map(({ value }) => printScalar(value)))
        : [],
    );
    const rounded = roundAccumulators(module);
    const after = rounded.kernels.flatMap((kernel) =>
      kernel.anchor === 'gemm'
        ? kernel.segments.flatMap(({ outputs }) => outputs.map(({ value }) => printScalar(value)))
        : [],
    );
    expect(before.join()).toContain('acc1');
    expect(after).toEqual(before.map((text) => text.replace(/acc[01]/g, 'roundF20($&)')));
    expect(rounded.kernels.filter(({ anchor }) => anchor !== 'gemm')).toEqual(
      module.kernels.filter(({ anchor }) => anchor !== 'gemm'),
    );
  });

  it('is the last step of lowering for targets that ask for it', () => {
    expect(lower(optimize(llama(), TENSOR_CORES), TENSOR_CORES)).toEqual(roundAccumulators(module));
  });
});
