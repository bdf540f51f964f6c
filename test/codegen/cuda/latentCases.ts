/** Shapes of latent attention that tensor cores take, and tails for calls over paths, emulated and on a GPU. */
import type { AttentionData, Shape } from './attentionHarness.js';
import { pathShape } from './pathSchedules.js';

const common = { tail: 64, hasQueryRow: true, cacheRows: 2304 } as const;
export const LATENT_SHAPES = [
  { ...pathShape(16, 1, 128, 'bf16', 'f32'), ...common },
  { ...pathShape(20, 1, 64, 'f16'), ...common },
] as const satisfies readonly Shape[];

/** Tails are made of the columns of heads, so that they are a token's own in every call. */
export function withTails(data: AttentionData, { heads, headDim, tail = 0 }: Shape): AttentionData {
  const tailOf = (x: Float64Array, count: number): Float64Array =>
    Float64Array.from({ length: (x.length / headDim) * tail }, (_, i) => {
      const at = x[Math.floor(i / tail) * headDim + (i % tail)]!;
      return ((i % tail) % 3 === 0 ? -at : at) / (count === 1 ? 2 : 4);
    });
  const { inputs } = data;
  const tails = [
    ['qTail', tailOf(inputs.get('q')!, heads)],
    ['kTail', tailOf(inputs.get('k')!, 1)],
  ] as const;
  return { ...data, inputs: new Map([...inputs, ...tails]) };
}
