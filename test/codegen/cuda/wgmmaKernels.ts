/** Contractions of a LLaMA layer as kernels for tensor cores: what the wgmma skeleton is tested on. */
import type { GroupSize } from '../../../ir/groups.js';
import {
  type BufferDecl,
  type GemmKernel,
  type KernelModule,
  LOGPROB_BLOCK,
  type LogProbKernel,
  type Output,
  type Pairing,
  ROW_SUM_BLOCK,
  type WeightDecl,
} from '../../../ir/kernel.js';
import { mapScalar, type Scalar, withOrigin } from '../../../ir/scalar.js';
import { roundAccumulators } from '../../../passes/roundAccumulators.js';
import { interfaceOf } from '../../support/interface.js';
import { acc, add, constant, div, element, mul, rowSum, store } from '../modules.js';

export type LayerGemm = 'qkv' | 'o' | 'gateUp' | 'down';

export interface WgmmaCase {
  readonly kernel: GemmKernel;
  readonly module: KernelModule;
}

export interface HeadCase {
  readonly kernel: LogProbKernel;
  readonly module: KernelModule;
}

/** What a graph calls the value. */
const named = (name: string, s: Scalar): Scalar => withOrigin(s, name);

const periodic = (buffer: string, period: number): Scalar => ({
  op: 'load',
  buffer,
  access: { kind: 'periodic', period },
});

/** One contraction of a layer with its whole epilogue. */
export function layerGemm(
  which: LayerGemm,
  hidden: number,
  inter: number,
  headDim = 128,
  half: 'bf16' | 'f16' = 'bf16',
): WgmmaCase {
  const k = which === 'down' ? inter : hidden;
  const rms = named('rms_scale', {
    op: 'rsqrt',
    a: add(div({ op: 'rowSum', buffer: 'parts' }, constant(hidden)), constant(1e-6)),
  });
  const q = named('product', mul(acc(), rms));
  const [gate, up] = [named('gate', mul(acc(0), rms)), named('up', mul(acc(1), rms))];
  const rope = named(
    'rotated',
    add(mul(q, periodic('cos', headDim)), mul({ op: 'rotateHalf', a: q }, periodic('sin', headDim))),
  );
  const silu = named('silu', div(gate, add(constant(1), { op: 'exp', a: { op: 'neg', a: gate } })));
  const swiglu = named('activated', mul(silu, up));
  // The residual stream: 24 bits where halves are bf16 (splitResidualStream), else f32.
  const isSplit = half === 'bf16';
  const sum = named(
    'stream',
    add(
      isSplit ? { op: 'joinF24', a: element('streamHalf'), b: element('streamTail') } : element('stream'),
      named('product', acc()),
    ),
  );
  const rotate: Pairing = { kind: 'rotate', headDim, width: 8 };
  const stream: Output[] = [
    ...(isSplit
      ? [
          store('nextTail', { op: 'tailF24', a: sum }),
          store('nextHalf', { op: 'roundBf16', a: { op: 'roundF24', a: sum } }),
        ]
      : [store('next', sum), store('nextHalf', sum)]),
    rowSum('nextParts', named('square', mul(sum, sum))),
  ];
  const segments: readonly (readonly [number, Pairing, readonly Output[]])[] =
    which === 'qkv'
      ? [
          [hidden, rotate, [store('q', rope)]],
          [hidden, rotate, [store('k', rope)]],
          [hidden, { kind: 'none' }, [store('v', q)]],
        ]
      : which === 'gateUp'
        ? [[inter, { kind: 'interleave', width: 8 }, [store('gated', swiglu)]]]
        : [[hidden, { kind: 'none' }, stream]];
  const buffer = (name: string, dtype: 'f32' | 'bf16' | 'f16', columns: number): BufferDecl => ({
    name,
    dtype,
    rows: 'T',
    columns,
    space: 'arena',
  });
  const tail = (name: string, upper: string): BufferDecl => ({
    name,
    dtype: 'u8',
    rows: 'T',
    columns: hidden,
    space: 'arena',
    upper,
  });
  const parts = Math.ceil(hidden / ROW_SUM_BLOCK);
  const kernel: GemmKernel = {
    anchor: 'gemm',
    name: which.toLowerCase(),
    path: `layers.0.${which}`,
    rows: 'T',
    ops: [],
    k,
    a: 'x',
    segments: segments.map(([columns, pairing, outputs], i) => ({ weight: `w${i}`, columns, pairing, outputs })),
  };
  const module: KernelModule = roundAccumulators({
    interface: interfaceOf([]),
    buffers: [
      buffer('x', half, k),
      ...(isSplit
        ? [buffer('streamHalf', half, hidden), tail('streamTail', 'streamHalf'), tail('nextTail', 'nextHalf')]
        : [buffer('stream', 'f32', hidden), buffer('next', 'f32', hidden)]),
      buffer('nextHalf', half, hidden),
      buffer('q', half, hidden),
      buffer('k', half, hidden),
      buffer('v', half, hidden),
      buffer('gated', half, inter),
      buffer('parts', 'f32', parts),
      buffer('nextParts', 'f32', parts),
      buffer('cos', 'f32', headDim),
      buffer('sin', 'f32', headDim),
    ],
    weights: kernel.segments.map(({ weight, columns, pairing }) => ({
      name: weight,
      layout: 'kmajor',
      format: half,
      k,
      pairing,
      sources: (pairing.kind === 'interleave' ? ['a', 'b'] : ['a']).map((tensor) => ({ tensor, rows: columns })),
    })),
    kernels: [kernel],
  });
  return { kernel: module.kernels[0] as GemmKernel, module };
}

/**
 * The same of codes in E4M3: products are multiplied by scales of the weight's rows and, where rows are scaled, by a
 * number of their own. What 16 bits held is stored as before.
 */
export function inE4m3({ kernel, module }: WgmmaCase, hasRowScales = false): WgmmaCase {
  const rowScale: Scalar = { op: 'rowSum', by: 'max', buffer: 'rowScales' };
  const scaled = (name: string): Output[] => {
    const at = kernel.segments.findIndex(({ weight }) => weight === name);
    return kernel.segments[at]!.outputs.map((output) => ({
      ...output,
      value: mapScalar(output.value, (s) =>
        s.op === 'roundF20'
          ? mul(hasRowScales ? mul(s, rowScale) : s, {
              op: 'load',
              buffer: `${name}_scales${s.a.op === 'acc' && s.a.index === 1 ? '1' : ''}`,
              access: { kind: 'column' },
            })
          : s,
      ),
    }));
  };
  const scales = module.weights.flatMap(({ name, sources }) =>
    sources.map((source, i) => ({ name: `${name}_scales${i === 0 ? '' : i}`, source })),
  );
  const own: GemmKernel = {
    ...kernel,
    segments: kernel.segments.map((segment) => ({ ...segment, outputs: scaled(segment.weight) })),
  };
  return {
    kernel: own,
    module: {
      ...module,
      buffers: [
        ...module.buffers.map((buffer) => (buffer.name === 'x' ? { ...buffer, dtype: 'e4m3' as const } : buffer)),
        ...(hasRowScales
          ? [{ name: 'rowScales', dtype: 'f32', rows: 'T', columns: 1, space: 'arena' } satisfies BufferDecl]
          : []),
        ...scales.map(({ name, source }): BufferDecl => ({
          ...{ name, dtype: 'f32', rows: source.rows, columns: 1, space: 'weight' },
        })),
      ],
      weights: [
        ...module.weights.map((weight) => ({ ...weight, format: 'e4m3' as const })),
        ...scales.map(({ name, source }): WeightDecl => ({
          ...{ name, layout: 'rows', format: 'f32', k: 1, pairing: { kind: 'none' }, sources: [source] },
          scalesOf: { format: 'e4m3', k: kernel.k },
        })),
      ],
      kernels: [own],
    },
  };
}

/** The same with its weights in groups of 4 bits. */
export const inGroups = ({ kernel, module }: WgmmaCase, group: GroupSize): WgmmaCase => ({
  kernel,
  module: {
    ...module,
    weights: module.weights.map((weight) => ({ ...weight, layout: 'groups', format: 'u4', group }) as const),
  },
});

/** The vocabulary contraction behind a norm. */
export function headKernel(hidden: number, vocab: number, half: 'bf16' | 'f16' = 'bf16'): HeadCase {
  const buffer = (name: string, dtype: BufferDecl['dtype'], columns: number): BufferDecl => ({
    name,
    dtype,
    rows: 'R',
    columns,
    space: 'arena',
  });
  const rms: Scalar = {
    op: 'rsqrt',
    a: add(div({ op: 'rowSum', buffer: 'squares' }, constant(hidden)), constant(1e-6)),
  };
  const kernel: LogProbKernel = {
    anchor: 'logprob',
    name: 'head',
    path: 'head',
    rows: 'R',
    ops: [],
    k: hidden,
    a: 'x',
    weight: 'w0',
    vocab,
    rowScale: rms,
    target: 'target',
    parts: 'parts',
  };
  const module: KernelModule = {
    interface: interfaceOf([]),
    buffers: [
      buffer('x', half, hidden),
      buffer('squares', 'f32', Math.ceil(hidden / ROW_SUM_BLOCK)),
      buffer('target', 'i32', 1),
      buffer('parts', 'f32', 4 * Math.ceil(vocab / LOGPROB_BLOCK)),
    ],
    weights: [
      {
        name: 'w0',
        layout: 'kmajor',
        format: half,
        k: hidden,
        pairing: { kind: 'none' },
        sources: [{ tensor: 'a', rows: vocab }],
      },
    ],
    kernels: [kernel],
  };
  return { kernel, module };
}
