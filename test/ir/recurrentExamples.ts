/** Examples of the ops of recurrent layers, computed by hand. */
import type { Example } from './example.js';

const TOKENS = [
  ['f32[T, 1, 1]', [2, 3]],
  ['f32[T, 1, 1]', [1, 2]],
  ['f32[T, 1, 1]', [5, 7]],
  ['f32[T, 1]', [1, 0.5]],
  ['f32[T, 1]', [1, 0.5]],
  ['i32[T]', [0, 0]],
  ['i32[T]', [2, 2]],
] as const;

export const RECURRENT_EXAMPLES: readonly Example[] = [
  {
    op: 'token_before',
    operands: [['i32[T]', [2, 2]]],
    type: 'i32[T]',
    result: [0, 0],
    attributes: { mask: 'column', back: 1 },
  },
  {
    op: 'token_before',
    operands: [
      ['i32[T]', [0, 0]],
      ['i32[T]', [0, 1]],
      ['i32[R]', [0, 1, 1]],
    ],
    type: 'i32[T]',
    result: [0, 0],
    attributes: { mask: 'path', back: 1 },
  },
  { op: 'subtree_end', operands: [['i32[T]', [0, 1]]], type: 'i32[T]', result: [2, 2], attributes: {} },
  // States 5, then 2.5 + 2·0.5·(7 − 2·2.5) = 4.5.
  { op: 'scan', operands: TOKENS, type: 'f32[T, 1, 1]', result: [10, 13.5], attributes: { rule: 'delta' } },
  // States 5, then 2.5 + 2·0.5·7 = 9.5.
  {
    op: 'scan',
    operands: [...TOKENS, ['f32[1]', [10]]],
    type: 'f32[T, 1, 1]',
    result: [60, 98.5],
    attributes: { rule: 'add' },
  },
  // Keys and queries are divided by √26, and queries are doubled.
  {
    op: 'scan',
    operands: [
      ['f32[T, 1, 2]', [0, 0, 3, 4]],
      ['f32[T, 1, 2]', [0, 0, 3, 4]],
      ['f32[T, 1, 1]', [1, 2]],
      ['f32[T, 1]', [1, 1]],
      ['f32[T, 1]', [1, 1]],
      ['i32[T]', [0, 1]],
      ['i32[T]', [1, 2]],
    ],
    type: 'f32[T, 1, 1]',
    result: [0, (2 * 2 * 25) / 26],
    attributes: { rule: 'add', epsilon: 1, scale: 2 },
  },
];
