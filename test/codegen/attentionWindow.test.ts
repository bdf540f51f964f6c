/** A window of positions in trees on a CPU: compared with float64, and the same answer whatever the tile. */
import { describe, expect, it } from 'vitest';
import { isLegal } from '../../codegen/cpu/index.js';
import type { KernelModule } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { CpuAttentionSchedule } from '../../ir/plan.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { casesHere } from '../support/thorough.js';
import { randomArray, randomSource, runGenerated, RUNNABLE } from './harness.js';
import { randomTrees } from './modules.js';

const TILES = [
  [32, 256],
  [16, 8],
  [128, 64],
  [48, 16],
] as const;
const [T, R, HEADS, KV_HEADS, D] = [150, 37, 3, 1, 40];

/** A kernel `o<i>` for each tile, each with this window. */
const moduleOf = (window: number, hasQueryRow: boolean): KernelModule => ({
  interface: interfaceOf([]),
  weights: [],
  buffers: [
    { name: 'q', dtype: 'f32', rows: 'T', columns: HEADS * D, space: 'input' },
    { name: 'k', dtype: 'f32', rows: 'T', columns: KV_HEADS * D, space: 'input' },
    { name: 'v', dtype: 'f32', rows: 'T', columns: KV_HEADS * D, space: 'input' },
    { name: 'subtreeEnd', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
    { name: 'position', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
    { name: 'row', dtype: 'i32', rows: 'R', columns: 1, space: 'input' },
    ...TILES.map((_, i) => ({
      name: `o${i}`,
      dtype: 'f32' as const,
      rows: hasQueryRow ? ('R' as const) : ('T' as const),
      columns: HEADS * D,
      space: 'arena' as const,
    })),
  ],
  kernels: TILES.map((_, i) => ({
    name: `a${i}`,
    path: `test.o${i}`,
    anchor: 'attention',
    rows: hasQueryRow ? 'R' : 'T',
    ops: [],
    q: 'q',
    k: 'k',
    v: 'v',
    out: `o${i}`,
    heads: HEADS,
    kvHeads: KV_HEADS,
    headDim: D,
    scale: 0.3,
    mask: { kind: 'column', subtreeEnd: 'subtreeEnd', window, position: 'position' },
    ...(hasQueryRow ? { queryRow: 'row' } : {}),
  })),
});

/** Chains with branches, and keys of one token that only those see which are near enough. */
function inputsOf(bad?: number): ReadonlyMap<string, Float64Array> {
  const random = randomSource(6);
  const [q, k, v] = [HEADS, KV_HEADS, KV_HEADS].map((heads) => randomArray(random, T * heads * D, 2)) as [
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  if (bad !== undefined) for (const x of [k, v]) x.fill(NaN, bad * D, (bad + 1) * D);
  const row = Float64Array.from({ length: R }, (_, i) => i * 4 + 1);
  return new Map(Object.entries({ q, k, v, row, ...randomTrees(T, 11) }));
}

describe.each(RUNNABLE.filter((isa) => isa !== 'amx'))('windows on %s', (isa) => {
  const WINDOWS = [
    [7, false],
    [40, true],
  ] as const;
  it.each(casesHere<(typeof WINDOWS)[number]>(WINDOWS, isa === 'portable' ? 0 : 1))(
    'of %i keys (chosen queries: %s) agree with float64, whatever the tile',
    (window, hasQueryRow) => {
      const module = moduleOf(window, hasQueryRow);
      const schedules = TILES.map(([queries, keys]): CpuAttentionSchedule => ({
        kind: 'attention',
        isa,
        queries,
        keys,
      }));
      module.kernels.forEach((kernel, i) => {
        expect(isLegal(kernel, module, schedules[i]!, { isas: [isa], l1: 1, l2: 1 })).toBe(true);
      });
      const sizes = { T, R };
      const of = (inputs: ReadonlyMap<string, Float64Array>): ReadonlyMap<string, Float64Array> =>
        runGenerated(module, { sizes, inputs, schedules, workers: 2, tokensCapacity: 192, isQuick: true }).values;
      const inputs = inputsOf();
      const got = of(inputs);
      const want = interpretModule(module, { sizes, buffers: inputs }).get('o0')!;
      expect(got.get('o0')!.reduce((most, x, i) => Math.max(most, Math.abs(x - want[i]!)), 0)).toBeLessThan(4e-5);
      for (const i of TILES.keys()) expectSame(got.get(`o${i}`), got.get('o0'), `o${i}`);

      // A token that is no number reaches those that see it and nobody else.
      const [bad, width] = [3, HEADS * D];
      const spoilt = of(inputsOf(bad)).get('o0')!;
      const [position, end] = [inputs.get('position')!, inputs.get('subtreeEnd')!];
      for (let i = 0; i < (hasQueryRow ? R : T); i++) {
        const token = hasQueryRow ? inputs.get('row')![i]! : i;
        const sees = bad <= token && token < end[bad]! && position[token]! - position[bad]! < window;
        const row = spoilt.slice(i * width, (i + 1) * width);
        if (sees) expect(row.every(Number.isNaN), `token ${token}`).toBe(true);
        else expectSame(row, got.get('o0')!.slice(i * width, (i + 1) * width), `token ${token}`);
      }
    },
  );
});
