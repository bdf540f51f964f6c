/** Synthetic micro-batches for measuring: trees of a bucket's shape, and numbers that kernels can process. */
import { extentIn } from '../ir/extents.js';
import type { BufferDecl, Kernel, KernelModule, SampleKernel } from '../ir/kernel.js';
import { hasOwnKeys, outputsOf, scaleBuffers } from '../ir/kernelAccess.js';
import type { Bucket } from '../ir/plan.js';
import { SAMPLE_INPUT_NAMES, SAMPLE_INPUTS } from '../ir/sampleInputs.js';
import { operands, readOf, type Scalar } from '../ir/scalar.js';
import { listPaths, type PathLists, rowsIn, tokensIn } from '../ir/scoring.js';
import type { ExtentName } from '../ir/types.js';
import { PAGE_ROWS, pathRows, pathShape, type PathShape, pathTokens } from './work.js';

/** Marsaglia's xorshift32: the same numbers on every machine. `below(n)` is in [0, n). */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0 || 1;
  }

  below(n: number): number {
    this.state ^= this.state << 13;
    this.state ^= this.state >>> 17;
    this.state ^= this.state << 5;
    return (this.state >>> 0) % n;
  }
}

/** Trees in depth-first order that fill a bucket: arrays as a micro-batch has them. */
export interface TreeBatch extends PathLists {
  readonly position: Int32Array;
  readonly subtreeEnd: Int32Array;
  /** Scored tokens, ascending. */
  readonly row: Int32Array;
}

/** Answers per question, and their share of the longest path, typical of multiple-choice benchmarks. */
const ANSWERS = 4;
const ANSWER_SHARE = 0.4;

/**
 * Questions with four answers each, with paths of `bucket.longest` tokens, until the tokens are used up. The last tree
 * is cut. Rows are spread evenly over the tokens.
 */
export function bucketTrees(bucket: Bucket): TreeBatch {
  const position = new Int32Array(tokensIn(bucket)),
    subtreeEnd = new Int32Array(tokensIn(bucket));
  const answer = Math.floor(bucket.longest * ANSWER_SHARE);
  const context = bucket.longest - answer;
  for (let start = 0; start < tokensIn(bucket);) {
    const end = Math.min(tokensIn(bucket), start + context + ANSWERS * answer);
    for (let i = start; i < end; i++) {
      const inAnswers = i - start - context;
      if (inAnswers < 0) {
        position[i] = i - start;
        subtreeEnd[i] = end;
      } else {
        position[i] = context + (inAnswers % answer);
        subtreeEnd[i] = Math.min(end, start + context + (Math.floor(inAnswers / answer) + 1) * answer);
      }
    }
    start = end;
  }
  const row = Int32Array.from({ length: rowsIn(bucket) }, (_, i) =>
    Math.min(tokensIn(bucket) - 1, Math.floor((i * tokensIn(bucket)) / rowsIn(bucket))),
  );
  return { position, subtreeEnd, row, ...listPaths(position) };
}

/** What an integer buffer means to the kernel that reads it. */
export type IntegerRole =
  | { readonly kind: 'subtreeEnd' }
  /** Token rows, ascending. */
  | { readonly kind: 'row' }
  | { readonly kind: 'position' }
  /** The token before each on its path, or its own row. */
  | { readonly kind: 'before' }
  /** Where the path of each token begins in the list of keys, and the list: rows of tokens. */
  | { readonly kind: 'begin' }
  | { readonly kind: 'key' }
  /** Where the path of each new token begins in a list of rows of a cache, and its position on the path. */
  | { readonly kind: 'cacheBegin' }
  | { readonly kind: 'cachePosition' }
  /** The list of rows of a cache: of each path, pages. */
  | { readonly kind: 'cacheKey'; readonly rows: number }
  /** Different rows of a state. */
  | { readonly kind: 'slot'; readonly rows: number }
  /** Where parts of the kernel's rows begin, of a row that goes to any of them alike. */
  | { readonly kind: 'starts'; readonly of: ExtentName }
  /** Anything in [0, bound): token ids, targets. */
  | { readonly kind: 'below'; readonly bound: number };

export interface BufferRoles {
  readonly integers: ReadonlyMap<string, IntegerRole>;
  /** Buffers of partial sums of squares. A square root follows, so their values must be positive. */
  readonly positive: ReadonlySet<string>;
}

function scalarsOf(kernel: Kernel): readonly Scalar[] {
  switch (kernel.anchor) {
    case 'gemm':
    case 'loop':
      return outputsOf(kernel).map((o) => o.value);
    case 'logprob':
      return [kernel.rowScale];
    case 'attention':
    case 'logprobReduce':
    case 'sample':
    case 'route':
    case 'sortByExpert':
    case 'shrink':
    case 'links':
    case 'scan':
      return [];
    default:
      return kernel satisfies never;
  }
}

/** Rows whose draws leave nothing out, by lists without entries and without masks. */
function sampleRoles(
  { inputs, best, vocab, totals }: SampleKernel,
  to: { readonly give: (name: string, role: IntegerRole) => void; readonly positive: Set<string> },
): void {
  const { pathToken, pathRow, entryToken, inverseTemperature, topP, repetition, maskRow } = inputs;
  for (const name of [inverseTemperature, topP, repetition, totals.sum]) to.positive.add(name);
  for (const name of [pathToken, entryToken]) to.give(name, { kind: 'below', bound: vocab });
  to.give(pathRow, { kind: 'row' });
  // No row has a mask.
  to.give(maskRow, { kind: 'slot', rows: 0 });
  for (const name of SAMPLE_INPUT_NAMES)
    if (SAMPLE_INPUTS[name].dtype === 'i32') to.give(inputs[name], { kind: 'below', bound: 1 });
  to.give(best.count, { kind: 'below', bound: 1 });
}

/** How a kernel uses the integers and sums it reads. `tableRows` bounds indices into tables of fixed extent. */
export function rolesOf(
  kernel: Kernel,
  module: KernelModule,
  tableRows: (buffer: string) => number | undefined,
): BufferRoles {
  const integers = new Map<string, IntegerRole>();
  const positive = new Set<string>();
  const give = (name: string, role: IntegerRole): void => {
    if (!integers.has(name)) integers.set(name, role);
  };
  if (kernel.anchor === 'attention') {
    const { mask } = kernel;
    if (mask.kind === 'column') {
      give(mask.subtreeEnd, { kind: 'subtreeEnd' });
      if (mask.position !== undefined) give(mask.position, { kind: 'position' });
    }
    if (mask.kind === 'path') {
      const isOwn = hasOwnKeys(kernel, module);
      give(mask.begin, { kind: isOwn ? 'begin' : 'cacheBegin' });
      give(mask.position, { kind: isOwn ? 'position' : 'cachePosition' });
      give(mask.key, isOwn ? { kind: 'key' } : { kind: 'cacheKey', rows: tableRows(kernel.k) ?? 1 });
    }
    if (kernel.queryRow !== undefined) give(kernel.queryRow, { kind: 'row' });
    for (const name of scaleBuffers(kernel)) positive.add(name);
  }
  if (kernel.anchor === 'logprob' || kernel.anchor === 'logprobReduce')
    give(kernel.target, { kind: 'below', bound: kernel.vocab });
  if (kernel.anchor === 'logprob' && kernel.draw !== undefined) {
    positive.add(kernel.draw.inverseTemperature);
    for (const half of [kernel.draw.low, kernel.draw.high]) give(half, { kind: 'position' });
  }
  if (kernel.anchor === 'logprobReduce') positive.add(kernel.parts);
  if (kernel.anchor === 'gemm' && kernel.experts !== undefined)
    give(kernel.experts.starts, { kind: 'starts', of: kernel.rows });
  // All rows have the adapter of the first slot, the only one with numbers.
  const adapters = kernel.anchor === 'shrink' ? kernel : kernel.anchor === 'gemm' ? kernel.adapter : undefined;
  if (adapters !== undefined) give(adapters.slot, { kind: 'below', bound: 1 });
  if (kernel.anchor === 'sortByExpert') give(kernel.experts, { kind: 'below', bound: kernel.count });
  if (kernel.anchor === 'links') {
    const { paths } = kernel;
    if (paths.kind === 'column') give(paths.subtreeEnd, { kind: 'subtreeEnd' });
    else {
      give(paths.begin, { kind: 'begin' });
      give(paths.position, { kind: 'position' });
      give(paths.key, { kind: 'key' });
    }
  }
  if (kernel.anchor === 'scan') {
    give(kernel.before, { kind: 'before' });
    give(kernel.end, { kind: 'subtreeEnd' });
    if (kernel.kept !== undefined) {
      const { state, from, to } = kernel.kept;
      const rows = tableRows(state) ?? 1;
      give(from, { kind: 'below', bound: rows });
      to.forEach((name, i) => give(name, { kind: 'slot', rows: i === 0 ? rows : 0 }));
    }
  }
  if (kernel.anchor === 'sample') sampleRoles(kernel, { give, positive });
  const dtypes = new Map(module.buffers.map((b) => [b.name, b.dtype]));
  for (const output of outputsOf(kernel)) {
    if (output.kind === 'store' && output.via !== undefined)
      give(output.via, { kind: 'slot', rows: tableRows(output.buffer) ?? 1 });
  }
  const plain = new Set<string>();
  const index = (via: string, into: string): void => {
    const bound = tableRows(into);
    give(via, bound === undefined ? { kind: 'row' } : { kind: 'below', bound });
  };
  const visit = (s: Scalar): void => {
    operands(s).forEach(visit);
    const read = readOf(s);
    if (read === undefined) return;
    if (s.op === 'rowSum' || s.op === 'segmentSum') positive.add(read.buffer);
    else if (dtypes.get(read.buffer) === 'i32') plain.add(read.buffer);
    if (read.via !== undefined) index(read.via, read.buffer);
  };
  scalarsOf(kernel).forEach(visit);
  for (const name of plain) give(name, { kind: 'position' });
  return { integers, positive };
}

/**
 * The list of keys: paths of `length` rows one behind another, each of whole pages, which begin at multiples of 16. No
 * page is taken twice while there are others. Prompts take the pages that follow each other. Texts that grow side by
 * side take one at a time, so theirs come in any order.
 */
function pathKeys({ length, fresh, paths }: PathShape, rows: number, count: number, random: Random): Int32Array {
  const pages = Int32Array.from({ length: Math.max(1, Math.floor(rows / PAGE_ROWS)) }, (_, i) => i);
  const isGrowing = fresh === 1;
  for (let i = pages.length - 1; isGrowing && i > 0; i--) {
    const j = random.below(i + 1);
    [pages[i], pages[j]] = [pages[j]!, pages[i]!];
  }
  const keys = new Int32Array(count);
  for (let i = 0, taken = 0; i < Math.min(count, paths * length); i++) {
    const at = (i % length) % PAGE_ROWS;
    if (at === 0) taken++;
    keys[i] = Math.min(rows - 1, pages[(taken - 1) % pages.length]! * PAGE_ROWS + at);
  }
  return keys;
}

/** Values of an integer buffer with `count` entries, for a call of this size. Entries beyond its trees are 0. */
export function integersFor(role: IntegerRole, bucket: Bucket, count: number, seed: number): Int32Array {
  const values = new Int32Array(count);
  switch (role.kind) {
    case 'subtreeEnd':
    case 'position':
    case 'row':
    case 'begin':
    case 'key':
      values.set(bucketTrees(bucket)[role.kind].subarray(0, count));
      break;
    case 'before': {
      const { begin, position, key } = bucketTrees(bucket);
      for (let i = 0; i < count; i++) values[i] = position[i] === 0 ? i : key[begin[i]! + position[i]! - 1]!;
      break;
    }
    case 'cacheBegin':
      values.set(pathTokens(pathShape(bucket), count).begin);
      break;
    case 'cachePosition':
      values.set(pathTokens(pathShape(bucket), count).position);
      break;
    case 'cacheKey':
      values.set(pathKeys(pathShape(bucket), role.rows, count, new Random(seed)));
      break;
    case 'slot':
      for (let i = 0; i < count; i++) values[i] = i < role.rows ? i : -1;
      break;
    case 'starts': {
      const random = new Random(seed);
      for (let i = extentIn(role.of, bucket.extents); i > 0; i--) values[1 + random.below(Math.max(1, count - 1))]!++;
      for (let i = 1; i < count; i++) values[i]! += values[i - 1]!;
      break;
    }
    case 'below': {
      const random = new Random(seed);
      for (let i = 0; i < count; i++) values[i] = random.below(role.bound);
      break;
    }
    default:
      role satisfies never;
  }
  return values;
}

/** Rows of a materialized bias: 0 where token q sees token k, −∞ elsewhere. f32[tokens, stride]. */
export function biasFor(trees: TreeBatch, stride: number): Float32Array {
  const tokens = trees.subtreeEnd.length;
  const bias = new Float32Array(tokens * stride).fill(-Infinity);
  for (let q = 0; q < tokens; q++) for (let k = 0; k <= q; k++) if (q < trees.subtreeEnd[k]!) bias[q * stride + k] = 0;
  return bias;
}

/**
 * Rows of `buffer` that a launch on random inputs writes, from the first on. Slots count up from 0 (integersFor), so of
 * a state those are as many as the kernel has rows.
 */
export function resultRows(kernel: Kernel, buffer: Pick<BufferDecl, 'name' | 'rows'>, { extents }: Bucket): number {
  const rows = extentIn(buffer.rows, extents);
  return isScattered(kernel, buffer.name) ? Math.min(rows, extentIn(kernel.rows, extents)) : rows;
}

/**
 * Rows that a launch on random inputs needs of a buffer with `rows` rows in every call: of a state those that it writes
 * or that its paths lie in.
 */
export function stateRows(kernel: Kernel, module: KernelModule, name: string, rows: number, bucket: Bucket): number {
  const isRead = kernel.anchor === 'attention' && kernel.mask.kind === 'path' && !hasOwnKeys(kernel, module);
  if (isRead && (name === kernel.k || name === kernel.v))
    return Math.min(rows, Math.max(1, pathRows(pathShape(bucket))));
  return isScattered(kernel, name) ? Math.min(rows, Math.max(1, extentIn(kernel.rows, bucket.extents))) : rows;
}

const isScattered = (kernel: Kernel, name: string): boolean =>
  outputsOf(kernel).some((output) => output.kind === 'store' && output.via !== undefined && output.buffer === name);
