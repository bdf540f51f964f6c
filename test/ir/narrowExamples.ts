/** Examples of numbers of 8 and 16 bits, computed by hand. */
import type { EXPERT_EXAMPLES } from './expertExamples.js';

const I8 = { format: 'i8', from: 'values' };

export const NARROW_EXAMPLES: typeof EXPERT_EXAMPLES = [
  ['cast', [['f32[2]', [1 + 2 ** -11, 1e5]]], 'f16[2]', [1, Infinity], { dtype: 'f16' }],
  ['cast', [['f32[3]', [17.1, 1e3, -(2 ** -10)]]], 'e4m3[3]', [18, 448, -0], { dtype: 'e4m3' }],
  ['cast', [['f32[3]', [2.5, 3.5, -200]]], 'i8[3]', [2, 4, -127], { dtype: 'i8' }],
  ['codes', [['f32[2, 2]', [1.27, -0.5, 0, 0]]], 'i8[2, 2]', [127, -50, 0, 0], I8],
  ['blocks', [['f32[1, 2]', [0.5, -3]]], 'f32[1, 2]', [0.5, -3], { format: 'q8_0' }],
  ['grouped', [['f32[1, 2]', [0.5, -3]]], 'f32[1, 2]', [0.5, -3], { group: 32 }],
  ['microscaled', [['f32[1, 2]', [0.5, -3]]], 'f32[1, 2]', [0.5, -3], {}],
  [
    'linear',
    [
      ['f32[T, 4]', [127, 1.4, 0, 0, 0.635, -0.013, 0, 0]],
      ['f32[1, 4]', [1, 1, 1, 1]],
    ],
    'f32[T, 1]',
    [128, 0.62],
    { rounding: 4 },
  ],
  ['row_scales', [['f32[2, 2]', [127, -0.5, 0, 0]]], 'f32[2]', [1, 1], I8],
];
