/** Which products with the logits of experts run the kernels behind them. */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import type { RoutingUse } from '../../../ir/cuda.js';
import { at } from '../../../system/at.js';
import { defaults, FACTS, kernels, module, product, settledAt } from './routingCases.js';

describe('products that choose experts', () => {
  it('are those of few rows', () => {
    const routes = (tokens: number): unknown => (settledAt(tokens)[0] as { routes?: RoutingUse }).routes;
    expect([1, 2, 3, 64, 65].map(routes)).toEqual(['rows', 'rows', 'pairs', 'pairs', undefined]);
    const idle = (tokens: number): unknown =>
      settledAt(tokens).map((each) => each.kind === 'loop' && each.isIdle === true);
    expect(idle(1)).toEqual([false, true, true]);
    expect(idle(8)).toEqual([false, true, false]);
    expect(idle(65)).toEqual([false, false, false]);
    for (const tokens of [1, 8])
      kernels.forEach((kernel, i) => expect(isLegalCuda(kernel, module, at(settledAt(tokens), i), FACTS)).toBe(true));
  });

  it('are refused where others multiply', () => {
    const [own] = defaults(1);
    if (own?.kind !== 'gemm') throw new Error('no product');
    expect(isLegalCuda(product, module, { ...own, skeleton: 'wgmma', routes: 'rows' }, FACTS)).toMatch('cannot choose');
    const { routing: _, ...alone } = product;
    expect(isLegalCuda(alone, module, { ...own, routes: 'pairs' }, FACTS)).toMatch('no kernel that chooses');
  });
});
