/**
 * Contractions: every pairing compared with float64, and the same answer, bit for bit, whatever the schedule, T,
 * threads or row.
 */
import { describe, expect, it } from 'vitest';
import { isLegal } from '../../codegen/cpu/index.js';
import { type BufferDecl, type KernelModule, type Output, type Pairing, ROW_SUM_BLOCK } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { CpuGemmSchedule, CpuIsa } from '../../ir/plan.js';
import type { Scalar } from '../../ir/scalar.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { casesHere, isThorough } from '../support/thorough.js';
import { randomArray, randomSource, runGenerated, RUNNABLE } from './harness.js';
import { acc, add, constant, element, mul, rowSum, store } from './modules.js';
import { TESTED } from './tested.js';

const FACTS = { isas: ['portable', 'avx2', 'avx512', 'amx'] as const, l1: 32768, l2: 1 << 20 };

/** mr, nr, kc, mb, nb in units of the least legal width. */
const SCHEDULES: Readonly<Record<CpuIsa, readonly (readonly [number, number, number, number, number])[]>> = {
  portable: [
    [4, 16, 512, 64, 1],
    [1, 16, 32, 4, 2],
    [2, 32, 64, 16, 1],
  ],
  avx2: [
    [6, 16, 512, 60, 1],
    [2, 32, 32, 6, 2],
    [1, 32, 96, 7, 1],
  ],
  avx512: [
    [14, 32, 512, 252, 1],
    [9, 48, 32, 9, 2],
    [6, 64, 64, 12, 3],
    [12, 32, 96, 48, 1],
    [28, 16, 128, 28, 2],
    [5, 32, 32, 35, 1],
  ],
  amx: [
    [32, 32, 512, 256, 1],
    [32, 32, 32, 32, 2],
    [16, 32, 64, 48, 1],
  ],
};

interface Case {
  readonly label: string;
  readonly k: number;
  readonly columns: number;
  readonly pairing: Pairing;
  readonly outputs: (y: string, s: string) => Output[];
  readonly step: number;
}

const rotated = add(acc(), mul({ op: 'rotateHalf', a: mul(acc(), element('e')) }, element('e')));
/** An element by its head's 1/rms. */
const normed = (width: number): Scalar =>
  mul(acc(), {
    op: 'rsqrt',
    a: add(mul({ op: 'groupSum', a: mul(acc(), acc()), width }, constant(1 / width)), constant(1)),
  });
const turned = (width: number): Scalar =>
  add(normed(width), mul({ op: 'rotateHalf', a: normed(width) }, constant(0.25)));
const CASES: readonly Case[] = [
  {
    label: 'plain, ragged',
    k: 100,
    columns: 200,
    pairing: { kind: 'none' },
    step: 32,
    outputs: (y, s) => [store(y, add(acc(), element('e'))), rowSum(s, mul(acc(), acc()))],
  },
  {
    label: 'rotate 16',
    k: 144,
    columns: 192,
    pairing: { kind: 'rotate', headDim: 64, width: 16 },
    step: 64,
    outputs: (y) => [store(y, rotated)],
  },
  {
    label: 'rotate 32 with a row sum',
    k: 64,
    columns: 192,
    pairing: { kind: 'rotate', headDim: 64, width: 32 },
    step: 64,
    outputs: (y, s) => [store(y, rotated), rowSum(s, rotated)],
  },
  {
    label: 'rotate 12',
    k: 96,
    columns: 144,
    pairing: { kind: 'rotate', headDim: 48, width: 12 },
    step: 96,
    outputs: (y, s) => [store(y, rotated), rowSum(s, acc())],
  },
  {
    label: 'interleave 16',
    k: 72,
    columns: 120,
    pairing: { kind: 'interleave', width: 16 },
    step: 64,
    outputs: (y, s) => [store(y, mul(acc(), acc(1))), rowSum(s, acc(1))],
  },
  {
    label: 'interleave 10',
    k: 64,
    columns: 75,
    pairing: { kind: 'interleave', width: 10 },
    step: 320,
    outputs: (y, s) => [store(y, mul(acc(), acc(1))), rowSum(s, acc())],
  },
];

/** Heads that are normed behind their product, on one instruction set: their text is the same on all. */
const NORMED: readonly Case[] = [
  {
    label: 'rotate 16, heads normed',
    k: 96,
    columns: 192,
    pairing: { kind: 'rotate', headDim: 64, width: 16 },
    step: 64,
    outputs: (y) => [store(y, turned(64))],
  },
  {
    label: 'rotate 8, heads normed',
    k: 64,
    columns: 144,
    pairing: { kind: 'rotate', headDim: 48, width: 8 },
    step: 96,
    outputs: (y, s) => [store(y, turned(48)), rowSum(s, acc())],
  },
  {
    label: 'plain, groups normed',
    k: 64,
    columns: 144,
    pairing: { kind: 'none' },
    step: 96,
    outputs: (y, s) => [store(y, normed(48)), rowSum(s, normed(48))],
  },
];
const NORMED_ISA = RUNNABLE.findLast((isa) => isa !== 'amx');

/** One kernel for each schedule, each with its own results. */
function moduleOf(c: Case, isa: CpuIsa, bf16: boolean, count: number): KernelModule {
  const isAmx = isa === 'amx';
  const dtype = isAmx || bf16 ? 'bf16' : 'f32';
  const matrices = c.pairing.kind === 'interleave' ? 2 : 1;
  const buffers: BufferDecl[] = [
    { name: 'x', dtype: isAmx ? 'bf16' : 'f32', rows: 'T', columns: c.k, space: 'input' },
    { name: 'e', dtype: isAmx ? 'bf16' : 'f32', rows: 'T', columns: c.columns, space: 'input' },
  ];
  for (let i = 0; i < count; i++) {
    buffers.push({ name: `y${i}`, dtype: 'f32', rows: 'T', columns: c.columns, space: 'arena' });
    buffers.push({
      name: `ssq${i}`,
      dtype: 'f32',
      rows: 'T',
      columns: Math.ceil(c.columns / ROW_SUM_BLOCK),
      space: 'arena',
    });
  }
  return {
    interface: interfaceOf(buffers),
    buffers,
    weights: [
      {
        name: 'w',
        layout: isAmx ? 'vnni' : 'panels',
        format: dtype,
        k: c.k,
        pairing: c.pairing,
        sources: Array.from({ length: matrices }, (_, i) => ({ tensor: `w${i}`, rows: c.columns })),
      },
    ],
    kernels: Array.from({ length: count }, (_, i) => ({
      name: `g${i}`,
      path: `test.g${i}`,
      anchor: 'gemm',
      rows: 'T',
      ops: [],
      k: c.k,
      a: 'x',
      segments: [{ weight: 'w', columns: c.columns, pairing: c.pairing, outputs: c.outputs(`y${i}`, `ssq${i}`) }],
    })),
  };
}

const rowsOf = (data: Float64Array, columns: number, from: number, to: number): Float64Array =>
  data.slice(from * columns, to * columns);

describe.each([...TESTED])('a contraction on %s', (isa) => {
  const dtypes = isa === 'amx' ? [true] : isa === 'avx512' ? [false, true] : [false];
  const isHalf = !isThorough || isa === 'portable' || isa === 'avx2';
  const cases = isHalf ? CASES.filter((_, i) => i % 2 === 0) : CASES;
  // In CI, pairs side by side are of bf16, no pairs of f32: together they have every schedule of avx512.
  const isIn = (bf16: boolean, turn: number): boolean => isThorough || turn === (bf16 ? 2 : 0);
  // One case of each instruction set and dtype is compiled with the product's own flags.
  it.each(
    dtypes.flatMap((bf16) =>
      [...cases, ...(isa === NORMED_ISA && !bf16 ? casesHere(NORMED) : [])]
        .map((c, turn) => ({ c, bf16, turn, label: `${c.label}, ${bf16 ? 'bf16' : 'f32'}` }))
        .filter(({ turn }) => isIn(bf16, turn)),
    ),
  )('$label', ({ c, bf16, turn }) => {
    // Panels of bf16 are widened either once for each work item or in registers; each half of the schedules has both
    // kinds. Cases take the halves in turn. f32 cases take the half that the bf16 case leaves out, and always the first
    // schedule, so that all others are compared with it.
    const tiles = SCHEDULES[isa].filter(
      (_, i) => isa !== 'avx512' || (bf16 ? i % 2 === turn % 2 : i === 0 || i % 2 !== turn % 2),
    );
    const schedules = tiles.map(([mr, nr, kc, mb, steps]): CpuGemmSchedule => ({
      kind: 'gemm',
      isa,
      mr,
      nr,
      kc,
      mb,
      nb: steps * c.step,
    }));
    const module = moduleOf(c, isa, bf16, schedules.length);
    module.kernels.forEach((kernel, i) => {
      expect(isLegal(kernel, module, schedules[i]!, FACTS)).toBe(true);
    });
    const random = randomSource(c.columns + c.k);
    const T = 77;
    const [x, e] = [randomArray(random, T * c.k), randomArray(random, T * c.columns)];
    const tensors = new Map(
      [0, 1].map((i) => [`w${i}`, { rows: c.columns, columns: c.k, data: randomArray(random, c.columns * c.k) }]),
    );
    const run = (from: number, to: number, workers: number): ReadonlyMap<string, Float64Array> => {
      const inputs = new Map([
        ['x', rowsOf(x, c.k, from, to)],
        ['e', rowsOf(e, c.columns, from, to)],
      ]);
      const result = runGenerated(module, {
        sizes: { T: to - from, R: 0 },
        inputs,
        tensors,
        schedules,
        workers,
        tokensCapacity: 128,
        isQuick: turn !== (bf16 ? 3 : 0),
      });
      expect(result.overruns).toEqual([]);
      expect(result.dirtyPads).toEqual([]);
      return result.values;
    };
    const got = run(0, T, 1);
    const round = (data: Float64Array): Float64Array => data.map((v) => Math.fround(v));
    const want = interpretModule(
      { ...module, kernels: module.kernels.slice(0, 1) },
      {
        sizes: { T, R: 0 },
        round: true,
        tensors,
        buffers: new Map([
          ['x', got.get('x')!],
          ['e', got.get('e')!],
        ]),
      },
    );
    const hasSum = module.kernels[0]!.anchor === 'gemm' && module.kernels[0]!.segments[0]!.outputs.length > 1;
    for (const name of hasSum ? ['y', 'ssq'] : ['y']) {
      const [mine, theirs] = [got.get(`${name}0`)!, round(want.get(`${name}0`)!)];
      const scale = theirs.reduce((most, v) => Math.max(most, Math.abs(v)), 1e-30);
      mine.forEach((v, i) => {
        if (!(Math.abs(v - theirs[i]!) <= 5e-6 * scale))
          throw new Error(`${name}[${i}] is ${v}, float64 says ${theirs[i]}.`);
      });
      schedules.forEach((_, i) => {
        expectSame(got.get(`${name}${i}`), got.get(`${name}0`), `${name}${i}`);
      });
    }
    // Other threads, a smaller T, and the same rows elsewhere must give the same bits.
    for (const [from, to, workers] of [
      [0, T, 3],
      [0, 1, 1],
      [31, 64, 2],
      [45, T, 2],
    ] as const) {
      const part = run(from, to, workers);
      for (const name of hasSum ? ['y', 'ssq'] : ['y']) {
        const columns = name === 'y' ? c.columns : Math.ceil(c.columns / ROW_SUM_BLOCK);
        schedules.forEach((_, i) => {
          expectSame(
            part.get(`${name}${i}`),
            rowsOf(got.get(`${name}0`)!, columns, from, to),
            `${name}${i} of rows ${from} to ${to}`,
          );
        });
      }
    }
  });
});
