import { describe, expect, it } from 'vitest';
import type { KernelModule } from '../../ir/kernel.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import {
  acc,
  load,
  embed,
  project,
  attention,
  head,
  reduce,
  good,
  withBuffer,
  withKernel,
  withWeight,
  valueOf,
} from './soundModule.js';

describe('verifyKernels', () => {
  it('accepts a sound module', () => expect(() => verifyKernels(good)).not.toThrow());

  const cases: readonly (readonly [string, KernelModule, string])[] = [
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
      'parts of another size',
      withBuffer('parts', { columns: 4 }),
      "'parts' is f32[R, 4]; as parts of a log-sum-exp it must be f32[R, 16].",
    ],
  ];
  it.each(cases)('rejects %s', (_what, module, message) => expect(() => verifyKernels(module)).toThrow(message));
});
