/**
 * Weights of 16 bits are widened while they are read: the results have the bits of the same numbers stored as f32,
 * whether a panel is widened in registers or once for a work item, for few rows and for many.
 */
import { describe, expect, it } from 'vitest';
import { isLegal } from '../../codegen/cpu/index.js';
import type { BufferDecl, KernelModule, WeightDecl } from '../../ir/kernel.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import type { CpuGemmSchedule, CpuIsa } from '../../ir/plan.js';
import { FORMATS } from '../../ir/storage.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { casesHere, isThorough } from '../support/thorough.js';
import { randomArray, randomSource, runGenerated, RUNNABLE } from './harness.js';
import { acc, store } from './modules.js';

const K = 70;
const COLUMNS = 150;
const FACTS = { isas: ['portable', 'avx2', 'avx512'] as const, l1: 32768, l2: 1 << 20 };

/** mr, nr, kc, mb: a stream, two tiles that share panels, tiles across panels, and an item that widens its panels. */
const SCHEDULES: Readonly<Record<'portable' | 'avx2' | 'avx512', readonly (readonly number[])[]>> = {
  portable: [
    [1, 32, 96, 1],
    [4, 16, 32, 8],
    [2, 16, 64, 64],
  ],
  avx2: [
    [2, 32, 96, 2],
    [4, 16, 32, 8],
    [6, 16, 64, 60],
  ],
  avx512: [
    [1, 32, 96, 1],
    [8, 32, 96, 8],
    [8, 16, 32, 16],
    [8, 48, 32, 8],
    [14, 32, 64, 56],
  ],
};

/** y0 from the weights as f32, y1 … from the same numbers in `format`. */
function moduleOf(format: 'bf16' | 'f16', count: number): KernelModule {
  const names = Array.from({ length: count }, (_, i) => `y${i}`);
  const buffers: BufferDecl[] = [
    { name: 'x', dtype: 'f32', rows: 'T', columns: K, space: 'input' },
    ...names.map((name): BufferDecl => ({ name, dtype: 'f32', rows: 'T', columns: COLUMNS, space: 'arena' })),
  ];
  const weight = (name: string, stored: WeightDecl['format']): WeightDecl => ({
    name,
    layout: 'panels',
    format: stored,
    k: K,
    pairing: { kind: 'none' },
    sources: [{ tensor: 'w', rows: COLUMNS }],
  });
  return {
    interface: interfaceOf(buffers),
    buffers,
    weights: [weight('wide', 'f32'), weight('narrow', format)],
    kernels: names.map((name, i) => ({
      name: `g${i}`,
      path: `test.g${i}`,
      anchor: 'gemm',
      rows: 'T',
      ops: [],
      k: K,
      a: 'x',
      segments: [
        {
          weight: i === 0 ? 'wide' : 'narrow',
          columns: COLUMNS,
          pairing: { kind: 'none' },
          outputs: [store(name, acc())],
        },
      ],
    })),
  };
}

const isas = RUNNABLE.filter(
  (isa, i): isa is Exclude<CpuIsa, 'amx'> => isa !== 'amx' && (i > 0 || isThorough || RUNNABLE.length === 1),
);

describe.each(isas)('panels of 16 bits on %s', (isa) => {
  it.each(casesHere<'bf16' | 'f16'>(['bf16', 'f16'], 0))('give the bits of the same weights in f32: %s', (format) => {
    const own = SCHEDULES[isa];
    const schedules = [own[0]!, ...own].map(([mr, nr, kc, mb]): CpuGemmSchedule => ({
      kind: 'gemm',
      isa,
      mr: mr!,
      nr: nr!,
      kc: kc!,
      mb: mb!,
      nb: nr === 48 ? 96 : 64,
    }));
    const module = moduleOf(format, schedules.length);
    module.kernels.forEach((kernel, i) => expect(isLegal(kernel, module, schedules[i]!, FACTS)).toBe(true));
    const random = randomSource(format.length);
    const stored = FORMATS[format];
    const data = stored.decode(stored.encode(randomArray(random, COLUMNS * K)));
    for (const T of [1, 7, 77]) {
      const { values, overruns } = runGenerated(module, {
        sizes: { T, R: 0 },
        inputs: new Map([['x', randomArray(random, T * K)]]),
        tensors: new Map([['w', { rows: COLUMNS, columns: K, data }]]),
        schedules,
        tokensCapacity: 128,
        isQuick: true,
        workers: 2,
      });
      expect(overruns).toEqual([]);
      for (let i = 1; i < schedules.length; i++) expectSame(values.get(`y${i}`), values.get('y0'), `y${i}, ${T} rows`);
    }
  });

  it('take half of the bytes', () => {
    const [wide, narrow] = moduleOf('bf16', 1).weights;
    const bytes = (weight: WeightDecl): number => packedBytes(weight, physicalToLogical(weight).length);
    expect(bytes(narrow!)).toBe(bytes(wide!) / 2);
  });
});
