/** Queries and keys whose heads are normed in the epilogue of their product: what every skeleton has to sum alike. */
import {
  type BufferDecl,
  type GemmKernel,
  type KernelModule,
  type Pairing,
  ROW_SUM_BLOCK,
  type Segment,
} from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { roundAccumulators } from '../../../passes/roundAccumulators.js';
import { interfaceOf } from '../../support/interface.js';
import { acc, add, constant, mul, store } from '../modules.js';
import type { WgmmaCase } from './wgmmaKernels.js';

export interface NormedShape {
  readonly hidden: number;
  readonly headDim: number;
  readonly heads: number;
  readonly kvHeads: number;
}

/** x scaled by 1/rms of its head, then by a weight that all heads share. */
function normed(x: Scalar, headDim: number, weight: string): Scalar {
  const sum: Scalar = { op: 'groupSum', a: mul(x, x), width: headDim };
  const scale: Scalar = { op: 'rsqrt', a: add(mul(sum, constant(1 / headDim)), constant(1e-6)) };
  return mul(mul(x, scale), { op: 'load', buffer: weight, access: { kind: 'columnPeriodic', period: headDim } });
}

/**
 * Behind the norm of a row: queries normed and rotated; keys normed, too, and rotated or not, with a bias or none;
 * values.
 */
export function normedQkv(
  { hidden, headDim, heads, kvHeads }: NormedShape,
  { unrotated = false, biased = false } = {},
): WgmmaCase {
  const rms: Scalar = {
    op: 'rsqrt',
    a: add(mul({ op: 'rowSum', buffer: 'parts' }, constant(1 / hidden)), constant(1e-6)),
  };
  const table = (name: string): Scalar => ({
    op: 'load',
    buffer: name,
    access: { kind: 'periodic', period: headDim / 2 },
  });
  const turned = (x: Scalar): Scalar => add(mul(x, table('cos')), mul({ op: 'rotateHalf', a: x }, table('sin')));
  const rotate: Pairing = { kind: 'rotate', headDim, width: 8 };
  const product = mul(acc(), rms);
  const shifted = add(product, { op: 'load', buffer: 'bias', access: { kind: 'column' } });
  const key = normed(biased ? shifted : product, headDim, 'k_norm');
  const [wide, narrow] = [heads * headDim, kvHeads * headDim];
  const segment = (weight: string, columns: number, pairing: Pairing, buffer: string, value: Scalar): Segment => ({
    ...{ weight, columns, pairing },
    outputs: [store(buffer, value)],
  });
  const segments = [
    segment('w0', wide, rotate, 'q', turned(normed(product, headDim, 'q_norm'))),
    unrotated ? segment('w1', narrow, { kind: 'none' }, 'k', key) : segment('w1', narrow, rotate, 'k', turned(key)),
    segment('w2', narrow, { kind: 'none' }, 'v', product),
  ];
  const buffer = (name: string, dtype: 'f32' | 'bf16', columns: number, space: 'input' | 'output'): BufferDecl => ({
    ...{ name, dtype, rows: 'T', columns, space },
  });
  const vector = (name: string, rows: number): BufferDecl => ({ name, dtype: 'f32', rows, columns: 1, space: 'input' });
  const kernel: GemmKernel = {
    ...{ anchor: 'gemm', name: 'qkv', path: 'layers.0.qkv', rows: 'T', ops: [], k: hidden, a: 'x' },
    segments,
  };
  const module: KernelModule = roundAccumulators({
    interface: interfaceOf([]),
    buffers: [
      buffer('x', 'bf16', hidden, 'input'),
      buffer('parts', 'f32', Math.ceil(hidden / ROW_SUM_BLOCK), 'input'),
      ...['cos', 'sin'].map((name) => buffer(name, 'f32', headDim / 2, 'input')),
      ...[vector('q_norm', headDim), vector('k_norm', headDim), vector('bias', narrow)],
      buffer('q', 'bf16', wide, 'output'),
      ...['k', 'v'].map((name) => buffer(name, 'bf16', narrow, 'output')),
    ],
    weights: segments.map(({ weight, columns, pairing }) => ({
      ...{ name: weight, layout: 'kmajor', format: 'bf16', k: hidden, pairing },
      sources: [{ tensor: `${weight}Rows`, rows: columns }],
    })),
    kernels: [kernel],
  });
  return { kernel: module.kernels[0] as GemmKernel, module };
}
