/** Examples of ops: operands, and the result that they have. Those of experts and of narrow numbers are beside this. */
import type { Attributes } from '../../ir/ops/opDef.js';
import { gumbel, uniform } from '../../ir/gumbel.js';
import type { OpName } from '../../ir/ops/index.js';
import type { Example } from './example.js';
import { EXPERT_EXAMPLES } from './expertExamples.js';
import { NARROW_EXAMPLES } from './narrowExamples.js';
import { RECURRENT_EXAMPLES } from './recurrentExamples.js';

export type { Example };
const example = (
  op: OpName,
  operands: Example['operands'],
  type: string,
  result: readonly number[],
  attributes: Attributes = {},
): Example => ({ op, operands, type, result, attributes });

/** Extents of the examples. */
export const EXAMPLE_SIZES = { T: 2, R: 3 };
const [X, Y] = [
  ['f32[2]', [6, -1.5]],
  ['f32[2]', [4, -1.5]],
] as const;
const [P, Q] = [
  ['bool[4]', [0, 0, 1, 1]],
  ['bool[4]', [0, 1, 0, 1]],
] as const;
/** One for each op at least, computed by hand. */
export const EXAMPLES: readonly Example[] = [
  example('const', [], 'f32[]', [2.5], { value: 2.5 }),
  example('cast', [['f32[3]', [2.9, -2.9, 0]]], 'i32[3]', [2, -2, 0], { dtype: 'i32' }),
  example('cast', [['f32[2]', [1 + 2 ** -8, 1 + 3 * 2 ** -8]]], 'bf16[2]', [1, 1 + 2 ** -6], { dtype: 'bf16' }),
  example('cast', [['i32[2]', [7, -7]]], 'f32[2]', [7, -7], { dtype: 'f32' }),
  example('add', [X, Y], 'f32[2]', [10, -3]),
  example(
    'add',
    [
      ['f32[T, 1]', [10, 20]],
      ['f32[3]', [1, 2, 3]],
    ],
    'f32[T, 3]',
    [11, 12, 13, 21, 22, 23],
  ),
  example('sub', [X, Y], 'f32[2]', [2, 0]),
  example(
    'sub',
    [
      ['i32[1, T]', [5, 6]],
      ['i32[T, 1]', [1, 2]],
    ],
    'i32[T, T]',
    [4, 5, 3, 4],
  ),
  example('mul', [X, Y], 'f32[2]', [24, 2.25]),
  example('div', [X, Y], 'f32[2]', [1.5, 1]),
  example('max', [X, Y], 'f32[2]', [6, -1.5]),
  example('min', [X, Y], 'f32[2]', [4, -1.5]),
  example('le', [X, Y], 'bool[2]', [0, 1]),
  example('lt', [X, Y], 'bool[2]', [0, 0]),
  example('eq', [X, Y], 'bool[2]', [0, 1]),
  example('and', [P, Q], 'bool[4]', [0, 0, 0, 1]),
  example('or', [P, Q], 'bool[4]', [0, 1, 1, 1]),
  example('not', [['bool[2]', [0, 1]]], 'bool[2]', [1, 0]),
  example('neg', [X], 'f32[2]', [-6, 1.5]),
  example('exp', [['f32[2]', [0, -Infinity]]], 'f32[2]', [1, 0]),
  example('floor', [['f32[3]', [1.5, -0.5, 2]]], 'f32[3]', [1, -1, 2]),
  example('log', [['f32[2]', [1, 0]]], 'f32[2]', [0, -Infinity]),
  example('sqrt', [['f32[2]', [9, 0.25]]], 'f32[2]', [3, 0.5]),
  example('rsqrt', [['f32[2]', [4, 0.25]]], 'f32[2]', [0.5, 2]),
  example('sin', [['f32[1]', [0]]], 'f32[1]', [0]),
  example('cos', [['f32[1]', [0]]], 'f32[1]', [1]),
  example('tanh', [['f32[3]', [0, Math.log(3), -Infinity]]], 'f32[3]', [0, 0.8, -1]),
  example('erf', [['f32[3]', [0, Infinity, -7]]], 'f32[3]', [0, 1, -1]),
  example(
    'select',
    [
      ['bool[T, 1]', [1, 0]],
      ['f32[]', [0]],
      ['f32[1, 3]', [1, 2, 3]],
    ],
    'f32[T, 3]',
    [0, 0, 0, 1, 2, 3],
  ),
  example('sum', [['f32[T, 3]', [1, 2, 3, 4, 5, 6]]], 'f32[T, 1]', [6, 15]),
  example('mean', [['f32[T, 3]', [1, 2, 3, 4, 5, 6]]], 'f32[T, 1]', [2, 5]),
  example('reduce_max', [['f32[T, 3]', [1, 3, 2, -4, -6, -5]]], 'f32[T, 1]', [3, -4]),
  example('argmax', [['f32[T, 3]', [1, 3, 3, -4, -6, -4]]], 'i32[T, 1]', [1, 0]),
  example(
    'linear',
    [
      ['f32[T, 2]', [1, 2, 3, 4]],
      ['bf16[3, 2]', [1, 0, 0, 1, 1, -1]],
    ],
    'f32[T, 3]',
    [1, 2, -1, 3, 4, -1],
  ),
  example(
    'head_linear',
    [
      ['f32[T, 2, 2]', [1, 2, 3, 4, 5, 6, 7, 8]],
      ['bf16[2, 2]', [1, -1, 10, 1]],
    ],
    'f32[T, 2, 1]',
    [-1, 34, -1, 78],
  ),
  example(
    'matmul',
    [
      ['f32[2, T, 1]', [1, 2, 3, 4]],
      ['f32[2, 1, 2]', [10, 100, -1, 1]],
    ],
    'f32[2, T, 2]',
    [10, 100, 20, 200, -3, 3, -4, 4],
  ),
  example('reshape', [['f32[T, 6]', [...Array(12).keys()]]], 'f32[T, 3, 2]', [...Array(12).keys()], {
    shape: ['T', 3, 2],
  }),
  example('transpose', [['f32[T, 3]', [1, 2, 3, 4, 5, 6]]], 'f32[3, T]', [1, 4, 2, 5, 3, 6], { order: [1, 0] }),
  example('transpose', [['f32[2, 1, 3]', [1, 2, 3, 4, 5, 6]]], 'f32[3, 2, 1]', [1, 4, 2, 5, 3, 6], {
    order: [2, 0, 1],
  }),
  ...[...EXPERT_EXAMPLES, ...NARROW_EXAMPLES].map((each) => example(...each)),
  ...RECURRENT_EXAMPLES,
  example('pair_halves', [['f32[2]', [1, 2]]], 'f32[2]', [1, 2], { headDim: 2, rotated: 2, interleaved: true }),
  example('repeat', [['f32[2, T]', [1, 2, 3, 4]]], 'f32[4, T]', [1, 2, 1, 2, 3, 4, 3, 4], { times: 2 }),
  example('rotate_half', [['f32[T, 4]', [1, 2, 3, 4, 5, 6, 7, 8]]], 'f32[T, 4]', [-3, -4, 1, 2, -7, -8, 5, 6]),
  example(
    'gather_rows',
    [
      ['bf16[4, 2]', [0, 1, 10, 11, 20, 21, 30, 31]],
      ['i32[R]', [3, 0, 3]],
    ],
    'bf16[R, 2]',
    [30, 31, 0, 1, 30, 31],
  ),
  example(
    'gather_last',
    [
      ['f32[T, 3]', [1, 2, 3, 4, 5, 6]],
      ['i32[T]', [2, 0]],
    ],
    'f32[T]',
    [3, 4],
  ),
  example(
    'write_rows',
    [
      ['f32[4, 2]', [1, 2, 3, 4, 5, 6, 7, 8]],
      ['f32[3, 2]', [10, 11, 12, 13, 14, 15]],
      ['i32[3]', [3, -1, 0]],
    ],
    'f32[4, 2]',
    [14, 15, 3, 4, 5, 6, 10, 11],
  ),
  example('iota', [], 'i32[T]', [0, 1], { size: ['T'] }),
  example('vector', [], 'f32[2]', [0.5, 0.25], { label: 'frequencies', values: [0.5, 0.25] }),
  // Scale ½ cancels the query 2: keys 0 and ln 3 weigh 1 : 3 for the second query; the first sees only the first key.
  example(
    'attention',
    [
      ['f32[T, 1, 1]', [2, 2]],
      ['f32[T, 1, 1]', [0, Math.log(3)]],
      ['f32[T, 1, 1]', [4, 8]],
      ['i32[T]', [2, 2]],
    ],
    'f32[T, 1, 1]',
    [4, 7],
    { mask: 'column', scale: 0.5 },
  ),
  // Two query heads share the keys; the bias hides the first key from the second query.
  example(
    'attention',
    [
      ['f32[T, 2, 1]', [0, 0, 0, 0]],
      ['f32[T, 1, 1]', [1, 1]],
      ['f32[T, 1, 1]', [4, 8]],
      ['f32[T, T]', [0, 0, -Infinity, 0]],
    ],
    'f32[T, 2, 1]',
    [6, 6, 8, 8],
    { mask: 'bias', scale: 1 },
  ),
  example(
    'attention',
    [
      ['f32[T, 1, 1]', [0, 0]],
      ['f32[T, 1, 1]', [1, 1]],
      ['f32[T, 1, 1]', [4, 8]],
      ['i32[T]', [2, 2]],
      ['i32[R]', [1, 0, 1]],
    ],
    'f32[R, 1, 1]',
    [6, 4, 6],
    { mask: 'column', scale: 1 },
  ),
  // Beside scores of 0 the sink ln 3 weighs as much as three keys: a query sees one key of four, the next two of five.
  example(
    'attention',
    [
      ['f32[T, 1, 1]', [0, 0]],
      ['f32[T, 1, 1]', [1, 1]],
      ['f32[T, 1, 1]', [4, 8]],
      ['i32[T]', [2, 2]],
      ['bf16[1]', [Math.log(3)]],
    ],
    'f32[T, 1, 1]',
    [1, 2.4],
    { mask: 'column', scale: 1, sinks: true },
  ),
  // Query 0 sees entry 2 of the list of keys, which is row 1; query 1 sees entries 0 and 1, which are rows 0 and 2.
  example(
    'attention',
    [
      ['f32[T, 1, 1]', [0, 0]],
      ['f32[3, 1, 1]', [1, 1, 1]],
      ['f32[3, 1, 1]', [4, 8, 16]],
      ['i32[T]', [2, 0]],
      ['i32[T]', [0, 1]],
      ['i32[R]', [0, 2, 1]],
    ],
    'f32[T, 1, 1]',
    [8, 10],
    { mask: 'path', scale: 1 },
  ),
  // Row r: z = scale·x·(0, ln 3); softmax is (¼, ¾) for scale·x = 1.
  example(
    'logprob',
    [
      ['f32[R, 1]', [1, 2, 1]],
      ['bf16[2, 1]', [0, Math.log(3)]],
      ['f32[R, 1]', [1, 0.5, 0]],
      ['i32[R]', [0, 1, 1]],
    ],
    'f32[R]',
    [Math.log(1 / 4), Math.log(3 / 4), Math.log(1 / 2)],
  ),
  example(
    'is_argmax',
    [
      ['f32[R, 1]', [1, 2, 1]],
      ['bf16[2, 1]', [0, Math.log(3)]],
      ['f32[R, 1]', [1, 0.5, 0]],
      ['i32[R]', [0, 1, 0]],
    ],
    'i32[R]',
    [0, 1, 1],
  ),
  // An inverse temperature of 0 takes the larger logit. At 10⁻⁶ the noise alone decides.
  example(
    'gumbel',
    [
      ['i32[R]', [1, 1, 2]],
      ['i32[R]', [0, 0, -1]],
    ],
    'f32[R, 2]',
    [
      [1, 0],
      [1, 0],
      [2, -1],
    ].flatMap(([low, high]) => [0, 1].map((token) => gumbel({ low: low!, high: high! }, token))),
    { size: 2 },
  ),
  example(
    'gumbel',
    [
      ['i32[R]', [1, 1, 2]],
      ['i32[R]', [0, 0, -1]],
      ['f32[2]', [9, 700]],
    ],
    'f32[R, 2]',
    [
      [1, 0],
      [1, 0],
      [2, -1],
    ].flatMap(([low, high]) => [9, 700].map((token) => gumbel({ low: low!, high: high! }, token))),
    { size: 2 },
  ),
  ...(['draw', 'draw_logprob'] as const).map((op) =>
    example(
      op,
      [
        ['f32[R, 1]', [1, 2, 1]],
        ['bf16[2, 1]', [0, Math.log(3)]],
        ['f32[R, 1]', [1, 0.5, 1]],
        ['f32[R]', [0, 0, 1e-6]],
        ['i32[R]', [5, 6, 7]],
        ['i32[R]', [0, 0, 0]],
      ],
      op === 'draw' ? 'i32[R]' : 'f32[R]',
      [1, 1, uniform({ low: 7, high: 0 }, 1) < uniform({ low: 7, high: 0 }, 0) ? 1 : 0].map((token) =>
        op === 'draw' ? token : Math.log(token === 1 ? 3 / 4 : 1 / 4),
      ),
    ),
  ),
  example('first_rows', [['f32[R, 2]', [1, 2, 3, 4, 5, 6]]], 'f32[T, 2]', [1, 2, 3, 4], { rows: ['T'] }),
  example(
    'head_logits',
    [
      ['f32[R, 1]', [1, 2, 1]],
      ['bf16[2, 1]', [4, 5]],
      ['f32[R, 1]', [1, 0.5, 0]],
    ],
    'f32[T, 2]',
    [4, 5, 4, 5],
    { rows: ['T'] },
  ),
  // The first row bans the likeliest token, and its mask allows no other than 2; the second takes its last token,
  // generated, to be less likely than 2.
  example(
    'sample',
    [
      ['f32[T, 3]', [3, 2.5, 2, 2, 1, 1.5]],
      ...(
        [
          [0, 0, 0],
          [5, 6, 7],
          [0, 0, 0],
        ] as const
      ).map((data, i) => [`${i === 0 ? 'f32' : 'i32'}[R]`, data] as const),
      ['i32[T]', [0, 0]],
      ['f32[T]', [1, 1]],
      ['f32[T]', [-Infinity, -Infinity]],
      ['f32[T]', [1, 1]],
      ['f32[T]', [0, 1]],
      ['f32[T]', [0, 0]],
      ['i32[T]', [0, 1]],
      ['i32[T]', [1, 1]],
      ['i32[1]', [0]],
      ['f32[1]', [-Infinity]],
      ['i32[1]', [-1]],
      ['i32[R]', [1, 1, 0]],
      ['i32[R]', [0, 2, 1]],
      ['i32[T]', [0, 1]],
      ['i32[T]', [0, -1]],
      ['i32[1, 1]', [0b101]],
    ],
    'i32[T]',
    [2, 2],
  ),
  example(
    'sample_logprob',
    [
      ['f32[T, 2]', [0, Math.log(3), 1, 1]],
      ['i32[T]', [1, 0]],
    ],
    'f32[T]',
    [Math.log(3 / 4), Math.log(1 / 2)],
  ),
  ...(['top_tokens', 'top_logprobs'] as const).map((op) =>
    example(
      op,
      [
        ['f32[T, 2]', [0, Math.log(3), 1, 1]],
        ['i32[T]', [2, 1]],
      ],
      op === 'top_tokens' ? 'i32[T, 3]' : 'f32[T, 3]',
      op === 'top_tokens' ? [1, 0, 0, 0, 0, 0] : [Math.log(3 / 4), Math.log(1 / 4), 0, Math.log(1 / 2), 0, 0],
      { most: 3 },
    ),
  ),
];
