/** Attention with slopes of heads and within chunks of positions: shapes over paths and trees, and their inputs. */
import { paperSlopes } from '../../../models/decoder/slopes.js';
import { dataOf, ends, ZOO } from './attentionCases.js';
import type { AttentionData, Shape } from './attentionHarness.js';
import { pathShape } from './pathSchedules.js';

const SLOPED = { sloped: true } as const;
/** As Falcon RW has them. */
const ROUNDED = { ...SLOPED, slopeFactor: 0.125 } as const;

/** Heads of their own keys, heads that share them, capped scores, codes; the same with chunks and windows. */
export const LEANING_PATHS: readonly Shape[] = [
  { ...pathShape(2, 1, 16, 'bf16', 'f32'), ...SLOPED, chunk: 40 },
  { ...pathShape(3, 3, 64, 'bf16', 'f32'), ...SLOPED },
  { ...pathShape(4, 1, 64, 'bf16', 'f32'), ...ROUNDED },
  { ...pathShape(10, 2, 32, 'f16', 'f32'), ...SLOPED, chunk: 70 },
  { ...pathShape(4, 2, 64, 'bf16', 'f32'), ...SLOPED, scaled: 'i8', window: 40 },
  { ...pathShape(4, 1, 32, 'bf16', 'f32'), ...SLOPED, cap: 3 },
  { ...pathShape(4, 2, 32, 'bf16', 'f32'), ...ROUNDED, scaled: 'e4m3' },
];

/** Over trees: positions are inputs there. */
export const LEANING_TREES: readonly Shape[] = [
  { heads: 2, kvHeads: 1, headDim: 16, dtype: 'bf16', out: 'f32', ...SLOPED, chunk: 11 },
  { heads: 3, kvHeads: 3, headDim: 64, dtype: 'bf16', out: 'f32', ...SLOPED },
  { heads: 4, kvHeads: 2, headDim: 32, dtype: 'f16', out: 'f32', chunk: 20 },
  { heads: 4, kvHeads: 1, headDim: 32, dtype: 'bf16', out: 'f32', window: 30, cap: 3, ...ROUNDED },
  { heads: 2, kvHeads: 1, headDim: 128, dtype: 'bf16', window: 70 },
];

/** `data` with the slopes that the heads of `s` have, if they have some. */
export const withSlopes = ({ T, inputs }: AttentionData, { heads, sloped }: Shape): AttentionData => ({
  T,
  inputs: new Map([
    ...inputs,
    ...(sloped === true ? [['slopes', Float64Array.from(paperSlopes(heads))] as const] : []),
  ]),
});

/** Positions of tokens of trees that lie one behind another: how many tokens are above each. */
export function depthsOf(subtreeEnd: Float64Array): Float64Array {
  const open: number[] = [];
  return subtreeEnd.map((end, token) => {
    while (open.length > 0 && open.at(-1)! <= token) open.pop();
    return open.push(end) - 1;
  });
}

/** A call over the trees of attentionCases. */
export function leaningTrees(s: Shape, seed: number, row?: readonly number[]): AttentionData {
  const data = dataOf(s, ends(ZOO), seed, row);
  data.inputs.get('subtreeEnd')!.forEach((end, i) => {
    if (end <= i) throw new Error('a subtree has its root');
  });
  const position = depthsOf(data.inputs.get('subtreeEnd')!);
  return withSlopes({ T: data.T, inputs: new Map([...data.inputs, ['position', position]]) }, s);
}
