/** Kernels of mixtures of experts: what the verifier refuses, and that it names the kernel. */
import { describe, expect, it } from 'vitest';
import type { BufferDecl, KernelModule, RouteKernel } from '../../ir/kernel.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { interfaceOf } from '../support/interface.js';

const buffer = (name: string, dtype: BufferDecl['dtype'], columns: number, space: BufferDecl['space']): BufferDecl => ({
  ...{ name, dtype, rows: 'T', columns, space },
});
const router = (change: Partial<RouteKernel>): KernelModule => ({
  interface: interfaceOf([]),
  buffers: [
    buffer('logits', 'f32', 4, 'input'),
    buffer('experts', 'i32', 2, 'arena'),
    buffer('first', 'f32', 1, 'arena'),
    buffer('second', 'f32', 1, 'arena'),
  ],
  weights: [],
  kernels: [
    {
      ...{ anchor: 'route', name: 'route', path: 'layers.0.router', rows: 'T', ops: [], count: 4, chosen: 2 },
      ...{ normalized: true, logits: 'logits', experts: 'experts', weights: ['first', 'second'] },
      ...change,
    } satisfies RouteKernel,
  ],
});

describe('a kernel that chooses experts', () => {
  it('verifies', () => expect(() => verifyKernels(router({}))).not.toThrow());

  it.each<[string, Partial<RouteKernel>, string]>([
    ['no experts', { count: 0 }, '0 experts: there are from 1 to'],
    ['more chosen than there are', { chosen: 5 }, '5 of 4 experts: a row has from 1 to 4.'],
    ['logits of other experts', { count: 3 }, "'logits' is f32[T, 4]; as logits of a router it must be f32[T, 3]."],
    ['too few weights', { weights: ['first'] }, '1 weights for 2 experts of a row.'],
  ])('is refused with %s', (_what, change, message) => {
    expect(() => verifyKernels(router(change))).toThrow(`Kernel "route" (layers.0.router): ${message}`);
  });
});
