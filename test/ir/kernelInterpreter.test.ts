import { interfaceOf } from '../support/interface.js';
import { describe, expect, it } from 'vitest';
import type { BufferDecl, Kernel, KernelModule, Pairing, WeightDecl } from '../../ir/kernel.js';
import { interpretKernel, interpretModule, logicalWeight } from '../../ir/kernelInterpreter.js';
import type { Scalar } from '../../ir/scalar.js';

const acc: Scalar = { op: 'acc', index: 0 };
const NONE: Pairing = { kind: 'none' };
const buffer = (
  name: string,
  rows: BufferDecl['rows'],
  columns: BufferDecl['columns'],
  dtype: BufferDecl['dtype'] = 'f32',
): BufferDecl => ({ name, dtype, rows, columns, space: 'arena' });
const weight = (
  name: string,
  rows: readonly number[],
  k: number,
  pairing: Pairing = NONE,
  columnScale?: string,
): WeightDecl => ({
  name,
  layout: 'panels',
  format: 'bf16',
  k,
  pairing,
  sources: rows.map((n, i) => ({ tensor: `${name}.${i}`, rows: n })),
  ...(columnScale === undefined ? {} : { columnScale }),
});
const gemm = (w: string, columns: number, k: number, pairing: Pairing, value: Scalar): Kernel => ({
  name: 'g',
  path: 'layers.0.g',
  anchor: 'gemm',
  rows: 'T',
  ops: [],
  k,
  a: 'x',
  segments: [{ weight: w, columns, pairing, outputs: [{ kind: 'store', buffer: 'y', value }] }],
});
const f64 = (...values: number[]): Float64Array => Float64Array.from(values);

describe('gemm', () => {
  it('multiplies by the transposed weight and stores by segment', () => {
    const out = interpretKernel(gemm('w', 2, 3, NONE, acc), {
      decls: { buffers: [buffer('x', 'T', 3), buffer('y', 'T', 2)], weights: [weight('w', [2], 3)] },
      sizes: { T: 2, R: 0 },
      buffers: new Map([['x', f64(1, 2, 3, 4, 5, 6)]]),
      weights: new Map([['w', f64(1, 0, -1, 2, 2, 2)]]),
    });
    expect([...out.get('y')!]).toEqual([-2, 12, -2, 30]);
  });

  it('rotates pairs i and i + d/2 of each head with rotateHalf', () => {
    // Two heads of 4; cos = 0 and sin = 1 rotate each pair by 90 degrees: (a, b) becomes (−b, a).
    const out = interpretKernel(
      gemm('w', 8, 8, { kind: 'rotate', headDim: 4, width: 2 }, { op: 'rotateHalf', a: acc }),
      {
        decls: { buffers: [buffer('x', 'T', 8), buffer('y', 'T', 8)], weights: [weight('w', [8], 8)] },
        sizes: { T: 1, R: 0 },
        buffers: new Map([['x', f64(1, 2, 3, 4, 5, 6, 7, 8)]]),
        weights: new Map([['w', Float64Array.from({ length: 64 }, (_, i) => (i % 9 === 0 ? 1 : 0))]]),
      },
    );
    expect([...out.get('y')!]).toEqual([-3, -4, 1, 2, -7, -8, 5, 6]);
  });

  it('sums groups of adjacent columns', () => {
    const { columns, value } = { columns: 32, value: { op: 'groupSum', a: acc, width: 16 } as const };
    const out = interpretKernel(gemm('w', columns, 1, { kind: 'none' }, value), {
      decls: { buffers: [buffer('x', 'T', 1), buffer('y', 'T', columns)], weights: [weight('w', [columns], 1)] },
      sizes: { T: 2, R: 0 },
      buffers: new Map([['x', f64(1, -2)]]),
      weights: new Map([['w', Float64Array.from({ length: columns }, (_, i) => i)]]),
    });
    const each = [120, 376, -240, -752].flatMap((sum) => Array.from({ length: 16 }, () => sum));
    expect([...out.get('y')!]).toEqual(each);
  });

  it('shifts column loads inside rotateHalf together with the accumulator', () => {
    const value: Scalar = {
      op: 'rotateHalf',
      a: { op: 'mul', a: acc, b: { op: 'load', buffer: 'b', access: { kind: 'column' } } },
    };
    const out = interpretKernel(gemm('w', 2, 2, { kind: 'rotate', headDim: 2, width: 1 }, value), {
      decls: { buffers: [buffer('x', 'T', 2), buffer('y', 'T', 2), buffer('b', 2, 1)], weights: [weight('w', [2], 2)] },
      sizes: { T: 1, R: 0 },
      buffers: new Map([
        ['x', f64(1, 2)],
        ['b', f64(10, 100)],
      ]),
      weights: new Map([['w', f64(1, 0, 0, 1)]]),
    });
    expect([...out.get('y')!]).toEqual([-200, 10]);
  });

  it('gives both matrices of an interleaved pair', () => {
    const pairing: Pairing = { kind: 'interleave', width: 16 };
    const out = interpretKernel(gemm('w', 2, 1, pairing, { op: 'sub', a: acc, b: { op: 'acc', index: 1 } }), {
      decls: { buffers: [buffer('x', 'T', 1), buffer('y', 'T', 2)], weights: [weight('w', [2, 2], 1, pairing)] },
      sizes: { T: 1, R: 0 },
      buffers: new Map([['x', f64(1)]]),
      tensors: new Map([
        ['w.0', { rows: 2, columns: 1, data: f64(7, 8) }],
        ['w.1', { rows: 2, columns: 1, data: f64(1, 3) }],
      ]),
    });
    expect([...out.get('y')!]).toEqual([6, 5]);
  });
});

describe('logicalWeight', () => {
  it('stacks the sources, scales columns, then rounds', () => {
    const tensors = new Map([
      ['w.0', { rows: 1, columns: 2, data: f64(1, 1) }],
      ['w.1', { rows: 1, columns: 2, data: f64(3, 1.00390625) }],
      ['s', { rows: 1, columns: 2, data: f64(2, 1) }],
    ]);
    // 1 + 2^-8 lies halfway between two bf16 numbers. Ties go to even, which is 1.
    expect([...logicalWeight(weight('w', [1, 1], 2, NONE, 's'), tensors, true)]).toEqual([2, 1, 6, 1]);
    expect([...logicalWeight(weight('w', [1, 1], 2, NONE, 's'), tensors, false)]).toEqual([2, 1, 6, 1.00390625]);
  });

  it('names a tensor of the wrong shape', () => {
    const tensors = new Map([['w.0', { rows: 2, columns: 2, data: f64(1, 2, 3, 4) }]]);
    expect(() => logicalWeight(weight('w', [1], 2), tensors, false)).toThrow(
      "Weight 'w' needs tensor 'w.0' as [1, 2], but it is [2, 2]",
    );
    expect(() => logicalWeight(weight('w', [1, 1], 2), new Map(), false)).toThrow(
      "needs tensor 'w.0', which was not given",
    );
  });
});

describe('loop', () => {
  const decls = {
    buffers: [buffer('ids', 'T', 1, 'i32'), buffer('h', 'T', 40, 'bf16'), buffer('ssq', 'T', 3)],
    weights: [{ ...weight('embed', [3], 40), layout: 'rows' as const }],
  };
  const embedded: Scalar = { op: 'load', buffer: 'embed', access: { kind: 'element', via: 'ids' } };
  const kernel: Kernel = {
    name: 'embed_loop',
    path: 'embed',
    anchor: 'loop',
    rows: 'T',
    ops: [],
    columns: 40,
    outputs: [
      { kind: 'store', buffer: 'h', value: embedded },
      { kind: 'rowSum', buffer: 'ssq', value: { op: 'mul', a: embedded, b: embedded } },
    ],
  };
  const table = Float64Array.from({ length: 120 }, (_, i) => (i < 80 ? 0 : 1.00390625));

  it('gathers rows and sums squares by blocks of 16 columns', () => {
    const out = interpretKernel(kernel, {
      decls,
      sizes: { T: 2, R: 0 },
      buffers: new Map([['ids', f64(2, 0)]]),
      weights: new Map([['embed', table]]),
    });
    expect(out.get('h')![0]).toBe(1.00390625);
    expect(out.get('h')![40]).toBe(0);
    expect([...out.get('ssq')!]).toEqual([16 * 1.00390625 ** 2, 16 * 1.00390625 ** 2, 8 * 1.00390625 ** 2, 0, 0, 0]);
  });

  it('rounds stores to the dtype of the buffer if asked to', () => {
    const out = interpretKernel(kernel, {
      decls,
      sizes: { T: 2, R: 0 },
      buffers: new Map([['ids', f64(2, 0)]]),
      weights: new Map([['embed', table]]),
      round: true,
    });
    expect(out.get('h')![0]).toBe(1);
  });

  it('names kernel and buffer if an index is out of range', () => {
    expect(() =>
      interpretKernel(kernel, {
        decls,
        sizes: { T: 2, R: 0 },
        buffers: new Map([['ids', f64(3, 0)]]),
        weights: new Map([['embed', table]]),
      }),
    ).toThrow("Kernel 'embed_loop' (embed): ids[0] is 3, which is not an index below 3.");
  });
});

describe('attention', () => {
  // One head of width 1, all scores equal: the result is the mean of the visible values.
  const base = {
    name: 'att',
    path: 'layers.0.attention',
    anchor: 'attention' as const,
    ops: [],
    q: 'q',
    k: 'k',
    v: 'v',
    out: 'o',
    headDim: 1,
    scale: 1,
  };
  const buffers = (n: number): BufferDecl[] => [
    buffer('q', 'T', n),
    buffer('k', 'T', 1),
    buffer('v', 'T', 1),
    buffer('end', 'T', 1, 'i32'),
    buffer('bias', 'T', 'T'),
    buffer('rows', 'R', 1, 'i32'),
  ];
  const data = new Map([
    ['q', f64(0, 0, 0, 0)],
    ['k', f64(1, 1, 1, 1)],
    ['v', f64(1, 10, 100, 1000)],
    ['end', f64(4, 2, 4, 4)],
  ]);

  it('sees only ancestors: the tree 0 → {1, 2 → 3}', () => {
    const out = interpretKernel(
      { ...base, rows: 'T', heads: 1, kvHeads: 1, mask: { kind: 'column', subtreeEnd: 'end' } },
      { decls: { buffers: [...buffers(1), buffer('o', 'T', 1)], weights: [] }, sizes: { T: 4, R: 0 }, buffers: data },
    );
    expect([...out.get('o')!]).toEqual([1, 5.5, 50.5, 1101 / 3].map((x) => expect.closeTo(x, 10)));
  });

  it('reads queries through queryRow', () => {
    const out = interpretKernel(
      { ...base, rows: 'R', queryRow: 'rows', heads: 1, kvHeads: 1, mask: { kind: 'column', subtreeEnd: 'end' } },
      {
        decls: { buffers: [...buffers(1), buffer('o', 'R', 1)], weights: [] },
        sizes: { T: 4, R: 2 },
        buffers: new Map([...data, ['rows', f64(2, 1)]]),
      },
    );
    expect([...out.get('o')!]).toEqual([50.5, 5.5]);
  });

  it('adds a materialized bias, scales scores and shares keys between heads', () => {
    const out = interpretKernel(
      { ...base, rows: 'T', heads: 2, kvHeads: 1, scale: 0.5, mask: { kind: 'bias', buffer: 'bias' } },
      {
        decls: { buffers: [...buffers(2), buffer('o', 'T', 2)], weights: [] },
        sizes: { T: 2, R: 0 },
        buffers: new Map([
          ['q', f64(2, 0, 2, 0)],
          ['k', f64(0, Math.log(3))],
          ['v', f64(0, 8)],
          ['bias', f64(0, 0, 0, -Infinity)],
        ]),
      },
    );
    // Head 0 weighs the keys 1 : 3, head 1 equally; the second query sees only the first key.
    expect([...out.get('o')!]).toEqual([expect.closeTo(6, 10), 4, 0, 0]);
  });
});

describe('logprob', () => {
  const kernels: Kernel[] = [
    {
      name: 'head',
      path: 'head',
      anchor: 'logprob',
      rows: 'R',
      ops: [],
      k: 1,
      a: 'x',
      weight: 'w',
      vocab: 344,
      target: 'target',
      parts: 'parts',
      rowScale: { op: 'rsqrt', a: { op: 'rowSum', buffer: 'ssq', via: 'rows' } },
    },
    {
      name: 'reduce',
      path: 'head',
      anchor: 'logprobReduce',
      rows: 'R',
      ops: [],
      vocab: 344,
      parts: 'parts',
      target: 'target',
      logProb: 'lp',
      isArgmax: 'am',
    },
  ];
  const module: KernelModule = {
    interface: interfaceOf([]),
    kernels,
    weights: [weight('w', [344], 1)],
    buffers: [
      buffer('x', 'R', 1),
      buffer('ssq', 'T', 2),
      buffer('rows', 'R', 1, 'i32'),
      buffer('target', 'R', 1, 'i32'),
      buffer('parts', 'R', 8),
      buffer('lp', 'R', 1),
      buffer('am', 'R', 1, 'i32'),
    ],
  };

  it('keeps max, sum, argmax and target of each block of 256, and combines them', () => {
    const w = new Float64Array(344);
    w[7] = Math.log(5);
    w[343] = Math.log(9);
    const out = interpretModule(module, {
      sizes: { T: 3, R: 2 },
      weights: new Map([['w', w]]),
      buffers: new Map([
        ['x', f64(2, 2)],
        ['ssq', f64(9, 9, 3, 1, 9, 9)],
        ['rows', f64(1, 1)],
        ['target', f64(7, 343)],
      ]),
    });
    // Row scale 1/√(3+1) and x = 2 give z = w: 342 ones, a 5 and a 9 in the exponential.
    const close = (x: number): number => expect.closeTo(x, 10) as number;
    expect([...out.get('parts')!.subarray(0, 8)]).toEqual([
      close(Math.log(5)),
      close((255 + 5) / 5),
      7,
      close(Math.log(5)),
      close(Math.log(9)),
      close((87 + 9) / 9),
      343,
      -Infinity,
    ]);
    expect([...out.get('lp')!]).toEqual([close(Math.log(5 / 356)), close(Math.log(9 / 356))]);
    expect([...out.get('am')!]).toEqual([0, 1]);
  });

  it('lets a NaN through to the result', () => {
    const out = interpretModule(module, {
      sizes: { T: 1, R: 1 },
      weights: new Map([['w', new Float64Array(344).fill(NaN, 3, 4)]]),
      buffers: new Map([
        ['x', f64(1)],
        ['ssq', f64(1, 0)],
        ['rows', f64(0)],
        ['target', f64(0)],
      ]),
    });
    expect(out.get('lp')![0]).toBeNaN();
  });
});
