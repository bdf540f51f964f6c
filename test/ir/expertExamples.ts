/** Examples of the ops of mixtures of experts, computed by hand. */
import type { Attributes } from '../../ir/ops/opDef.js';
import type { OpName } from '../../ir/ops/index.js';

type Operands = readonly (readonly [type: string, data: readonly number[]])[];

export const EXPERT_EXAMPLES: readonly (readonly [OpName, Operands, string, readonly number[], Attributes])[] = [
  [
    'concat',
    [
      ['bf16[1, 2]', [1, 2]],
      ['bf16[2, 2]', [3, 4, 5, 6]],
    ],
    'bf16[3, 2]',
    [1, 2, 3, 4, 5, 6],
    { axis: 0 },
  ],
  [
    'concat',
    [
      ['f32[2, 1]', [1, 2]],
      ['f32[2, 2]', [3, 4, 5, 6]],
    ],
    'f32[2, 3]',
    [1, 3, 4, 2, 5, 6],
    { axis: 1 },
  ],
  ['top_mask', [['f32[T, 4]', [1, 3, 3, 3, -4, -1, -2, -3]]], 'f32[T, 4]', [0, 1, 1, 0, 0, 1, 1, 0], { k: 2 }],
  ['top_experts', [['f32[T, 4]', [1, 3, 3, 3, -4, -1, -2, -3]]], 'i32[T, 2]', [1, 2, 1, 2], { k: 2 }],
  [
    'expert_weight',
    [
      ['f32[T, 3]', [0, 0, 0, 0, Math.log(3), Math.log(4)]],
      ['i32[T, 2]', [0, 1, 2, 1]],
    ],
    'f32[T, 1]',
    [1 / 3, 3 / 8],
    { slot: 1, normalized: false },
  ],
  [
    'expert_weight',
    [
      ['f32[T, 3]', [0, 0, 0, 0, Math.log(3), Math.log(4)]],
      ['i32[T, 2]', [0, 1, 2, 1]],
    ],
    'f32[T, 1]',
    [1 / 2, 4 / 7],
    { slot: 0, normalized: true },
  ],
  [
    'expert_weight',
    [
      ['f32[T, 3]', [0, 0, 0, 0, Math.log(3), Math.log(4)]],
      ['i32[T, 2]', [0, 1, 2, 1]],
    ],
    'f32[T, 1]',
    [1 / 2, 3 / 4],
    { slot: 1, normalized: false, inTurn: 1.5 },
  ],
  ['expert_rows', [['i32[R, 2]', [1, 0, 2, 1, 0, 1]]], 'i32[Rx2]', [0, 2, 0, 1, 2, 1], { experts: 3 }],
  ['expert_owners', [['i32[R, 2]', [1, 0, 2, 1, 0, 1]]], 'i32[Rx2]', [0, 0, 1, 1, 1, 2], {}],
  ['expert_place', [['i32[R, 2]', [1, 0, 2, 1, 0, 1]]], 'i32[R]', [0, 3, 4], { slot: 1 }],
  [
    'expert_linear',
    [
      ['f32[Tx2, 1]', [1, 2, 3, 4]],
      ['bf16[4, 1]', [1, 10, 2, 20]],
      ['i32[T, 2]', [1, 0, 1, 0]],
    ],
    'f32[Tx2, 2]',
    [1, 10, 2, 20, 6, 60, 8, 80],
    { experts: 2 },
  ],
];
