/** The kernel that chooses experts arranges their pairs, and computes what two kernels did. */
import { describe, expect, it } from 'vitest';
import type { KernelModule } from '../../ir/kernel.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { fuseRouting } from '../../passes/fuseRouting.js';
import { optimize } from '../../passes/runPasses.js';
import { EXPERTS } from './expertGraph.js';
import { BF16, interpretLowered, lowerAsIs } from './lowered.js';
import { environment, parse } from './support.js';

const anchors = ({ kernels }: KernelModule): readonly string[] => kernels.map(({ anchor }) => anchor);

describe('fuseRouting', () => {
  const graph = optimize(parse(EXPERTS), BF16);
  const before = lowerAsIs(graph, BF16);
  const after = fuseRouting(before);

  it('leaves one kernel of two', () => {
    expect(anchors(before)).toContain('sortByExpert');
    expect(anchors(after)).toEqual(anchors(before).filter((anchor) => anchor !== 'sortByExpert'));
    expect(after.kernels.find(({ anchor }) => anchor === 'route')).toMatchObject({
      pairs: { starts: expect.any(String) },
    });
    expect(() => verifyKernels(after)).not.toThrow();
    expect(fuseRouting(after)).toBe(after);
  });

  it('computes the same', () => {
    const env = environment(graph);
    expect(interpretLowered(graph, after, env)).toEqual(interpretLowered(graph, before, env));
  });

  it('notes no products but of microscaled weights', () => {
    for (const kernel of after.kernels) if (kernel.anchor === 'gemm') expect(kernel.experts?.areKnown).toBeUndefined();
    const weights = after.weights.map((weight) => ({ ...weight, layout: 'microscaled' as const }));
    const products = fuseRouting({ ...after, weights }).kernels.flatMap((kernel) =>
      kernel.anchor === 'gemm' && kernel.experts !== undefined ? [kernel.experts.areKnown] : [],
    );
    expect(products).toEqual([undefined, true]);
  });
});
