/**
 * Products with the logits of experts that run the kernels behind them leave what these would have left, to the bit, by
 * one block or several; and NVIDIA's compiler takes them.
 */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../../codegen/cuda/index.js';
import { everyExtent } from '../../../ir/function.js';
import { kernelWrites } from '../../../ir/kernelAccess.js';
import { at } from '../../../system/at.js';
import { compileByNvcc, hasNvcc } from '../../support/nvcc.js';
import { defaults, kernels, module, product, run, settledAt } from './routingCases.js';

describe('products that choose experts', () => {
  it.each([1, 2, 20])('leave what the kernels behind them would, of %i rows', (tokens) => {
    const want = run(tokens, defaults(tokens));
    for (const backwards of [false, true]) {
      const got = run(tokens, settledAt(tokens), backwards);
      for (const name of kernels.flatMap((kernel) => [...kernelWrites(kernel)]))
        expect([...got.get(name)!], name).toEqual([...want.get(name)!]);
    }
  });

  it.runIf(hasNvcc)('compile for a GPU', () => {
    const all = [1, 8].map((tokens) =>
      emitCudaKernel(product, module, at(settledAt(tokens), 0), everyExtent(module.interface, 64)),
    );
    expect(() => compileByNvcc(all, 'sm_90a')).not.toThrow();
  });
});
