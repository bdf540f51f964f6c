/** Functions of one plan with different extents: each kernel finds its own by their order in its function. */
import { expect, it } from 'vitest';
import { compileCpuKernels, emitCpuPlan } from '../../driver/targets/cpuKernels.js';
import { openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import { compileFunctions } from '../support/plans.js';

/** `squares` is what the second kernel of `both` computes; only the position of its extent differs. */
const SQUARES = `
func @squares[Inner](%y: f32[Inner, 5]) -> (%square: f32[Inner, 5]) {
  %a = mul(%y, %y): f32[Inner, 5]
  return %a
}`;
const BOTH = `
func @both[Outer, Inner](%x: f32[Outer, 3], %y: f32[Inner, 5]) -> (%twice: f32[Outer, 3], %square: f32[Inner, 5]) {
  %a = add(%x, %x): f32[Outer, 3]
  %b = mul(%y, %y): f32[Inner, 5]
  return %a, %b
}`;
const numbers = (count: number): Float32Array => Float32Array.from({ length: count }, (_, i) => i - 7.5);

it('functions with different extents work in one plan', async () => {
  const plan = compileFunctions([
    { text: BOTH, most: { Outer: 64, Inner: 40 } },
    { text: SQUARES, most: { Inner: 40 } },
  ]);
  const { symbols } = await compileCpuKernels(emitCpuPlan(plan), 'portable');
  const [, second] = symbols.both![0]!;
  expect(second!.symbol).not.toBe(symbols.squares![0]![0]!.symbol);

  const executor = await openCpuExecutor({ plan, symbols, tensors: new Map(), threads: 2 });
  const call = async (name: string, inputs: Readonly<Record<string, Float32Array>>) =>
    (await executor.call(name, inputs)).outputs;
  try {
    for (const [outer, inner] of [
      [64, 1],
      [2, 40],
    ] as const) {
      const [x, y] = [numbers(3 * outer), numbers(5 * inner)];
      expect(await call('both', { x, y })).toEqual({ twice: x.map((v) => v + v), square: y.map((v) => v * v) });
      expect(await call('squares', { y })).toEqual({ square: y.map((v) => v * v) });
    }
  } finally {
    await executor.close();
  }
});
