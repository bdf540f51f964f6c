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

const STATES = ['f32[3, 1, 1, 1]', [2, 3, 4]] as const;

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
  // Heads 0 and 2 of values have head 0 of queries and keys, 1 and 3 head 1.
  {
    op: 'scan',
    operands: [
      ['f32[T, 2, 1]', [2, 3, 1, 1]],
      ['f32[T, 2, 1]', [1, 5, 1, 1]],
      ['f32[T, 4, 1]', [1, 10, 100, 1000, 1, 2, 3, 4]],
      ['f32[T, 4]', [1, 1, 1, 1, 1, 1, 1, 1]],
      ['f32[T, 4]', [1, 1, 1, 1, 1, 1, 1, 1]],
      ['i32[T]', [0, 1]],
      ['i32[T]', [1, 2]],
    ],
    type: 'f32[T, 4, 1]',
    result: [2, 150, 200, 15_000, 1, 2, 3, 4],
    attributes: { rule: 'add', takesTurns: true },
  },
  // From row 1 of the states, 3: states 3 + 1·(5 − 3·1) = 5, and then as above.
  {
    op: 'scan',
    operands: [...TOKENS, STATES, ['i32[T]', [1, -1]]],
    type: 'f32[T, 1, 1]',
    result: [10, 13.5],
    attributes: { rule: 'delta', kept: true },
  },
  // States 3 + 5 = 8, then 4 + 2·0.5·7 = 11.
  {
    op: 'scan',
    operands: [...TOKENS, STATES, ['i32[T]', [1, -1]], ['f32[1]', [10]]],
    type: 'f32[T, 1, 1]',
    result: [66, 103],
    attributes: { rule: 'add', kept: true },
  },
  {
    op: 'scan_state',
    operands: [STATES, ...TOKENS.slice(1), ['i32[T]', [1, -1]], ['i32[T]', [-1, 1]], ['i32[T]', [-1, 2]]],
    type: 'f32[3, 1, 1, 1]',
    result: [2, 11, 11],
    attributes: { rule: 'add' },
  },
];
