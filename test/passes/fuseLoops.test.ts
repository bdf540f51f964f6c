/** Which neighbouring loops become one kernel, and that they compute what they did. */
import { describe, expect, it } from 'vitest';
import type { KernelModule, LoopKernel } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { printKernel } from '../../ir/kernelPrinter.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { fuseLoops } from '../../passes/fuseLoops.js';
import { element, mul, store } from '../codegen/modules.js';
import { postNorm } from '../codegen/postNorm.js';

const { module, sizes, inputs, tensors } = postNorm(3, 32, 16, 1);
const [o, norm] = module.kernels as readonly [KernelModule['kernels'][number], LoopKernel];
const squares: LoopKernel = {
  ...{ anchor: 'loop', name: 'squares', path: 'test', rows: 'T', ops: ['mul'], columns: 2 },
  outputs: [store('squares', mul(element('parts0'), element('parts0')))],
};
const kernels = (...list: KernelModule['kernels']): KernelModule => ({
  ...module,
  buffers: [...module.buffers, { name: 'squares', dtype: 'f32', rows: 'T', columns: 2, space: 'arena' }],
  kernels: list,
});
const count = (of: KernelModule): number => fuseLoops(of).kernels.length;

describe('fuseLoops', () => {
  it('makes one kernel of loops that go on with one contraction', () => {
    const before = kernels(o, norm, squares);
    const after = fuseLoops(before);
    verifyKernels(after);
    expect(after.kernels).toHaveLength(2);
    expect(printKernel(after.kernels[1]!)).toContain('  and × 2\n  squares = mul(parts0');
    const run = (of: KernelModule): Map<string, Float64Array> =>
      interpretModule(of, { sizes, buffers: inputs, tensors, round: true });
    expect(run(after)).toEqual(run(before));
    expect(fuseLoops(after)).toBe(after);
  });

  it('passes loops that have nothing to do with it, and no others', () => {
    const between: LoopKernel = {
      ...{ anchor: 'loop', name: 'between', path: 'test', rows: 'R', ops: ['mul'], columns: 2 },
      outputs: [store('apart', element('x'))],
    };
    const needed: LoopKernel = { ...between, outputs: [store('parts0', element('x'))] };
    const after = fuseLoops(kernels(o, norm, between, squares));
    expect(after.kernels).toHaveLength(3);
    expect(after.kernels[2]).toBe(between);
    expect(printKernel(after.kernels[1]!)).toContain('  and × 2\n  squares = mul(parts0');
    expect(count(kernels(o, norm, needed, squares))).toBe(4);
    expect(count(kernels(o, norm, { ...squares, ...{ rows: 'R', outputs: needed.outputs } }, squares))).toBe(4);
    // Over a kernel of another kind.
    expect(count(kernels(o, norm, o, squares))).toBe(4);
  });

  it('names it for both', () => {
    const [q, k] = ['q', 'k'].map((name) => ({ path: `layers.0.${name}.norm` }));
    expect(fuseLoops(kernels(o, { ...norm, ...q }, { ...squares, ...k })).kernels[1]).toMatchObject({
      name: 'layers_0_qk_norm',
      path: 'layers.0.qk.norm',
    });
  });

  it('leaves loops that need each other, or begin anew', () => {
    const later: LoopKernel = { ...squares, outputs: [store('squares', element('next_parts0'))] };
    const anew: LoopKernel = { ...squares, columns: 16, outputs: [store('squares', element('x'))] };
    expect(count(kernels(o, norm, later))).toBe(3);
    expect(count(kernels(o, norm, anew))).toBe(3);
    expect(count(kernels(norm, squares))).toBe(2);
  });
});
