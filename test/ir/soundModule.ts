/** A sound module of one layer, and modules that differ from it in one place: for tests of the verifiers. */
import type { BufferDecl, Kernel, KernelModule, Pairing, WeightDecl } from '../../ir/kernel.js';
import type { Scalar } from '../../ir/scalar.js';
import { interfaceOf } from '../support/interface.js';

export const acc: Scalar = { op: 'acc', index: 0 };
const rotate: Pairing = { kind: 'rotate', headDim: 16, width: 8 };
export const load = (buffer: string, via?: string): Scalar => ({
  op: 'load',
  buffer,
  access: { kind: 'element', ...(via === undefined ? {} : { via }) },
});
export const buffers: BufferDecl[] = [
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
export const decl = (name: string, n: number, pairing: Pairing = { kind: 'none' }): WeightDecl => ({
  name,
  layout: 'vnni',
  format: 'bf16',
  k: 64,
  pairing,
  sources: [{ tensor: name, rows: n }],
});
export const weights: WeightDecl[] = [
  { ...decl('embed', 1000), layout: 'rows' },
  decl('wq', 64, rotate),
  decl('wv', 32),
  decl('head', 1000),
];
export const embed: Kernel = {
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
export const project: Extract<Kernel, { anchor: 'gemm' }> = {
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
export const attention: Extract<Kernel, { anchor: 'attention' }> = {
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
export const head: Extract<Kernel, { anchor: 'logprob' }> = {
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
export const reduce: Kernel = {
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
export const good: KernelModule = {
  interface: interfaceOf(buffers),
  buffers,
  weights,
  kernels: [embed, project, attention, head, reduce],
};

export const withBuffer = (name: string, change: Partial<BufferDecl>): KernelModule => ({
  ...good,
  buffers: buffers.map((b) => (b.name === name ? { ...b, ...change } : b)),
});
export const withKernel = (name: string, change: Partial<Kernel>): KernelModule => ({
  ...good,
  kernels: good.kernels.map((k) => (k.name === name ? ({ ...k, ...change } as Kernel) : k)),
});
export const withWeight = (name: string, change: Partial<WeightDecl>): KernelModule => ({
  ...good,
  weights: weights.map((w) => (w.name === name ? { ...w, ...change } : w)),
});
export const valueOf = (value: Scalar): KernelModule =>
  withKernel('qv', {
    segments: project.segments.map((s, i) =>
      i === 1 ? { ...s, outputs: [{ kind: 'store' as const, buffer: 'v', value }] } : s,
    ),
  });
