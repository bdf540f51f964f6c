/**
 * Tree attention: compared with float64, the same answer whatever the tile or the neighbours, and no leak from other
 * trees.
 */
import { describe, expect, it } from 'vitest';
import { isLegal } from '../../codegen/cpu/index.js';
import type { AttentionKernel, KernelModule } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { CpuAttentionSchedule, CpuIsa } from '../../ir/plan.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { casesHere } from '../support/thorough.js';
import { randomArray, randomSource, runGenerated } from './harness.js';
import { randomTrees } from './modules.js';
import { TESTED } from './tested.js';

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly dtype: 'f32' | 'bf16';
  readonly cap?: number;
}

const SHAPES: readonly Shape[] = [
  { heads: 2, kvHeads: 2, headDim: 64, dtype: 'f32' },
  { heads: 4, kvHeads: 2, headDim: 48, dtype: 'bf16' },
  { heads: 3, kvHeads: 1, headDim: 40, dtype: 'f32' },
  { heads: 1, kvHeads: 1, headDim: 256, dtype: 'f32' },
  { heads: 2, kvHeads: 1, headDim: 32, dtype: 'bf16', cap: 2.5 },
];
const TILES: readonly (readonly [number, number])[] = [
  [32, 256],
  [16, 8],
  [128, 64],
  [48, 16],
];

/**
 * Kernels `o<i>` of the tile shapes numbered in `tiles`, and kernels `b<i>` of those in `biased`, which take a
 * materialized mask.
 */
function moduleOf(
  s: Shape,
  hasQueryRow: boolean,
  tiles: readonly number[],
  biased: readonly number[] = [],
): KernelModule {
  const [width, kvWidth] = [s.heads * s.headDim, s.kvHeads * s.headDim];
  const rows = hasQueryRow ? 'R' : 'T';
  const outputs = [...tiles.map((i) => `o${i}`), ...biased.map((i) => `b${i}`)];
  return {
    interface: interfaceOf([]),
    weights: [],
    buffers: [
      { name: 'q', dtype: s.dtype, rows: 'T', columns: width, space: 'input' },
      { name: 'k', dtype: s.dtype, rows: 'T', columns: kvWidth, space: 'input' },
      { name: 'v', dtype: s.dtype, rows: 'T', columns: kvWidth, space: 'input' },
      { name: 'subtreeEnd', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
      { name: 'bias', dtype: 'f32', rows: 'T', columns: 'T', space: 'input' },
      { name: 'row', dtype: 'i32', rows: 'R', columns: 1, space: 'input' },
      ...outputs.map((name) => ({
        name,
        dtype: 'f32' as const,
        rows: rows as 'T' | 'R',
        columns: width,
        space: 'arena' as const,
      })),
    ],
    kernels: outputs.map((out): AttentionKernel => ({
      name: `a.${out}`,
      path: `test.${out}`,
      anchor: 'attention',
      rows,
      ops: [],
      q: 'q',
      k: 'k',
      v: 'v',
      out,
      heads: s.heads,
      kvHeads: s.kvHeads,
      headDim: s.headDim,
      scale: 0.3,
      ...(s.cap === undefined ? {} : { cap: s.cap }),
      mask: out.startsWith('o') ? { kind: 'column', subtreeEnd: 'subtreeEnd' } : { kind: 'bias', buffer: 'bias' },
      ...(hasQueryRow ? { queryRow: 'row' } : {}),
    })),
  };
}

interface Data {
  readonly q: Float64Array;
  readonly k: Float64Array;
  readonly v: Float64Array;
  readonly subtreeEnd: Float64Array;
  readonly row: Float64Array;
}

function dataOf(s: Shape, T: number, R: number, seed: number): Data {
  const random = randomSource(seed);
  const make = (heads: number): Float64Array => randomArray(random, T * heads * s.headDim, 2);
  const row = Float64Array.from({ length: R }, () => Math.min(T - 1, Math.floor(((random() + 1) / 2) * T))).sort();
  return { q: make(s.heads), k: make(s.kvHeads), v: make(s.kvHeads), subtreeEnd: randomTrees(T, seed).subtreeEnd, row };
}

function biasOf(subtreeEnd: Float64Array): Float64Array {
  const T = subtreeEnd.length;
  return Float64Array.from({ length: T * T }, (_, i) => {
    const [q, k] = [Math.floor(i / T), i % T];
    return k <= q && q < subtreeEnd[k]! ? 0 : -Infinity;
  });
}

function run(
  module: KernelModule,
  data: Data,
  isa: CpuIsa,
  workers = 2,
  isQuick = false,
): ReadonlyMap<string, Float64Array> {
  const schedules = module.kernels.map(({ name }): CpuAttentionSchedule => {
    const [queries, keys] = TILES[Number(name.at(-1))]!;
    return { kind: 'attention', isa, queries, keys };
  });
  module.kernels.forEach((kernel, i) => {
    expect(isLegal(kernel, module, schedules[i]!, { isas: [isa], l1: 1, l2: 1 })).toBe(true);
  });
  const sizes = { T: data.subtreeEnd.length, R: data.row.length };
  const inputs = new Map([
    ...(Object.entries(data) as [string, Float64Array][]),
    ['bias', biasOf(data.subtreeEnd)] as const,
  ]);
  const result = runGenerated(module, { sizes, inputs, schedules, workers, tokensCapacity: 192, isQuick });
  expect(result.overruns).toEqual([]);
  expect(result.dirtyPads).toEqual([]);
  return result.values;
}

const rowsOf = (data: Float64Array, columns: number, from: number, to: number): Float64Array =>
  data.slice(from * columns, to * columns);

describe.each(TESTED.filter((isa) => isa !== 'amx'))('attention on %s', (isa) => {
  // The shapes and tiles differ in the code that is generated, not in what the instruction set does, so one instruction
  // set runs every shape with every tile. Every second tile also runs with a materialized mask and with gathered
  // queries.
  const shapes = isa === 'avx512' ? casesHere(SHAPES, 1) : casesHere([...SHAPES.slice(1, 3), ...SHAPES.slice(4)], 0, 2);
  it.each(
    shapes.flatMap((s, i) =>
      (isa === 'avx512' ? casesHere([false, true], Number(i !== 0)) : [true]).map((hasQueryRow) => ({
        s,
        hasQueryRow,
        parity: (i + Number(hasQueryRow)) % 2,
        label:
          `${s.heads}/${s.kvHeads} heads of ${s.headDim}, ${s.dtype}` +
          `${s.cap === undefined ? '' : `, capped at ${s.cap}`}${hasQueryRow ? ', gathered queries' : ''}`,
      })),
    ),
  )('$label: agrees with float64, whatever the tiles', ({ s, hasQueryRow, parity }) => {
    const biased = [...TILES.keys()].filter((i) => i % 2 === parity);
    const tiles = isa === 'avx512' && !hasQueryRow ? [...TILES.keys()] : biased;
    const module = moduleOf(s, hasQueryRow, tiles, biased);
    const data = dataOf(s, 150, 37, s.headDim);
    // The next test covers the product's own flags.
    const got = run(module, data, isa, 2, true);
    const buffers = new Map(['q', 'k', 'v', 'subtreeEnd', 'row', 'bias'].map((name) => [name, got.get(name)!]));
    const first = `o${tiles[0]!}`;
    const want = interpretModule(
      { ...module, kernels: module.kernels.slice(0, 1) },
      { sizes: { T: 150, R: 37 }, buffers },
    ).get(first)!;
    expect(got.get(first)!.reduce((most, x, i) => Math.max(most, Math.abs(x - want[i]!)), 0)).toBeLessThan(4e-5);
    for (const i of tiles) expectSame(got.get(`o${i}`), got.get(first), `o${i}`);
    for (const i of biased) expectSame(got.get(`b${i}`), got.get(first), `b${i}`);
  });

  it('gives a tree the same bits alone and behind others, and is not affected by NaN in other trees', () => {
    const s = SHAPES[0]!;
    const tiles = isa === 'avx512' ? [...TILES.keys()] : [0, 1];
    const module = moduleOf(s, false, tiles);
    const [T, first] = [150, 53];
    const all = dataOf(s, T, 1, 5);
    // Two trees: [0, 53) and [53, 150), each a chain with a branch.
    const subtreeEnd = all.subtreeEnd.map((_, i) =>
      i < first ? (i > 10 && i < 30 ? 30 : first) : i > 100 && i < 120 ? 120 : T,
    );
    const together = run(module, { ...all, subtreeEnd }, isa, 1);
    const cut = (x: Float64Array): Float64Array => rowsOf(x, x.length / T, first, T);
    const alone = run(
      module,
      {
        q: cut(all.q),
        k: cut(all.k),
        v: cut(all.v),
        row: Float64Array.of(0),
        subtreeEnd: cut(subtreeEnd).map((end) => end - first),
      },
      isa,
    );
    for (const i of tiles) expectSame(alone.get(`o${i}`), cut(together.get('o0')!), `o${i}`);
    const bad = { ...all, subtreeEnd, k: all.k.slice(), v: all.v.slice() };
    bad.k[3 * 128 + 7] = NaN;
    bad.v[5 * 128 + 70] = Infinity;
    bad.v[110 * 128 + 3] = NaN;
    const poisoned = run(module, bad, isa);
    for (const i of tiles) {
      const out = poisoned.get(`o${i}`)!;
      // Tokens 110 to 119 see the bad value; tokens from 120 on and tokens 53 to 109 do not.
      for (const [from, to] of [
        [first, 110],
        [120, T],
      ] as const)
        expectSame(rowsOf(out, 128, from, to), rowsOf(together.get('o0')!, 128, from, to), `o${i}`);
      expect(rowsOf(out, 128, 112, 113)[3]).toBeNaN();
      expect(rowsOf(out, 128, 40, 41).slice(0, 64).every(Number.isNaN)).toBe(true);
    }
  });
});
