/** Calls of attention over paths, emulated and on a GPU: pieces of sequences whose keys lie anywhere in the cache. */
import { randomArray, randomSource } from '../harness.js';
import { CACHE_ROWS, type AttentionData, type Shape } from './attentionHarness.js';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { roundToDType } from '../../../ir/round.js';
import { listPaths } from '../../../ir/scoring.js';

/** Tokens [from, to) of a sequence, which a call adds. */
export interface Piece {
  readonly sequence: number;
  readonly from: number;
  readonly to: number;
}

export const pathSchedule = (skeleton: 'mma' | 'simt', queries: number): CudaAttentionSchedule => ({
  kind: 'attention',
  skeleton,
  queries,
  keys: 32,
});

interface Sequence {
  readonly q: Float64Array;
  readonly k: Float64Array;
  readonly v: Float64Array;
}

/** Keys and values as a shape's kernels read them: numbers, or codes with the scale of each head. */
function keysAndValues(s: Shape, k: Float64Array, v: Float64Array): readonly (readonly [string, Float64Array])[] {
  const { scaled: format } = s;
  if (format === undefined)
    return [
      ['k', k],
      ['v', v],
    ];
  const scaled = (
    [
      ['k', k],
      ['v', v],
    ] as const
  ).map(([name, values]) => {
    const scales = Float64Array.from({ length: values.length / s.headDim }, (_, head) => {
      const squares = values.subarray(head * s.headDim, (head + 1) * s.headDim).map((x) => x * x);
      return format === 'i8'
        ? Math.fround(Math.sqrt(Math.max(...squares)) / 127 + 1e-30)
        : Math.fround(Math.sqrt(squares.reduce((a, b) => a + b, 0) / s.headDim + 1e-30) / 16);
    });
    const codes = values.map((x, i) => roundToDType(x / scales[Math.floor(i / s.headDim)]!, format));
    return [[name, codes] as const, [`${name}Scale`, scales] as const];
  });
  return scaled.flat();
}

/** Sequences with random queries, keys and values for each position. */
export class PathWorld {
  readonly shape: Shape;
  readonly lengths: readonly number[];
  readonly sequences: readonly Sequence[];
  private readonly seed: number;

  constructor(shape: Shape, lengths: readonly number[], seed: number) {
    this.shape = { ...shape, mask: 'path' };
    this.lengths = lengths;
    this.seed = seed;
    const random = randomSource(seed);
    this.sequences = lengths.map((length) => ({
      q: randomArray(random, length * shape.heads * shape.headDim, 3),
      k: randomArray(random, length * shape.kvHeads * shape.headDim, 3),
      v: randomArray(random, length * shape.kvHeads * shape.headDim, 1),
    }));
  }

  private get cacheRows(): number {
    return this.shape.cacheRows ?? CACHE_ROWS;
  }

  /** Whole sequences, one after another. */
  get whole(): readonly Piece[] {
    return this.lengths.map((to, sequence) => ({ sequence, from: 0, to }));
  }

  /**
   * The inputs of a call. `placement` says where keys lie in the cache: 0 in order, otherwise scattered. Keys of later
   * tokens are not there yet: their rows hold NaN, as do all others.
   */
  call(
    pieces: readonly Piece[],
    { placement = 0, row }: { readonly placement?: number; readonly row?: readonly number[] } = {},
  ): AttentionData {
    const { heads, kvHeads, headDim } = this.shape;
    const [width, keyWidth] = [heads * headDim, kvHeads * headDim];
    const order = this.order(placement);
    const T = pieces.reduce((sum, { from, to }) => sum + to - from, 0);
    const q = new Float64Array(T * width);
    const [k, v] = [0, 1].map(() => new Float64Array(this.cacheRows * keyWidth).fill(NaN)) as [
      Float64Array,
      Float64Array,
    ];
    const [begin, position, key]: [number[], number[], number[]] = [[], [], []];
    for (const { sequence, from, to } of pieces) {
      const own = this.sequences[sequence]!;
      q.set(own.q.subarray(from * width, to * width), begin.length * width);
      for (let at = from; at < to; at++) {
        begin.push(key.length);
        position.push(at);
      }
      const first = this.lengths.slice(0, sequence).reduce((sum, length) => sum + length, 0);
      for (let at = 0; at < to; at++) {
        const place = order[first + at]!;
        key.push(place);
        k.set(own.k.subarray(at * keyWidth, (at + 1) * keyWidth), place * keyWidth);
        v.set(own.v.subarray(at * keyWidth, (at + 1) * keyWidth), place * keyWidth);
      }
    }
    const integers = { begin, position, key, ...(row === undefined ? {} : { row }) };
    return {
      T,
      inputs: new Map([
        ['q', q],
        ...keysAndValues(this.shape, k, v),
        ...Object.entries(integers).map(([name, values]) => [name, Float64Array.from(values)] as const),
      ]),
    };
  }

  /** Pieces of at most `size` tokens, one of each sequence in turn, as calls with one piece of every sequence. */
  chunks(size: number): readonly (readonly Piece[])[] {
    const most = Math.max(...this.lengths);
    return Array.from({ length: Math.ceil(most / size) }, (_, i) =>
      this.lengths.flatMap((length, sequence) =>
        i * size < length ? [{ sequence, from: i * size, to: Math.min(length, (i + 1) * size) }] : [],
      ),
    );
  }

  /** Where token `at` of all sequences, one behind another, lies in the cache. */
  place(at: number, placement: number): number {
    return this.order(placement)[at]!;
  }

  private order(placement: number): readonly number[] {
    const rows = Array.from({ length: this.cacheRows }, (_, i) => i);
    if (placement === 0) return rows;
    const random = randomSource(this.seed + placement);
    for (let i = rows.length - 1; i > 0; i--) {
      const j = Math.min(i, Math.floor(((random() + 1) / 2) * (i + 1)));
      [rows[i], rows[j]] = [rows[j]!, rows[i]!];
    }
    return rows;
  }
}

/** Answers of calls put together by sequence and position. */
export function gather(
  world: PathWorld,
  calls: readonly (readonly Piece[])[],
  answer: (pieces: readonly Piece[]) => Float64Array,
): Float64Array {
  const width = world.shape.heads * world.shape.headDim;
  const starts = world.lengths.map((_, i) => world.lengths.slice(0, i).reduce((sum, length) => sum + length, 0));
  const all = new Float64Array(world.lengths.reduce((sum, length) => sum + length, 0) * width).fill(NaN);
  for (const pieces of calls) {
    const out = answer(pieces);
    let at = 0;
    for (const { sequence, from, to } of pieces) {
      all.set(out.subarray(at * width, (at + to - from) * width), (starts[sequence]! + from) * width);
      at += to - from;
    }
  }
  return all;
}

/** Depths of tokens in depth-first order: trees whose branches leave at all places of a tile and of a chunk. */
function positions(): Int32Array {
  const depths: number[] = [];
  const grow = (from: number, to: number): void => {
    for (let depth = from; depth < to; depth++) depths.push(depth);
  };
  grow(0, 70);
  // Whole tiles in common and part of one; a chunk and more; nothing but the root; all of them.
  for (const [from, to] of [
    [64, 75],
    [63, 140],
    [128, 131],
    [127, 290],
    [96, 99],
    [1, 20],
    [20, 21],
  ] as const)
    grow(from, to);
  grow(0, 5);
  grow(0, 33);
  grow(32, 40);
  return Int32Array.from(depths);
}

/** A call over these trees. Their keys lie among the rows of a cache. */
export function treeCall(s: Shape, seed: number, row?: readonly number[]): AttentionData {
  const position = positions();
  const { begin, key } = listPaths(position);
  const T = position.length;
  const random = randomSource(seed);
  // Tokens lie backwards among the rows of keys.
  const place = (token: number): number => T - 1 - token;
  const values = (columns: number, scale: number): Float64Array => randomArray(random, CACHE_ROWS * columns, scale);
  return {
    T,
    inputs: new Map([
      ['q', randomArray(random, T * s.heads * s.headDim, 3)],
      ...keysAndValues(s, values(s.kvHeads * s.headDim, 3), values(s.kvHeads * s.headDim, 1)),
      ['begin', Float64Array.from(begin)],
      ['position', Float64Array.from(position)],
      ['key', Float64Array.from(key, place)],
      ...(row === undefined ? [] : [['row', Float64Array.from(row)] as const]),
    ]),
  };
}

/** Where the lists of two paths part: within a chunk, a part of it, and beside their ends. */
const STEMS = [0, 1, 63, 64, 65, 127, 128, 129, 192, 256] as const;

/**
 * A call of `T` queries over paths in no order. Most have a stem in common with the one before, and some go on into the
 * list behind theirs. Rows of a path follow each other in parts of it. Some queries see nothing: by their position, or
 * as their path begins behind the last key.
 * `value`: what a few values are.
 */
export function tangledCall(s: Shape, seed: number, T: number, value?: number): AttentionData {
  const random = randomSource(seed);
  const below = (count: number): number => Math.min(count - 1, Math.floor(((random() + 1) / 2) * count));
  const pick = (from: readonly number[]): number => from[below(from.length)]!;
  const width = s.kvHeads * s.headDim;
  const [q, k, v] = [
    randomArray(random, T * s.heads * s.headDim, 3),
    randomArray(random, CACHE_ROWS * width, 3),
    randomArray(random, CACHE_ROWS * width, 1),
  ];
  const [begin, position, key]: [number[], number[], number[]] = [[], [], []];
  for (let list: readonly number[] = []; begin.length < T;) {
    const length = pick([1, 2, 31, 70, 200]);
    // Rows that follow each other, or rows of any place.
    const first = below(CACHE_ROWS - length);
    const follows = below(3) > 0;
    const own = Array.from({ length }, (_, i) => (follows ? first + i : below(CACHE_ROWS)));
    list = [...list.slice(0, pick(STEMS)), ...own];
    const last = list.length - 1;
    for (let left = Math.min(pick([1, 1, 2, 9, 40]), T - begin.length); left > 0; left--) {
      begin.push(below(25) === 0 ? 1_000_000 : key.length);
      position.push(pick([-1, last, last, below(last + 1), below(last + 1), last + 50]));
    }
    key.push(...list);
  }
  if (value !== undefined) for (let i = 0; i < 16; i++) v[pick(key) * width + below(width)] = value;
  const row = Array.from({ length: T + 3 }, () => below(T + 2) - 1);
  return {
    T,
    inputs: new Map([
      ...([
        ['q', q],
        ['k', k],
        ['v', v],
      ] as const),
      ...Object.entries({ begin, position, key, ...(s.hasQueryRow === true ? { row } : {}) }).map(
        ([name, values]) => [name, Float64Array.from(values)] as const,
      ),
    ]),
  };
}

/** Paths that go on from one stem, with so many keys of their own each. */
export interface Family {
  readonly stem: number;
  readonly own: readonly number[];
}

/**
 * A call with one new token for each path of some families, which have their first `common` keys in common with each
 * other. Keys lie anywhere in the cache; there must be rows for all.
 */
export function siblingsCall(s: Shape, seed: number, families: readonly Family[], common = 0): AttentionData {
  const random = randomSource(seed);
  const rows = Array.from({ length: CACHE_ROWS }, (_, row) => ({ row, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ row }) => row);
  const take = (count: number): number[] => {
    if (rows.length < count) throw new Error(`no ${count} rows are left`);
    return rows.splice(0, count);
  };
  const root = take(common);
  const lists = families.flatMap(({ stem, own }) => {
    const trunk = [...root, ...take(stem)];
    return own.map((count) => [...trunk, ...take(count)]);
  });
  const begin = lists.map((_, i) => lists.slice(0, i).reduce((sum, { length }) => sum + length, 0));
  const values = (count: number, scale: number): Float64Array => randomArray(random, count, scale);
  const width = s.kvHeads * s.headDim;
  return {
    T: lists.length,
    inputs: new Map([
      ['q', values(lists.length * s.heads * s.headDim, 3)],
      ...keysAndValues(s, values(CACHE_ROWS * width, 3), values(CACHE_ROWS * width, 1)),
      ['begin', Float64Array.from(begin)],
      ['position', Float64Array.from(lists, ({ length }) => length - 1)],
      ['key', Float64Array.from(lists.flat())],
      ...(s.hasQueryRow === true ? [['row', Float64Array.from(lists, (_, i) => i)] as const] : []),
    ]),
  };
}
