import { interfaceOf } from '../support/interface.js';
import { describe, expect, it } from 'vitest';
import type { BufferDecl, Kernel, KernelModule, Pairing, WeightDecl } from '../../ir/kernel.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import type { Scalar } from '../../ir/scalar.js';

const acc: Scalar = { op: 'acc', index: 0 };
const rotate: Pairing = { kind: 'rotate', headDim: 16, width: 8 };
const load = (buffer: string, via?: string): Scalar => ({
  op: 'load',
  buffer,
  access: { kind: 'element', ...(via === undefined ? {} : { via }) },
});
const buffers: BufferDecl[] = [
  { name: 'tokens', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
  { name: 'subtree_end', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
  { name: 'row', dtype: 'i32', rows: 'R', columns: 1, space: 'input' },
  { name: 'target', dtype: 'i32', rows: 'R', columns: 1, space: 'input' },
  { name: 'h0', dtype: 'bf16', rows: 'T', columns: 64, space: 'arena' },
  { name: 'ssq', dtype: 'f32', rows: 'T', columns: 4, space: 'arena' },
  { name: 'q', dtype: 'bf16', rows: 'T', columns: 64, space: 'arena' },
  { name: 'v', dtype: 'bf16', rows: 'T', columns: 32, space: 'arena' },
  { name: 'att', dtype: 'bf16', rows: 'R', columns: 64, space: 'arena' },
  { name: 'parts', dtype: 'f32', rows: 'R', columns: 16, space: 'arena' },
  { name: 'log_prob', dtype: 'f32', rows: 'R', columns: 1, space: 'output' },
  { name: 'is_argmax', dtype: 'i32', rows: 'R', columns: 1, space: 'output' },
];
const decl = (name: string, n: number, pairing: Pairing = { kind: 'none' }): WeightDecl => ({
  name,
  layout: 'vnni',
  format: 'bf16',
  k: 64,
  pairing,
  sources: [{ tensor: name, rows: n }],
});
const weights: WeightDecl[] = [
  { ...decl('embed', 1000), layout: 'rows' },
  decl('wq', 64, rotate),
  decl('wv', 32),
  decl('head', 1000),
];
const embed: Kernel = {
  name: 'embed_rows',
  path: 'embed',
  anchor: 'loop',
  rows: 'T',
  ops: ['embed'],
  columns: 64,
  outputs: [
    { kind: 'store', buffer: 'h0', value: load('embed', 'tokens') },
    { kind: 'rowSum', buffer: 'ssq', value: load('embed', 'tokens') },
  ],
};
const project: Extract<Kernel, { anchor: 'gemm' }> = {
  name: 'qv',
  path: 'layers.0.attention.qv',
  anchor: 'gemm',
  rows: 'T',
  ops: ['matmul', 'matmul'],
  k: 64,
  a: 'h0',
  segments: [
    {
      weight: 'wq',
      columns: 64,
      pairing: rotate,
      outputs: [{ kind: 'store', buffer: 'q', value: { op: 'add', a: acc, b: { op: 'rotateHalf', a: acc } } }],
    },
    { weight: 'wv', columns: 32, pairing: { kind: 'none' }, outputs: [{ kind: 'store', buffer: 'v', value: acc }] },
  ],
};
const attention: Extract<Kernel, { anchor: 'attention' }> = {
  name: 'att0',
  path: 'layers.0.attention',
  anchor: 'attention',
  rows: 'R',
  ops: [],
  q: 'q',
  k: 'v',
  v: 'v',
  out: 'att',
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  scale: 0.25,
  mask: { kind: 'column', subtreeEnd: 'subtree_end' },
  queryRow: 'row',
};
const head: Extract<Kernel, { anchor: 'logprob' }> = {
  name: 'head0',
  path: 'head',
  anchor: 'logprob',
  rows: 'R',
  ops: [],
  k: 64,
  a: 'att',
  weight: 'head',
  vocab: 1000,
  target: 'target',
  parts: 'parts',
  rowScale: { op: 'rsqrt', a: { op: 'rowSum', buffer: 'ssq', via: 'row' } },
};
const reduce: Kernel = {
  name: 'reduce',
  path: 'head',
  anchor: 'logprobReduce',
  rows: 'R',
  ops: [],
  vocab: 1000,
  parts: 'parts',
  target: 'target',
  logProb: 'log_prob',
  isArgmax: 'is_argmax',
};
const good: KernelModule = {
  interface: interfaceOf(buffers),
  buffers,
  weights,
  kernels: [embed, project, attention, head, reduce],
};

const withBuffer = (name: string, change: Partial<BufferDecl>): KernelModule => ({
  ...good,
  buffers: buffers.map((b) => (b.name === name ? { ...b, ...change } : b)),
});
const withKernel = (name: string, change: Partial<Kernel>): KernelModule => ({
  ...good,
  kernels: good.kernels.map((k) => (k.name === name ? ({ ...k, ...change } as Kernel) : k)),
});
const withWeight = (name: string, change: Partial<WeightDecl>): KernelModule => ({
  ...good,
  weights: weights.map((w) => (w.name === name ? { ...w, ...change } : w)),
});
const valueOf = (value: Scalar): KernelModule =>
  withKernel('qv', {
    segments: project.segments.map((s, i) =>
      i === 1 ? { ...s, outputs: [{ kind: 'store' as const, buffer: 'v', value }] } : s,
    ),
  });

describe('verifyKernels', () => {
  it('accepts a sound module', () => expect(() => verifyKernels(good)).not.toThrow());

  const cases: readonly (readonly [string, KernelModule, string])[] = [
    [
      'a buffer name outside the grammar',
      withBuffer('att', { name: 'att;system()' }),
      'Buffer "att;system()": the name does not match [a-z][a-z0-9_]*.',
    ],
    [
      'a kernel name outside the grammar',
      withKernel('att0', { name: 'Att' }),
      'Kernel "Att" (layers.0.attention): the name does not match',
    ],
    ['two kernels of one name', withKernel('att0', { name: 'qv' }), 'another kernel has the same name'],
    [
      'a path that ends a comment',
      withKernel('att0', { path: 'x */ int y' }),
      '"x */ int y" may not stand in a comment',
    ],
    ['a buffer declared twice', { ...good, buffers: [...buffers, buffers[0]!] }, 'Buffer "tokens": declared twice.'],
    ['a buffer of no columns', withBuffer('v', { columns: 0 }), 'Buffer "v": [T, 0] is not a shape'],
    [
      'an unknown left operand',
      withKernel('qv', { a: 'nowhere' }),
      'Kernel "qv" (layers.0.attention.qv): it reads \'nowhere\', which is not a buffer.',
    ],
    [
      'a left operand of another width',
      withBuffer('h0', { columns: 96 }),
      "'h0' is bf16[T, 96]; as a store it must be bf16[T, 64].",
    ],
    [
      'a left operand of another dtype',
      withBuffer('h0', { dtype: 'f32' }),
      "weight 'wq' is in layout vnni, but 'h0' is f32.",
    ],
    [
      'a read before the write',
      { ...good, kernels: [project, embed, attention, head, reduce] },
      "it reads 'h0' before any kernel has written it.",
    ],
    [
      'a second write',
      { ...good, kernels: [embed, { ...embed, name: 'again' }, project, attention, head, reduce] },
      "it writes 'h0', which is already written.",
    ],
    ['a write to an input', withBuffer('v', { space: 'input' }), "it writes 'v', which is an input."],
    [
      'an output nobody writes',
      { ...good, kernels: good.kernels.slice(0, 4) },
      "Buffer 'log_prob' is an output, but no kernel writes it.",
    ],
    [
      'a weight with other rows',
      withWeight('wv', { sources: [{ tensor: 'wv', rows: 48 }] }),
      "weight 'wv' has 48 rows, the kernel needs 32.",
    ],
    ['a weight with another k', withWeight('wv', { k: 32 }), "weight 'wv' has k 32, the kernel 64."],
    [
      'a weight packed otherwise',
      withWeight('wq', { pairing: { kind: 'none' } }),
      "weight 'wq' is packed with another pairing",
    ],
    [
      'a pairing width that divides nothing',
      withWeight('wq', { pairing: { kind: 'rotate', headDim: 16, width: 3 } }),
      'Weight "wq": pairing width 3 does not divide half the head dimension, 8.',
    ],
    [
      'heads that do not fill the columns',
      withWeight('wq', { pairing: { kind: 'rotate', headDim: 24, width: 4 } }),
      '64 columns are not whole heads of 24.',
    ],
    ['vnni in f32', withWeight('wv', { format: 'f32' }), 'Weight "wv": layout vnni supports bf16, not f32.'],
    [
      'an interleaved pair of one matrix',
      withWeight('wv', { pairing: { kind: 'interleave', width: 16 } }),
      'exactly two sources of equal rows',
    ],
    [
      'row sums of another size',
      withBuffer('ssq', { columns: 2 }),
      "'ssq' is f32[T, 2]; as row sums of 64 columns it must be f32[T, 4].",
    ],
    ['an accumulator that is not there', valueOf({ op: 'acc', index: 1 }), 'acc1: the program sees 1 accumulators.'],
    [
      'rotateHalf outside a rotated segment',
      valueOf({ op: 'rotateHalf', a: acc }),
      "rotateHalf(acc0): rotateHalf needs a segment with pairing 'rotate', or a loop with heads.",
    ],
    [
      'groups that are not whole parts',
      valueOf({ op: 'groupSum', a: acc, width: 8 }),
      'groupSum(acc0 of 8 columns): groups have a multiple of 16 columns, at most 256, not 8.',
    ],
    [
      'groups that do not fill the columns',
      valueOf({ op: 'groupSum', a: acc, width: 48 }),
      '32 columns are not whole groups of 48.',
    ],
    [
      'groups of groups',
      valueOf({ op: 'groupSum', a: { op: 'groupSum', a: acc, width: 16 }, width: 16 }),
      'what a group adds up must not read other columns.',
    ],
    [
      'groups of two widths',
      valueOf({ op: 'add', a: { op: 'groupSum', a: acc, width: 16 }, b: { op: 'groupSum', a: acc, width: 32 } }),
      "the epilogue of 'wv' sums groups of more than one width.",
    ],
    ['an op operand', valueOf({ op: 'arg', index: 0 }), '$0: operands of ops appear in op definitions only'],
    [
      'a load of another width',
      valueOf(load('h0')),
      "h0[row, column]: 'h0' is [T, 64], but the access needs 32 columns.",
    ],
    [
      'a row number that is no index',
      valueOf({ op: 'rowSum', buffer: 'ssq', via: 'ssq' }),
      "'ssq' is f32[T, 4], but row numbers need i32[T, 1].",
    ],
    ['a read of its own result', valueOf(load('q')), "it reads 'q', which it writes itself"],
    [
      'a loop with an accumulator',
      withKernel('embed_rows', { outputs: [{ kind: 'store', buffer: 'h0', value: acc }] }),
      'acc0: the program sees 0 accumulators.',
    ],
    ['a scale that is no number', withKernel('att0', { scale: NaN }), 'scale NaN is not a positive number'],
    ['heads that cannot share keys', withKernel('att0', { kvHeads: 3 }), '4 heads are not a multiple of 3'],
    ['queries without rows', withKernel('att0', { rows: 'T' }), 'as rows of queries it must be i32[T, 1]'],
    [
      'a row scale that varies',
      withKernel('head0', { rowScale: { op: 'columnIndex' } }),
      'rowScale differs between columns',
    ],
    [
      'a constant of another length',
      {
        ...good,
        weights: [...weights, { ...decl('freq', 8), k: 1, layout: 'rows' }],
        constants: [{ name: 'freq', values: [1, 2, 3] }],
      },
      'Constant "freq": weight \'freq\' reads it as [8, 1], but it is [3, 1].',
    ],
    [
      'a constant that is not a number',
      { ...good, constants: [{ name: 'freq', values: [1, NaN] }] },
      'Constant "freq": its values are finite numbers, at least one.',
    ],
    [
      'a constant given twice',
      {
        ...good,
        constants: [
          { name: 'freq', values: [1] },
          { name: 'freq', values: [1] },
        ],
      },
      'Constant "freq": given twice.',
    ],
    [
      'parts of another size',
      withBuffer('parts', { columns: 4 }),
      "'parts' is f32[R, 4]; as parts of a log-sum-exp it must be f32[R, 16].",
    ],
  ];
  it.each(cases)('rejects %s', (_what, module, message) => expect(() => verifyKernels(module)).toThrow(message));
});
