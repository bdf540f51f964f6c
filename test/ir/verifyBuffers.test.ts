import { describe, expect, it } from 'vitest';
import type { KernelModule } from '../../ir/kernel.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { buffers, decl, good, weights, withBuffer } from './soundModule.js';

describe('verifyBuffers and verifyConstants', () => {
  const cases: readonly (readonly [string, KernelModule, string])[] = [
    [
      'a buffer name outside the grammar',
      withBuffer('att', { name: 'att;system()' }),
      'Buffer "att;system()": the name does not match [a-z][a-z0-9_]*.',
    ],
    ['a buffer declared twice', { ...good, buffers: [...buffers, buffers[0]!] }, 'Buffer "tokens": declared twice.'],
    ['a buffer of no columns', withBuffer('v', { columns: 0 }), 'Buffer "v": [T, 0] is not a shape'],
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
  ];
  it.each(cases)('reject %s', (_what, module, message) => expect(() => verifyKernels(module)).toThrow(message));
});
