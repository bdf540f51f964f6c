/** Which contractions finish their rows, and that the values of a module stay what they were. */
import { describe, expect, it } from 'vitest';
import type { GemmKernel, KernelModule, LoopKernel } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { printKernel } from '../../ir/kernelPrinter.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { type Finishing, fuseRowNorms } from '../../passes/fuseRowNorms.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { randomSource } from '../codegen/harness.js';
import { element, finishedLoop, store } from '../codegen/modules.js';
import { postNorm } from '../codegen/postNorm.js';
import { interfaceOf } from '../support/interface.js';
import { llama } from './llamaGraph.js';
import { TENSOR_CORES } from './lowered.js';

const { module, sizes, inputs, tensors } = postNorm(3, 32, 16, 2);
const [o, norm] = module.kernels as readonly [GemmKernel, LoopKernel];
const kernels = (...list: KernelModule['kernels']): KernelModule => ({ ...module, kernels: list });
const anchors = (of: KernelModule): string[] => fuseRowNorms(of).kernels.map(({ anchor }) => anchor);

describe('fuseRowNorms', () => {
  it('gives loops over whole rows of a product to the contraction', () => {
    const finished = fuseRowNorms(module);
    verifyKernels(finished);
    expect(finished.kernels.map(({ anchor }) => anchor)).toEqual(['gemm', 'gemm']);
    expect(finished.kernels[0]).toMatchObject({ name: 'o0', finish: norm.outputs });
    expect(printKernel(finished.kernels[0]!)).toContain(
      '  whole rows:\n    next0 = roundBf16(roundF24(add(h[row, column]',
    );
    const run = (of: KernelModule): Map<string, Float64Array> =>
      interpretModule(of, { sizes, buffers: inputs, tensors, round: true });
    expect(run(finished)).toEqual(run(module));
  });

  it('takes one loop of what others read as well', () => {
    const reader: LoopKernel = { ...norm, name: 'reader', outputs: [store('y1', element('y0'))] };
    expect(anchors(kernels(o, norm, reader))).toEqual(['gemm', 'loop']);
  });

  it('leaves rows to the loop where a product of E4M3 is not deep', () => {
    const buffers = module.buffers.map((each) => (each.name === o.a ? { ...each, dtype: 'e4m3' as const } : each));
    const left = (k: number, finishing?: Finishing, of: KernelModule['buffers'] = buffers): string[] =>
      fuseRowNorms({ ...module, buffers: of, kernels: [{ ...o, k }, norm] }, finishing).kernels.map(
        ({ anchor }) => anchor,
      );
    expect(left(6_656)).toEqual(['gemm', 'loop']);
    expect(left(17_920)).toEqual(['gemm']);
    expect(left(6_656, 'all')).toEqual(['gemm']);
    expect(left(16, 'deep', module.buffers)).toEqual(['gemm']);
  });

  it('gives a loop the rows that it has reduced', () => {
    const { T, columns, buffers, inputs: given, outputs, finish } = finishedLoop(randomSource(3), 96);
    const shared = { path: 'test', anchor: 'loop', rows: 'T', ops: [], columns } as const;
    const reduce: LoopKernel = { ...shared, name: 'reduce', outputs };
    const use: LoopKernel = { ...shared, name: 'use', outputs: finish };
    const apart: KernelModule = { interface: interfaceOf(buffers), buffers, weights: [], kernels: [reduce, use] };
    const finished = fuseRowNorms(apart);
    verifyKernels(finished);
    expect(finished.kernels).toEqual([{ ...reduce, finish }]);
    const run = (of: KernelModule): Map<string, Float64Array> =>
      interpretModule(of, { sizes: { T, R: 0 }, buffers: given, round: true });
    expect(run(finished)).toEqual(run(apart));
    const loops = (...list: readonly LoopKernel[]): string[] =>
      fuseRowNorms({ ...apart, kernels: list }).kernels.map(({ name }) => name);
    expect(loops(reduce, { ...use, columns: 48 })).toEqual(['reduce', 'use']);
    expect(loops({ ...reduce, outputs: [store('twice', element('x'))] }, use)).toEqual(['reduce', 'use']);
    const more: LoopKernel = { ...use, name: 'more', outputs: [store('more', element('twice'))] };
    expect(loops(reduce, use, more)).toEqual(['reduce', 'more']);
    expect(() =>
      verifyKernels({ ...apart, kernels: [{ ...reduce, finish: [store('codes', element('codes'))] }] }),
    ).toThrow("reads 'codes'");
  });

  it('leaves loops that are not over whole rows of a product', () => {
    expect(anchors(kernels(o, { ...norm, columns: 16 }))).toEqual(['gemm', 'loop']);
    expect(anchors(kernels(o, { ...norm, headDim: 16 }))).toEqual(['gemm', 'loop']);
    expect(anchors(kernels({ ...o, segments: [o.segments[0]!, o.segments[0]!] }, norm))).toEqual(['gemm', 'loop']);
    expect(anchors(kernels(o, { ...norm, outputs: [store('next0', element('y0', 'row'))] }))).toEqual(['gemm', 'loop']);
  });

  it('changes nothing of a model that norms before its products', () => {
    const { rows: _, ...before } = TENSOR_CORES;
    const lowered = lower(optimize(llama(), before), before);
    expect(fuseRowNorms(lowered)).toBe(lowered);
  });
});

describe('the verifier', () => {
  const refused = (change: Partial<GemmKernel>): (() => void) => {
    const finished = fuseRowNorms(module).kernels[0] as GemmKernel;
    return () => verifyKernels(kernels({ ...finished, ...change }));
  };
  it('refuses rows that may not be complete, and what a finish cannot see', () => {
    expect(refused({})).not.toThrow();
    expect(refused({ segments: [...o.segments, ...o.segments] })).toThrow(
      /only kernels of one segment|already written/,
    );
    expect(refused({ finish: [store('next0', element('y0', 'x'))] })).toThrow(/'y0' of other rows/);
    expect(refused({ finish: [store('next0', { op: 'acc', index: 0 })] })).toThrow(/sees 0 accumulators/);
    expect(refused({ finish: [store('y0', element('h'))] })).toThrow(/already written/);
    expect(refused({ finish: [store('next0', element('next1'))] })).toThrow(/before any kernel has written it/);
  });
});
