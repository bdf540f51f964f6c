/** Batches of trees that attention is tested on, emulated and on a GPU, and what it should answer. */
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { interpretKernel } from '../../../ir/kernelInterpreter.js';
import { randomArray, randomSource } from '../harness.js';
import type { AttentionData, Shape } from './attentionHarness.js';
import { attentionModule, sizesOf } from './attentionHarness.js';

export const schedule = (skeleton: 'mma' | 'simt', queries: number): CudaAttentionSchedule => ({
  kind: 'attention',
  skeleton,
  queries,
  keys: 32,
});
export const MMA = schedule('mma', 64);
export const SIMT = schedule('simt', 16);

/** A tree as each token's parent, depth first. */
export type Tree = readonly number[];
export const chain = (length: number): number[] => Array.from({ length }, (_, i) => i - 1);
export const single: Tree = [-1];
export const star = (leaves: number): Tree => [-1, ...Array.from({ length: leaves }, () => 0)];
/** A stem with branches. */
export function branches(stem: number, lengths: readonly number[]): Tree {
  const tree = chain(stem);
  for (const length of lengths) for (let i = 0; i < length; i++) tree.push(i === 0 ? stem - 1 : tree.length - 1);
  return tree;
}
/** A stem whose branches branch again. */
export const deep: Tree = [...chain(9), 8, 9, 10, 11, 12, 11, 8, 15, 15, 17, 8, 19, 20, 20, 19];

/** The ends of subtrees of several trees in a row. Throws if a tree is not in depth-first order. */
export function ends(trees: readonly Tree[]): Float64Array {
  const all: number[] = [];
  for (const tree of trees) {
    const path: number[] = [];
    for (const [i, parent] of tree.entries()) {
      while (path.length > 0 && path.at(-1) !== parent) path.pop();
      if (path.length === 0 && i > 0) throw new Error(`token ${i} of a tree comes after its parent's subtree`);
      path.push(i);
    }
    const end = tree.map((_, i) => i + 1);
    for (let i = tree.length - 1; i > 0; i--) end[tree[i]!] = Math.max(end[tree[i]!]!, end[i]!);
    all.push(...end.map((e) => e + all.length));
  }
  return Float64Array.from(all);
}

/** Depth 1, one token, long chains over several tiles, four equal answers, branches of branches; tiles cross trees. */
export const ZOO: readonly Tree[] = [
  star(5),
  single,
  single,
  chain(101),
  branches(23, [11, 11, 11, 11]),
  deep,
  branches(40, [37, 1, 20]),
  single,
];
export const EDGES: readonly Tree[] = [chain(64), single, chain(31), branches(32, [32, 32])];

export function dataOf(s: Shape, subtreeEnd: Float64Array, seed: number, row?: readonly number[]): AttentionData {
  const T = subtreeEnd.length;
  const random = randomSource(seed);
  const make = (heads: number, scale: number): Float64Array => randomArray(random, T * heads * s.headDim, scale);
  const inputs = new Map([
    ['q', make(s.heads, 3)],
    ['k', make(s.kvHeads, 3)],
    ['v', make(s.kvHeads, 1)],
    ['subtreeEnd', subtreeEnd],
  ]);
  if (row !== undefined) inputs.set('row', Float64Array.from(row));
  return { T, inputs };
}

export function reference(s: Shape, data: AttentionData, buffers: ReadonlyMap<string, Float64Array>): Float64Array {
  const { module, kernel } = attentionModule(s);
  return interpretKernel(kernel, {
    sizes: sizesOf(data),
    buffers,
    decls: module,
  }).get('out')!;
}

/** Rounding of the weights, then of the result; both are below 1 in size here. */
export const tolerance = (s: Shape, plan: CudaAttentionSchedule): number => {
  const unit = { f32: 1e-6, f16: 2 ** -11, bf16: 2 ** -8 };
  return (plan.skeleton === 'mma' ? unit[s.dtype] : 1e-6) + unit[s.out ?? s.dtype] / 2 + 4e-6;
};

export const CASES: readonly { s: Shape; plan: CudaAttentionSchedule; trees: readonly Tree[] }[] = [
  { s: { heads: 2, kvHeads: 1, headDim: 64, dtype: 'bf16' }, plan: MMA, trees: ZOO },
  { s: { heads: 3, kvHeads: 1, headDim: 48, dtype: 'f16', out: 'f32' }, plan: MMA, trees: ZOO },
  { s: { heads: 2, kvHeads: 2, headDim: 32, dtype: 'bf16', out: 'f16' }, plan: schedule('mma', 128), trees: ZOO },
  { s: { heads: 1, kvHeads: 1, headDim: 128, dtype: 'f16' }, plan: MMA, trees: EDGES },
  { s: { heads: 1, kvHeads: 1, headDim: 256, dtype: 'f16' }, plan: schedule('mma', 32), trees: EDGES },
  { s: { heads: 1, kvHeads: 1, headDim: 80, dtype: 'f16' }, plan: schedule('mma', 16), trees: [single] },
  { s: { heads: 4, kvHeads: 2, headDim: 48, dtype: 'bf16' }, plan: SIMT, trees: ZOO },
  { s: { heads: 1, kvHeads: 1, headDim: 37, dtype: 'f32' }, plan: schedule('simt', 32), trees: EDGES },
  { s: { heads: 1, kvHeads: 1, headDim: 128, dtype: 'f16', out: 'f32' }, plan: schedule('simt', 4), trees: EDGES },
  { s: { heads: 2, kvHeads: 1, headDim: 32, dtype: 'f16', out: 'f32', cap: 3 }, plan: MMA, trees: ZOO },
  { s: { heads: 2, kvHeads: 1, headDim: 32, dtype: 'f32', cap: 3 }, plan: SIMT, trees: ZOO },
];
export const label = (s: Shape, plan: CudaAttentionSchedule): string =>
  `${plan.skeleton} of ${plan.queries} queries, ${s.heads}/${s.kvHeads} heads of ${s.headDim}` +
  `, ${s.dtype} to ${s.out ?? s.dtype}${s.cap === undefined ? '' : `, capped at ${s.cap}`}`;

/** Rows [from, to) of a dense matrix. */
export const rowsOf = (x: Float64Array, columns: number, from: number, to: number): Float64Array =>
  x.slice(from * columns, to * columns);

/** Tokens [from, to) of a batch as a batch of their own: whole trees. */
export const cut = (data: AttentionData, from: number, to: number): AttentionData => ({
  T: to - from,
  inputs: new Map(
    [...data.inputs].map(([name, x]) => {
      const part = rowsOf(x, x.length / data.T, from, to);
      return [name, name === 'subtreeEnd' ? part.map((end) => end - from) : part];
    }),
  ),
});

const IDENTICAL = 'four identical answers';
const STEM = 29;
const ANSWER = 13;
/** Batches of one kind of tree each, by name. */
export const ADVERSARIES: readonly (readonly [string, readonly Tree[]])[] = [
  ['depth 1', [star(40)]],
  ['one token', [single]],
  ['many trees of one token', Array.from({ length: 37 }, () => single)],
  ['long chains', [chain(97), chain(64), chain(130)]],
  // An answer that is the beginning of another, or empty, adds no token.
  ['empty branches', [branches(12, [0, 5, 0, 7]), branches(33, [0, 0, 0, 0]), branches(20, [0, 0, 1, 0])]],
  [IDENTICAL, [branches(STEM, [ANSWER, ANSWER, ANSWER, ANSWER])]],
];

/** Random data for a batch of ADVERSARIES. Identical answers have the same queries, keys and values. */
export function adversarialData(s: Shape, name: string, trees: readonly Tree[], seed: number): AttentionData {
  const data = dataOf(s, ends(trees), seed);
  if (name !== IDENTICAL) return data;
  for (const [input, values] of data.inputs) {
    if (input === 'subtreeEnd') continue;
    const width = values.length / data.T;
    for (let answer = 1; answer < 4; answer++)
      values.copyWithin((STEM + answer * ANSWER) * width, STEM * width, (STEM + ANSWER) * width);
  }
  return data;
}
