/** A product with the logits of experts knows the kernels behind it, and computes what it did. */
import { describe, expect, it } from 'vitest';
import type { GemmKernel, KernelModule } from '../../ir/kernel.js';
import { mayTouch, mayWrite } from '../../ir/kernelAccess.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { attachRouting } from '../../passes/attachRouting.js';
import { fuseRouting } from '../../passes/fuseRouting.js';
import { optimize } from '../../passes/runPasses.js';
import { EXPERTS } from './expertGraph.js';
import { BF16, interpretLowered, lowerAsIs } from './lowered.js';
import { environment, parse } from './support.js';

const productOf = ({ kernels }: KernelModule): GemmKernel =>
  kernels.find((kernel): kernel is GemmKernel => kernel.anchor === 'gemm' && kernel.routing !== undefined)!;

describe('attachRouting', () => {
  const graph = optimize(parse(EXPERTS), BF16);
  const before = fuseRouting(lowerAsIs(graph, BF16));
  const after = attachRouting(before);

  it('names the kernels that choose experts and make rows of pairs', () => {
    const { routing } = productOf(after);
    const at = after.kernels.indexOf(productOf(after));
    expect(routing).toEqual({ route: after.kernels[at + 1], gather: after.kernels[at + 2] });
    expect(after.kernels.length).toBe(before.kernels.length);
    expect(() => verifyKernels(after)).not.toThrow();
    expect(attachRouting(after)).toBe(after);
  });

  it('leaves products alone whose experts are sorted elsewhere', () => {
    const module = lowerAsIs(graph, BF16);
    expect(attachRouting(module)).toBe(module);
  });

  it('computes the same', () => {
    const env = environment(graph);
    expect(interpretLowered(graph, after, env)).toEqual(interpretLowered(graph, before, env));
  });

  it('says what a launch may write', () => {
    const { routing } = productOf(after);
    const { starts, order } = routing!.route.pairs!;
    for (const name of [starts, order]) expect(mayWrite(productOf(after)).has(name)).toBe(true);
    expect(mayTouch(productOf(after)).has(routing!.gather!.outputs[0]!.buffer)).toBe(true);
  });

  it('is refused where other kernels follow', () => {
    const kernels = after.kernels.map((kernel) =>
      kernel.anchor === 'route' ? { ...kernel, normalized: !kernel.normalized } : kernel,
    );
    expect(() => verifyKernels({ ...after, kernels })).toThrow('not those behind it');
  });
});
