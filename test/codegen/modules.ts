/** Kernel modules that the code generator is tested on: one LLaMA layer with embedding and head, and token trees. */
import { interfaceOf } from '../support/interface.js';
import type { BufferDecl, KernelModule, Output, Pairing, WeightDecl } from '../../ir/kernel.js';
import { LOGPROB_BLOCK, ROW_SUM_BLOCK } from '../../ir/kernel.js';
import type { RawTensor } from '../../ir/kernelInterpreter.js';
import type { Scalar } from '../../ir/scalar.js';
import type { DType } from '../../ir/types.js';
import { randomArray, randomSource } from './harness.js';

export const acc = (index: 0 | 1 = 0): Scalar => ({ op: 'acc', index });
export const constant = (value: number): Scalar => ({ op: 'const', value });
export const add = (a: Scalar, b: Scalar): Scalar => ({ op: 'add', a, b });
export const mul = (a: Scalar, b: Scalar): Scalar => ({ op: 'mul', a, b });
export const div = (a: Scalar, b: Scalar): Scalar => ({ op: 'div', a, b });
export const element = (buffer: string, via?: string): Scalar => ({
  op: 'load',
  buffer,
  access: via === undefined ? { kind: 'element' } : { kind: 'element', via },
});
export const store = (buffer: string, value: Scalar): Output => ({ kind: 'store', buffer, value });
const rowMax = (buffer: string, value: Scalar): Output => ({ kind: 'rowSum', by: 'max', buffer, value });
export const rowSum = (buffer: string, value: Scalar): Output => ({ kind: 'rowSum', buffer, value });

export interface LayerShape {
  readonly hidden: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly inter: number;
  readonly vocab: number;
  /** Width of pairs. */
  readonly width: number;
  /** `f32`: f32 throughout. `bf16`: bf16 panels, f32 activations. `amx`: bf16 activations and vnni weights. */
  readonly mode: 'f32' | 'bf16' | 'amx';
}

export interface LayerCase {
  readonly module: KernelModule;
  readonly tensors: ReadonlyMap<string, RawTensor>;
  readonly inputs: ReadonlyMap<string, Float64Array>;
}

/** Random trees in depth-first order: parents, depths and ends of subtrees of `total` tokens. */
export function randomTrees(
  total: number,
  seed: number,
  longest = 60,
): { subtreeEnd: Float64Array; position: Float64Array } {
  const random = randomSource(seed);
  const subtreeEnd = new Float64Array(total);
  const position = new Float64Array(total);
  let path: number[] = [];
  let left = 0;
  for (let i = 0; i < total; i++) {
    if (left === 0) {
      for (const node of path) subtreeEnd[node] = i;
      path = [];
      left = 1 + Math.floor(((random() + 1) / 2) * longest * 2);
    }
    // Now and then go back up and branch off, but never above the root.
    while (path.length > 1 && random() > 0.8) subtreeEnd[path.pop()!] = i;
    position[i] = path.length;
    path.push(i);
    left--;
  }
  for (const node of path) subtreeEnd[node] = total;
  return { subtreeEnd, position };
}

/** Embedding, rotary table, one layer and the head as the passes leave them: norms are folded and rows are pruned. */
export function layerCase(shape: LayerShape, sizes: { T: number; R: number }, seed: number): LayerCase {
  const { hidden, heads, kvHeads, headDim, inter, vocab, width, mode } = shape;
  const random = randomSource(seed);
  const store16: DType = mode === 'amx' ? 'bf16' : 'f32';
  const kv: DType = mode === 'f32' ? 'f32' : 'bf16';
  const weightDtype = mode === 'f32' ? 'f32' : 'bf16';
  const layout = mode === 'amx' ? 'vnni' : 'panels';
  const buffers: BufferDecl[] = [];
  const weights: WeightDecl[] = [];
  const tensors = new Map<string, RawTensor>();
  const inputs = new Map<string, Float64Array>();
  const buffer = (
    name: string,
    dtype: DType,
    rows: BufferDecl['rows'],
    columns: number,
    space: BufferDecl['space'] = 'arena',
  ): string => {
    buffers.push({ name, dtype, rows, columns, space });
    return name;
  };
  const weight = (name: string, rows: readonly number[], k: number, pairing: Pairing, columnScale?: string): string => {
    const sources = rows.map((n, i) => ({ tensor: `${name}.${i}`, rows: n }));
    sources.forEach(({ tensor, rows: n }) =>
      tensors.set(tensor, { rows: n, columns: k, data: randomArray(random, n * k, 2 / Math.sqrt(k)) }),
    );
    weights.push({
      name,
      layout,
      format: weightDtype,
      sources,
      k,
      pairing,
      ...(columnScale === undefined ? {} : { columnScale }),
    });
    if (columnScale !== undefined && !tensors.has(columnScale)) {
      tensors.set(columnScale, {
        rows: 1,
        columns: k,
        data: randomArray(random, k, 0.5).map((x) => Math.fround(1 + x)),
      });
    }
    return name;
  };
  const [qWidth, kvWidth] = [heads * headDim, kvHeads * headDim];
  const blocks = (columns: number): number => Math.ceil(columns / ROW_SUM_BLOCK);
  for (const name of ['tokens', 'position', 'subtreeEnd'] as const) buffer(name, 'i32', 'T', 1, 'input');
  for (const name of ['row', 'target'] as const) buffer(name, 'i32', 'R', 1, 'input');
  const below = (n: number): number => Math.min(n - 1, Math.floor(((random() + 1) / 2) * n));
  inputs.set(
    'tokens',
    Float64Array.from({ length: sizes.T }, () => below(vocab)),
  );
  const trees = randomTrees(sizes.T, seed + 1);
  inputs.set('position', trees.position);
  inputs.set('subtreeEnd', trees.subtreeEnd);
  inputs.set('row', Float64Array.from({ length: sizes.R }, () => below(sizes.T)).sort());
  inputs.set(
    'target',
    Float64Array.from({ length: sizes.R }, () => below(vocab)),
  );
  weights.push({
    name: 'embed',
    layout: 'rows',
    format: 'bf16',
    sources: [{ tensor: 'embed.0', rows: vocab }],
    k: hidden,
    pairing: { kind: 'none' },
  });
  tensors.set('embed.0', { rows: vocab, columns: hidden, data: randomArray(random, vocab * hidden, 1) });
  weights.push({
    name: 'frequency',
    layout: 'rows',
    format: 'f32',
    sources: [{ tensor: 'frequency.0', rows: 1 }],
    k: headDim,
    pairing: { kind: 'none' },
  });
  tensors.set('frequency.0', {
    rows: 1,
    columns: headDim,
    data: Float64Array.from({ length: headDim }, (_, i) =>
      Math.fround(10000 ** (-(i % (headDim / 2)) / (headDim / 2))),
    ),
  });
  buffer('cos', 'f32', 'T', headDim);
  buffer('sin', 'f32', 'T', headDim);
  buffer('h0', store16, 'T', hidden);
  buffer('ssq0', 'f32', 'T', blocks(hidden));
  buffer('q', kv, 'T', qWidth);
  buffer('k', kv, 'T', kvWidth);
  buffer('v', kv, 'T', kvWidth);
  buffer('attended', store16, 'R', qWidth);
  buffer('h1', store16, 'R', hidden);
  buffer('ssq1', 'f32', 'R', blocks(hidden));
  buffer('gated', store16, 'R', inter);
  buffer('h2', store16, 'R', hidden);
  buffer('ssq2', 'f32', 'R', blocks(hidden));
  buffer('parts', 'f32', 'R', 4 * Math.ceil(vocab / LOGPROB_BLOCK));
  buffer('logProb', 'f32', 'R', 1, 'output');
  buffer('isArgmax', 'i32', 'R', 1, 'output');
  const none: Pairing = { kind: 'none' };
  const rotate: Pairing = { kind: 'rotate', headDim, width };
  const interleave: Pairing = { kind: 'interleave', width };
  weight('wq', [qWidth], hidden, rotate, 'norm0');
  weight('wk', [kvWidth], hidden, rotate, 'norm0');
  weight('wv', [kvWidth], hidden, none, 'norm0');
  weight('wo', [hidden], qWidth, none);
  weight('wgu', [inter, inter], hidden, interleave, 'norm1');
  weight('wd', [hidden], inter, none);
  weight('head', [vocab], hidden, none, 'norm2');
  const scale = (ssq: string): Scalar => ({
    op: 'rsqrt',
    a: add(constant(1e-5), div({ op: 'rowSum', buffer: ssq }, constant(hidden))),
  });
  const normed = (index: 0 | 1, ssq: string): Scalar => mul(acc(index), scale(ssq));
  const periodic = (name: string): Scalar => ({
    op: 'load',
    buffer: name,
    access: { kind: 'periodic', period: headDim },
  });
  const rotated = add(
    mul(normed(0, 'ssq0'), periodic('cos')),
    mul({ op: 'rotateHalf', a: normed(0, 'ssq0') }, periodic('sin')),
  );
  const gate = normed(0, 'ssq1');
  const silu = div(gate, add(constant(1), { op: 'exp', a: { op: 'neg', a: gate } }));
  const residual = (from: string, via?: string): Scalar => add(acc(), element(from, via));
  const angle = mul(
    { op: 'toF32', a: { op: 'load', buffer: 'position', access: { kind: 'row' } } },
    { op: 'load', buffer: 'frequency', access: { kind: 'column' } },
  );
  const embedded = element('embed', 'tokens');
  const kernelBase = (name: string): { name: string; path: string; ops: string[] } => ({
    name,
    path: `layers.0.${name}`,
    ops: [],
  });
  const module: KernelModule = {
    interface: interfaceOf(buffers),
    buffers,
    weights,
    kernels: [
      {
        ...kernelBase('rotary'),
        anchor: 'loop',
        rows: 'T',
        columns: headDim,
        outputs: [store('cos', { op: 'cos', a: angle }), store('sin', { op: 'sin', a: angle })],
      },
      {
        ...kernelBase('embed_tokens'),
        anchor: 'loop',
        rows: 'T',
        columns: hidden,
        outputs: [store('h0', embedded), rowSum('ssq0', mul(embedded, embedded))],
      },
      {
        ...kernelBase('qkv'),
        anchor: 'gemm',
        rows: 'T',
        k: hidden,
        a: 'h0',
        segments: [
          { weight: 'wq', columns: qWidth, pairing: rotate, outputs: [store('q', rotated)] },
          { weight: 'wk', columns: kvWidth, pairing: rotate, outputs: [store('k', rotated)] },
          { weight: 'wv', columns: kvWidth, pairing: none, outputs: [store('v', normed(0, 'ssq0'))] },
        ],
      },
      {
        ...kernelBase('attention'),
        anchor: 'attention',
        rows: 'R',
        q: 'q',
        k: 'k',
        v: 'v',
        out: 'attended',
        heads,
        kvHeads,
        headDim,
        scale: 1 / Math.sqrt(headDim),
        mask: { kind: 'column', subtreeEnd: 'subtreeEnd' },
        queryRow: 'row',
      },
      {
        ...kernelBase('o'),
        anchor: 'gemm',
        rows: 'R',
        k: qWidth,
        a: 'attended',
        segments: [
          {
            weight: 'wo',
            columns: hidden,
            pairing: none,
            outputs: [
              store('h1', residual('h0', 'row')),
              rowSum('ssq1', mul(residual('h0', 'row'), residual('h0', 'row'))),
            ],
          },
        ],
      },
      {
        ...kernelBase('gate_up'),
        anchor: 'gemm',
        rows: 'R',
        k: hidden,
        a: 'h1',
        segments: [
          {
            weight: 'wgu',
            columns: inter,
            pairing: interleave,
            outputs: [store('gated', mul(silu, normed(1, 'ssq1')))],
          },
        ],
      },
      {
        ...kernelBase('down'),
        anchor: 'gemm',
        rows: 'R',
        k: inter,
        a: 'gated',
        segments: [
          {
            weight: 'wd',
            columns: hidden,
            pairing: none,
            outputs: [store('h2', residual('h1')), rowSum('ssq2', mul(residual('h1'), residual('h1')))],
          },
        ],
      },
      {
        ...kernelBase('head_logprob'),
        anchor: 'logprob',
        rows: 'R',
        k: hidden,
        a: 'h2',
        weight: 'head',
        vocab,
        rowScale: scale('ssq2'),
        target: 'target',
        parts: 'parts',
      },
      {
        ...kernelBase('reduce'),
        anchor: 'logprobReduce',
        rows: 'R',
        vocab,
        parts: 'parts',
        target: 'target',
        logProb: 'logProb',
        isArgmax: 'isArgmax',
      },
    ],
  };
  return { module, tensors, inputs };
}

/** A loop that finds the largest of blocks, rows and heads, with negative numbers and some NaN. */
export function largestLoop(random: () => number) {
  const [T, columns] = [40, 96];
  const buffer = (name: string, count: number, space: BufferDecl['space'] = 'arena'): BufferDecl => ({
    ...{ name, dtype: 'f32', rows: 'T', columns: count, space },
  });
  return {
    ...{ T, columns },
    buffers: [
      buffer('x', columns, 'input'),
      buffer('parts', 6, 'input'),
      buffer('most_parts', 6),
      buffer('most', 1),
      buffer('row', columns),
      buffer('head', columns),
    ],
    inputs: new Map([
      ['x', randomArray(random, T * columns).map((x, i) => (i % 97 === 5 ? NaN : x - 2))],
      ['parts', randomArray(random, T * 6).map((x, i) => (i === 100 ? NaN : x - 2))],
    ]),
    outputs: [
      rowMax('most_parts', element('x')),
      rowMax('most', element('x')),
      store('row', { op: 'rowSum', by: 'max', buffer: 'parts' }),
      store('head', { op: 'segmentSum', by: 'max', buffer: 'parts', width: 48, parts: 3 }),
    ],
  };
}

/** A loop that finds the largest and the sum of rows of whole numbers, stores twice the rows, and goes on with all. */
export function finishedLoop(random: () => number, columns: number) {
  const T = 11;
  const buffer = (name: string, dtype: BufferDecl['dtype'], count: number, isInput = false): BufferDecl => ({
    ...{ name, dtype, rows: 'T', columns: count, space: isInput ? 'input' : 'arena' },
  });
  const parts = columns / ROW_SUM_BLOCK;
  const twice = mul(element('x'), constant(2));
  const sum: Scalar = { op: 'rowSum', buffer: 'sum_parts' };
  const largest: Scalar = { op: 'rowSum', by: 'max', buffer: 'most' };
  return {
    ...{ T, columns },
    buffers: [
      buffer('x', 'f32', columns, true),
      buffer('y', 'f32', columns, true),
      buffer('most', 'f32', 1),
      buffer('sum_parts', 'f32', parts),
      buffer('twice', 'bf16', columns),
      buffer('codes', 'e4m3', columns),
      buffer('all', 'f32', columns),
    ],
    inputs: new Map(['x', 'y'].map((name) => [name, randomArray(random, T * columns).map((x) => Math.round(x * 99))])),
    outputs: [rowMax('most', element('x')), rowSum('sum_parts', element('x')), store('twice', twice)],
    finish: [
      store('codes', mul(element('x'), div(constant(256), largest))),
      store('all', add(add(element('twice'), element('y')), sum)),
    ],
  };
}
