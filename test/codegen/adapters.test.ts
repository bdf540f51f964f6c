/**
 * Adapters: shrink kernels and what they add to contractions, compared with float64, and the same bits whatever the
 * schedule, the threads, or the rows beside.
 */
import { describe, expect, it } from 'vitest';
import { isLegal } from '../../codegen/cpu/index.js';
import type { BufferDecl, GemmKernel, KernelModule, Pairing, WeightDecl } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { CpuGemmSchedule, CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { roundToBf16 } from '../../ir/scalar.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { casesHere } from '../support/thorough.js';
import { randomArray, randomSource, runGenerated } from './harness.js';
import { acc, constant, mul, store } from './modules.js';
import { TESTED } from './tested.js';

const FACTS = { isas: ['portable', 'avx2', 'avx512', 'amx'] as const, l1: 32768, l2: 1 << 20 };
const SLOTS = 3;

/** mr, nr, kc, mb, nb in units of the least legal width. */
const SCHEDULES: Readonly<Record<CpuIsa, readonly (readonly [number, number, number, number, number])[]>> = {
  portable: [
    [4, 16, 512, 64, 1],
    [1, 16, 32, 4, 2],
  ],
  avx2: [
    [6, 16, 512, 60, 1],
    [1, 32, 96, 7, 2],
  ],
  avx512: [
    [14, 32, 512, 252, 1],
    [9, 48, 32, 9, 2],
    [5, 32, 32, 35, 1],
  ],
  amx: [
    [32, 32, 512, 256, 1],
    [16, 32, 160, 48, 2],
  ],
};

interface Case {
  readonly label: string;
  readonly k: number;
  readonly rank: number;
  /** Of each segment. */
  readonly columns: readonly number[];
  readonly pairing: Pairing;
  readonly step: number;
  /** Those that have an adapter. */
  readonly adapted: readonly boolean[];
}

const CASES: readonly Case[] = [
  { label: 'plain', k: 100, rank: 16, columns: [200], pairing: { kind: 'none' }, step: 32, adapted: [true] },
  {
    label: 'three segments, one without',
    k: 64,
    rank: 48,
    columns: [64, 96, 32],
    pairing: { kind: 'none' },
    step: 32,
    adapted: [true, false, true],
  },
  {
    label: 'rotated',
    k: 72,
    rank: 32,
    columns: [192],
    pairing: { kind: 'rotate', headDim: 64, width: 16 },
    step: 64,
    adapted: [true],
  },
  {
    label: 'interleaved, with an epilogue beside products on tiles',
    k: 290,
    rank: 64,
    columns: [128],
    pairing: { kind: 'interleave', width: 16 },
    step: 64,
    adapted: [true],
  },
];

const matricesOf = ({ pairing }: Case): number => (pairing.kind === 'interleave' ? 2 : 1);

/** A shrink kernel, and a contraction for each schedule with its own results. Without `slots`: contractions alone. */
function moduleOf(c: Case, isa: CpuIsa, count: number, slots: number | undefined): KernelModule {
  const isAmx = isa === 'amx';
  const dtype = isAmx ? 'bf16' : 'f32';
  const matrices = matricesOf(c);
  const parts = c.columns.length * matrices;
  const buffers: BufferDecl[] = [
    { name: 'x', dtype, rows: 'T', columns: c.k, space: 'input' },
    { name: 'e', dtype: 'f32', rows: 'T', columns: 1, space: 'input' },
  ];
  const sources = (s: number) =>
    Array.from({ length: matrices }, (_, i) => ({ tensor: `w${s}_${i}`, rows: c.columns[s]! }));
  const weights: WeightDecl[] = c.columns.map((_, s) => ({
    ...{ name: `w${s}`, layout: isAmx ? 'vnni' : 'panels', format: dtype, k: c.k, pairing: c.pairing },
    sources: sources(s),
  }));
  if (slots !== undefined) {
    buffers.push({ name: 'adapter', dtype: 'i32', rows: 'T', columns: 1, space: 'input' });
    buffers.push({ name: 'shrunk', dtype, rows: 'T', columns: parts * c.rank, space: 'arena' });
    const all = c.columns.flatMap((__, s) => sources(s));
    const own = { layout: 'panels', format: dtype } as const;
    weights.push({
      ...{ name: 'a', ...own, k: c.k, pairing: { kind: 'none' }, slots: { count: slots, holds: 'a' } },
      sources: all.map(({ tensor }) => ({ tensor, rows: c.rank })),
    });
    weights.push({
      ...{ name: 's', layout: 'rows', format: 'f32', k: 1, pairing: { kind: 'none' } },
      slots: { count: slots, holds: 'scale' },
      sources: all.map(({ tensor }) => ({ tensor, rows: 1 })),
    });
    c.columns.forEach((__, s) => {
      if (!c.adapted[s]) return;
      weights.push({
        ...{ name: `b${s}`, ...own, k: c.rank, pairing: c.pairing, slots: { count: slots, holds: 'b' } },
        sources: sources(s),
      });
    });
  }
  const gemm = (i: number): GemmKernel => ({
    ...{ name: `g${i}`, path: `test.g${i}`, anchor: 'gemm', rows: 'T', ops: [], k: c.k, a: 'x' },
    ...(slots === undefined
      ? {}
      : {
          adapter: { slot: 'adapter', slots, rank: c.rank, shrunk: 'shrunk', first: { weight: 'a', scale: 's' } },
        }),
    segments: c.columns.map((columns, s) => ({
      ...{ weight: `w${s}`, columns, pairing: c.pairing },
      outputs: [
        store(
          `y${i}_${s}`,
          matrices === 2
            ? mul({ op: 'exp', a: mul(acc(), constant(0.01)) }, acc(1))
            : mul(acc(), { op: 'load', buffer: 'e', access: { kind: 'row' } }),
        ),
      ],
      ...(slots === undefined || !c.adapted[s] ? {} : { adapter: { weight: `b${s}`, part: s * matrices } }),
    })),
  });
  for (let i = 0; i < count; i++)
    c.columns.forEach((columns, s) =>
      buffers.push({ name: `y${i}_${s}`, dtype: 'f32', rows: 'T', columns, space: 'arena' }),
    );
  const gemms = Array.from({ length: count }, (_, i) => gemm(i));
  const shrink: KernelModule['kernels'] =
    slots === undefined
      ? []
      : [
          {
            ...{ name: 'shrink', path: 'test.shrink', anchor: 'shrink', rows: 'T', ops: [], k: c.k, a: 'x' },
            ...{ slot: 'adapter', slots, rank: c.rank, parts, weight: 'a', scale: 's', out: 'shrunk' },
          },
        ];
  return {
    interface: interfaceOf(buffers, slots === undefined ? {} : { roles: { adapter: { kind: 'adapter', slots } } }),
    buffers,
    weights,
    kernels: [...shrink, ...gemms],
  };
}

const rowsOf = (data: Float64Array, columns: number, rows: readonly number[]): Float64Array =>
  Float64Array.from(rows.flatMap((row) => [...data.subarray(row * columns, (row + 1) * columns)]));

/** Fails where a value is further from the other than `relative` of the largest. */
function expectNear(got: Float64Array, want: Float64Array, relative: number, what: string): void {
  const scale = want.reduce((most, v) => Math.max(most, Math.abs(v)), 1e-30);
  got.forEach((v, i) => {
    if (!(Math.abs(v - want[i]!) <= relative * scale)) throw new Error(`${what}[${i}] is ${v}, not ${want[i]}.`);
  });
}

const T = 70;
const everyRow = Array.from({ length: T }, (_, i) => i);
/** Runs of one slot, rows without any between, and single rows. */
const slotOf = (row: number): number =>
  row < 24 ? 1 : row < 48 ? (row % 5 < 3 ? -1 : row % SLOTS) : ((row >> 3) % 4) - 1;

describe.each([...TESTED])('adapters on %s', (isa) => {
  it.each(casesHere(CASES, ...(isa === 'amx' ? [0, 3] : [1, 2])).map((c, at) => ({ c, at, label: c.label })))(
    '$label',
    ({ c, at }) => {
      const tiles = SCHEDULES[isa];
      const module = moduleOf(c, isa, tiles.length, SLOTS);
      const plain = moduleOf(c, isa, 1, undefined);
      verifyKernels(module);
      const gemms = tiles.map(([mr, nr, kc, mb, steps]): CpuGemmSchedule => ({
        kind: 'gemm',
        isa,
        mr,
        nr,
        kc,
        mb,
        nb: steps * c.step,
      }));
      const schedules: CpuSchedule[] = [{ kind: 'loop', isa, rows: 16 }, ...gemms];
      module.kernels.forEach((kernel, i) => expect(isLegal(kernel, module, schedules[i]!, FACTS)).toBe(true));
      const random = randomSource(c.k + c.rank);
      const [x, e] = [randomArray(random, T * c.k), randomArray(random, T)];
      const matrices = matricesOf(c);
      const tensors = new Map(
        c.columns.flatMap((rows, s) =>
          Array.from(
            { length: matrices },
            (_, i) => [`w${s}_${i}`, { rows, columns: c.k, data: randomArray(random, rows * c.k) }] as const,
          ),
        ),
      );
      const parts = c.columns.length * matrices;
      const weights = new Map<string, Float64Array>([
        ['a', randomArray(random, SLOTS * parts * c.rank * c.k)],
        ['s', randomArray(random, SLOTS * parts)],
        ...c.columns.map((n, s) => [`b${s}`, randomArray(random, SLOTS * n * matrices * c.rank)] as const),
      ]);
      const run = (
        of: KernelModule,
        rows: readonly number[],
        workers: number,
        slots: (row: number) => number = slotOf,
      ): ReadonlyMap<string, Float64Array> => {
        const { values, overruns, emitted } = runGenerated(of, {
          sizes: { T: rows.length, R: 0 },
          inputs: new Map([
            ['x', rowsOf(x, c.k, rows)],
            ['e', rowsOf(e, 1, rows)],
            ['adapter', Float64Array.from(rows, slots)],
          ]),
          tensors,
          weights,
          schedules: of === plain ? gemms.slice(0, 1) : schedules,
          workers,
          tokensCapacity: 128,
          isQuick: at > 0,
        });
        expect(overruns).toEqual([]);
        const isBeside = emitted.at(-1)!.source.includes('tw_amx_beside');
        expect(isBeside).toBe(isa === 'amx' && matrices === 2);
        return values;
      };
      const got = run(module, everyRow, 1);
      const kernels = (from: number, end: number): KernelModule => ({
        ...module,
        kernels: module.kernels.slice(from, end),
      });
      const rounded = new Map(
        [...weights].map(([name, data]) => [
          name,
          data.map((v) => (isa === 'amx' && name !== 's' ? roundToBf16(v) : v)),
        ]),
      );
      const env = { sizes: { T, R: 0 }, buffers: new Map(got), tensors, weights: rounded, round: true };
      const shrunk = interpretModule(kernels(0, 1), env).get('shrunk')!;
      const columns = parts * c.rank;
      const adapted = everyRow.filter((row) => slotOf(row) >= 0);
      expectNear(
        rowsOf(got.get('shrunk')!, columns, adapted),
        rowsOf(shrunk, columns, adapted),
        isa === 'amx' ? 2 ** -7 : 2e-6,
        'shrunk',
      );
      const want = interpretModule(kernels(1, 2), env);
      const base = run(plain, everyRow, 1);
      const bare = everyRow.filter((row) => slotOf(row) < 0);
      expect(bare.length).toBeGreaterThan(10);
      c.columns.forEach((n, s) => {
        expectNear(got.get(`y0_${s}`)!, want.get(`y0_${s}`)!, 5e-6, `y${s}`);
        for (const i of tiles.keys()) expectSame(got.get(`y${i}_${s}`), got.get(`y0_${s}`), `y${i}_${s}`);
        expectSame(
          rowsOf(got.get(`y0_${s}`)!, n, bare),
          rowsOf(base.get(`y0_${s}`)!, n, bare),
          `rows without adapter of y${s}`,
        );
      });
      // Alone, elsewhere, among others, and by other threads a row has the same bits.
      for (const [rows, workers] of [
        [everyRow, 3],
        [[5], 1],
        [[...bare, ...adapted], 2],
        [everyRow.slice(20, 53), 2],
      ] as const) {
        const part = run(module, rows, workers);
        c.columns.forEach((n, s) => {
          for (const i of tiles.keys())
            expectSame(
              part.get(`y${i}_${s}`),
              rowsOf(got.get(`y0_${s}`)!, n, rows),
              `y${i}_${s} of ${rows.length} rows`,
            );
        });
      }
      const none = run(module, everyRow, 2, () => -1);
      for (const s of c.columns.keys()) expectSame(none.get(`y0_${s}`), base.get(`y0_${s}`), `y${s} without adapters`);
    },
  );
});
