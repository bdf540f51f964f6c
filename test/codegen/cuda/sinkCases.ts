/** Attention with sinks: shapes, and calls whose sinks lie below, among and above the scores. */
import type { AttentionData, Shape } from './attentionHarness.js';
import { pathShape } from './pathSchedules.js';

/** Over paths, as gpt-oss has them: eight heads share keys, with a window in every second layer. */
export const SINK_PATHS: readonly Shape[] = [
  { ...pathShape(8, 1, 64, 'bf16', 'f32'), sinks: 'bf16' },
  { ...pathShape(8, 1, 64, 'bf16', 'f32'), sinks: 'f32', window: 40 },
  { ...pathShape(4, 2, 64, 'bf16', 'f32'), sinks: 'f32', scaled: 'i8' },
];

/** Over trees. */
export const SINK_TREES: readonly Shape[] = [
  { heads: 4, kvHeads: 2, headDim: 64, dtype: 'bf16', out: 'f32', sinks: 'bf16' },
  { heads: 4, kvHeads: 2, headDim: 32, dtype: 'f16', out: 'f32', sinks: 'f32', cap: 3 },
];

/** `data` with a sink of each head. */
export const withSinks = ({ T, inputs }: AttentionData, { heads }: Shape): AttentionData => ({
  T,
  inputs: new Map([...inputs, ['sink', Float64Array.from({ length: heads }, (_, h) => ((h * 5) % 7) * 1.5 - 4)]]),
});
