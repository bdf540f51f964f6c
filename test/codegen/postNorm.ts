/**
 * Products whose rows are normed and added to a stream, h + norm(x·Wᵀ)·(1 + w), or the stream itself normed behind its
 * product, layerNorm(h + x·Wᵀ)·(1 + w): a contraction and a loop each.
 */
import type { BufferDecl, Kernel, KernelModule } from '../../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../../ir/kernel.js';
import type { RawTensor } from '../../ir/kernelInterpreter.js';
import type { Scalar } from '../../ir/scalar.js';
import { interfaceOf } from '../support/interface.js';
import { acc, add, constant, div, element, mul, rowSum, store } from './modules.js';

export interface PostNormCase {
  readonly module: KernelModule;
  readonly sizes: { readonly T: number; readonly R: number };
  readonly inputs: ReadonlyMap<string, Float64Array>;
  readonly tensors: ReadonlyMap<string, RawTensor>;
}

/** Small integers: products and their sums over k are exact in any order. */
const integers = (n: number, seed: number): Float64Array =>
  Float64Array.from({ length: n }, (_, i) => (((i * 7919 + seed * 104_729) % 1009) % 17) - 8);

/** `count` of them over the same input and stream, which is kept in 24 bits; or those of the stream. */
export function postNormModule(columns: number, k: number, count: number, ofStream = false): KernelModule {
  const parts = columns / ROW_SUM_BLOCK;
  const buffer = (name: string, dtype: BufferDecl['dtype'], width: number, upper?: string): BufferDecl => ({
    ...{ name, dtype, rows: 'T', columns: width, space: 'arena' },
    ...(upper === undefined ? {} : { upper }),
  });
  const input = (name: string, dtype: BufferDecl['dtype'], width: number): BufferDecl => ({
    ...buffer(name, dtype, width),
    space: 'input',
  });
  const rounded: Scalar = { op: 'roundF20', a: acc() };
  const product = ofStream ? add(element('h'), rounded) : rounded;
  const head = { path: 'test', rows: 'T', ops: [] } as const;
  const kernels = (i: number): Kernel[] => {
    const mean = div({ op: 'rowSum', buffer: `parts${i}` }, constant(columns));
    const normed = mul(element(`y${i}`), { op: 'rsqrt', a: add(mean, constant(1e-6)) });
    const weight: Scalar = { op: 'load', buffer: 'norm', access: { kind: 'column' } };
    const middle = mul({ op: 'rowSum', buffer: `sums${i}` }, constant(1 / columns));
    const variance: Scalar = { op: 'sub', a: mean, b: mul(middle, middle) };
    const centred = mul({ op: 'sub', a: element(`y${i}`), b: middle }, { op: 'rsqrt', a: variance });
    const sum = ofStream
      ? mul(centred, add(weight, constant(1)))
      : add(element('h'), mul(normed, add(weight, constant(1))));
    return [
      {
        ...{ ...head, name: `o${i}`, anchor: 'gemm', k, a: 'x' },
        segments: [
          {
            ...{ weight: 'w', columns, pairing: { kind: 'none' } },
            outputs: [
              store(`y${i}`, product),
              rowSum(`parts${i}`, mul(product, product)),
              ...(ofStream ? [rowSum(`sums${i}`, product)] : []),
            ],
          },
        ],
      },
      {
        ...{ ...head, name: `norm${i}`, anchor: 'loop', columns },
        outputs: [
          store(`next${i}`, { op: 'roundBf16', a: { op: 'roundF24', a: sum } }),
          store(`next_tail${i}`, { op: 'tailF24', a: sum }),
          rowSum(`next_parts${i}`, mul(sum, sum)),
        ],
      },
    ];
  };
  const each = Array.from({ length: count }, (_, i) => i);
  const buffers = [
    input('x', 'bf16', k),
    input('h', 'f32', columns),
    ...each.flatMap((i) => [
      buffer(`y${i}`, 'f32', columns),
      buffer(`parts${i}`, 'f32', parts),
      ...(ofStream ? [buffer(`sums${i}`, 'f32', parts)] : []),
      buffer(`next${i}`, 'bf16', columns),
      buffer(`next_tail${i}`, 'u8', columns, `next${i}`),
      buffer(`next_parts${i}`, 'f32', parts),
    ]),
  ];
  return {
    interface: interfaceOf(buffers),
    buffers,
    weights: [
      {
        ...{ name: 'w', layout: 'kmajor', format: 'bf16', k, pairing: { kind: 'none' } },
        sources: [{ tensor: 'w', rows: columns }],
      },
      {
        ...{ name: 'norm', layout: 'rows', format: 'bf16', k: 1, pairing: { kind: 'none' } },
        sources: [{ tensor: 'norm', rows: columns }],
      },
    ],
    kernels: each.flatMap(kernels),
  };
}

/** The module, and what it is run on. */
export function postNorm(rows: number, columns: number, k: number, count: number, ofStream = false): PostNormCase {
  return {
    module: postNormModule(columns, k, count, ofStream),
    sizes: { T: rows, R: 1 },
    inputs: new Map([
      ['x', integers(rows * k, 3)],
      ['h', integers(rows * columns, 4).map((x) => x / 7)],
    ]),
    tensors: new Map([
      ['w', { rows: columns, columns: k, data: integers(columns * k, 1) }],
      ['norm', { rows: columns, columns: 1, data: integers(columns, 2).map((x) => x / 16) }],
    ]),
  };
}
