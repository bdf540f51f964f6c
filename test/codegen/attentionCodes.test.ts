/** Keys and values as codes on a CPU: stores to the bit, attention near float64, in every instruction set. */
import { expect, it } from 'vitest';
import { CACHE_FORMATS } from '../../ir/function.js';
import type { BufferDecl, KernelModule } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { roundToDType } from '../../ir/round.js';
import { interfaceOf } from '../support/interface.js';
import { randomArray, randomSource, runGenerated, RUNNABLE } from './harness.js';
it.each(CACHE_FORMATS)('agree with float64 as %s', (format) => {
  const round = (x: number): number => roundToDType(x, format);
  const r = randomSource(3);
  const T = 70,
    heads = 4,
    kvHeads = 2,
    d = 48;
  const buffers = [
    { name: 'q', dtype: 'f32', rows: 'T', columns: heads * d, space: 'input' },
    { name: 'k', dtype: format, rows: 'T', columns: kvHeads * d, space: 'input' },
    { name: 'v', dtype: format, rows: 'T', columns: kvHeads * d, space: 'input' },
    { name: 'ks', dtype: 'f32', rows: 'T', columns: kvHeads, space: 'input' },
    { name: 'vs', dtype: 'f32', rows: 'T', columns: kvHeads, space: 'input' },
    { name: 'subtreeEnd', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
    { name: 'o', dtype: 'f32', rows: 'T', columns: heads * d, space: 'arena' },
    { name: 'x', dtype: 'f32', rows: 'T', columns: 40, space: 'input' },
    { name: 'c', dtype: format, rows: 'T', columns: 40, space: 'arena' },
  ] as const satisfies readonly BufferDecl[];
  const module: KernelModule = {
    interface: interfaceOf([]),
    weights: [],
    buffers,
    kernels: [
      {
        name: 'a',
        path: 'a',
        anchor: 'attention',
        rows: 'T',
        ops: [],
        q: 'q',
        k: 'k',
        v: 'v',
        scales: { k: 'ks', v: 'vs' },
        out: 'o',
        heads,
        kvHeads,
        headDim: d,
        scale: 0.14,
        mask: { kind: 'column', subtreeEnd: 'subtreeEnd' },
      },
      {
        name: 'l',
        path: 'l',
        anchor: 'loop',
        rows: 'T',
        ops: [],
        columns: 40,
        outputs: [{ kind: 'store', buffer: 'c', value: { op: 'load', buffer: 'x', access: { kind: 'element' } } }],
      },
    ],
  };
  const data = new Map<string, Float64Array>([
    ['q', randomArray(r, T * heads * d, 1).map(Math.fround)],
    ['k', randomArray(r, T * kvHeads * d, 200).map(round)],
    ['v', randomArray(r, T * kvHeads * d, 200).map(round)],
    ['ks', randomArray(r, T * kvHeads, 0.01).map((x) => Math.fround(Math.abs(x)))],
    ['vs', randomArray(r, T * kvHeads, 0.01).map((x) => Math.fround(Math.abs(x)))],
    ['subtreeEnd', new Float64Array(T).fill(T)],
    ['x', randomArray(r, T * 40, 3).map((x, i) => Math.fround(x * 2 ** ((i % 23) - 14)))],
  ]);
  const want = interpretModule(module, { sizes: { T, R: 1 }, buffers: data, tensors: new Map(), round: true });
  for (const isa of RUNNABLE.filter((each) => each !== 'amx')) {
    const got = runGenerated(module, {
      schedules: [
        { kind: 'attention', isa, queries: 32, keys: 64 },
        { kind: 'loop', isa, rows: 16 },
      ],
      sizes: { T, R: 1 },
      inputs: data,
      isQuick: true,
    });
    expect(got.values.get('c'), isa).toEqual(want.get('c'));
    got.values.get('o')!.forEach((x, i) => expect(Math.abs(x - want.get('o')![i]!)).toBeLessThan(1e-5));
  }
});
