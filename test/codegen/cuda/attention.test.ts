/**
 * Tree attention on CUDA, run without a GPU (test/support/cudaWarp): compared with float64, the same bits in any batch,
 * and no leak from other trees. For what only a CUDA compiler can check see attentionCompile.test.ts.
 */
import { describe, expect, it } from 'vitest';
import { attentionSchedules, isLegalAttention } from '../../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, isThorough } from '../../support/thorough.js';
import { randomSource } from '../harness.js';
import { randomTrees } from '../modules.js';
import {
  adversarialData,
  ADVERSARIES,
  branches,
  CASES,
  chain,
  cut,
  dataOf,
  deep,
  EDGES,
  ends,
  label,
  MMA,
  reference,
  rowsOf,
  schedule,
  SIMT,
  single,
  tolerance,
  type Tree,
  ZOO,
} from './attentionCases.js';
import {
  type AttentionData,
  attentionModule,
  emulate,
  type EmulationOptions,
  prepare,
  type Shape,
} from './attentionHarness.js';

const ADVERSARIAL = [
  [MMA, 'bf16'],
  [schedule('mma', 16), 'f16'],
  [SIMT, 'f16'],
] as const;
const adversarial = (dtype: 'bf16' | 'f16'): Shape => ({ heads: 6, kvHeads: 2, headDim: 48, dtype });
const GATHERED: Shape = { heads: 2, kvHeads: 1, headDim: 32, dtype: 'f16', hasQueryRow: true };
const biased = (dtype: 'f32' | 'bf16'): Shape => ({
  heads: 2,
  kvHeads: 1,
  headDim: 40,
  dtype,
  out: 'f32',
  mask: 'bias',
  hasQueryRow: dtype === 'bf16',
});
const MASKED: Shape = { heads: 1, kvHeads: 1, headDim: 64, dtype: 'bf16', out: 'f32' };
const ANSWERS = [
  { plan: MMA, dtype: 'bf16' },
  { plan: SIMT, dtype: 'f32' },
] as const;
const answering = (dtype: 'bf16' | 'f32'): Shape => ({ heads: 2, kvHeads: 1, headDim: 48, dtype, out: 'f32' });
const FORGETFUL: Shape = { heads: 1, kvHeads: 1, headDim: 32, dtype: 'bf16', out: 'f32' };
/** Every schedule of a plan's skeleton. */
const schedulesLike = (s: Shape, plan: CudaAttentionSchedule): CudaAttentionSchedule[] => {
  const { module, kernel } = attentionModule(s);
  const all = attentionSchedules(kernel, module).filter(({ skeleton }) => skeleton === plan.skeleton);
  return casesHere(all, 0, all.length - 1);
};

prepare([
  ...CASES,
  ...ADVERSARIAL.map(([plan, dtype]) => ({ s: adversarial(dtype), plan })),
  ...[MMA, SIMT].map((plan) => ({ s: GATHERED, plan })),
  ...(['f32', 'bf16'] as const).map((dtype) => ({ s: biased(dtype), plan: SIMT })),
  ...[MMA, schedule('mma', 16), SIMT].map((plan) => ({ s: MASKED, plan })),
  ...ANSWERS.flatMap(({ plan, dtype }) => [
    ...schedulesLike(answering(dtype), plan).map((other) => ({ s: answering(dtype), plan: other })),
    { s: { ...answering(dtype), hasQueryRow: true }, plan },
    { s: answering(dtype), plan, capacity: 1024 },
  ]),
  ...casesHere([{ s: FORGETFUL, plan: MMA }]),
]);

/** Greatest distance from float64; NaN where a value is not a number. */
function distance(s: Shape, plan: CudaAttentionSchedule, data: AttentionData, options?: EmulationOptions): number {
  const { out, buffers } = emulate(s, plan, data, options);
  const want = reference(s, data, buffers);
  expect(out.length).toBe(want.length);
  return out.reduce(
    (worst, x, i) => (Number.isNaN(worst) || Number.isNaN(x) ? NaN : Math.max(worst, Math.abs(x - want[i]!))),
    0,
  );
}

describe('attention on CUDA agrees with float64', () => {
  it.each(CASES.map((c, i) => ({ ...c, i, name: label(c.s, c.plan) })))('$name', ({ s, plan, trees, i }) => {
    const { module, kernel } = attentionModule(s);
    expect(isLegalAttention(kernel, module, plan, { arch: 'sm_80', sharedBytesPerBlock: 166_912 })).toBe(true);
    const data = dataOf(s, ends(trees), i + 1);
    expect(distance(s, plan, data)).toBeLessThan(tolerance(s, plan));
  });

  it.each(casesHere<(typeof ADVERSARIES)[number]>(ADVERSARIES, 0, 1, 2, 4))('on %s', (name, trees) => {
    for (const [plan, dtype] of ADVERSARIAL) {
      const s = adversarial(dtype);
      const data = adversarialData(s, name, trees, 4);
      expect(distance(s, plan, data)).toBeLessThan(tolerance(s, plan));
      if (name !== 'four identical answers') continue;
      // The position of an answer decides what is added up together, and so its last bits, but no more.
      const { out } = emulate(s, plan, data);
      const answer = (i: number): Float64Array => rowsOf(out, 6 * 48, 29 + 13 * i, 29 + 13 * (i + 1));
      for (const i of [1, 2, 3])
        answer(i).forEach((x, at) => {
          expect(Math.abs(x - answer(0)[at]!)).toBeLessThan(2 * tolerance(s, plan));
        });
    }
  });

  it.each([MMA, SIMT])('where queries are gathered, repeated and out of order: $skeleton', (plan) => {
    const s = GATHERED;
    const end = ends(ZOO);
    const random = randomSource(7);
    const row = [
      end.length - 1,
      0,
      ...Array.from({ length: 75 }, () => Math.floor(((random() + 1) / 2) * end.length * 0.999)),
    ];
    expect(distance(s, plan, dataOf(s, end, 3, row))).toBeLessThan(tolerance(s, plan));
    expect(distance(s, plan, dataOf(s, end, 3, [end.length - 2]))).toBeLessThan(tolerance(s, plan));
  });

  it.each(['f32', 'bf16'] as const)('with a materialized bias in %s', (dtype) => {
    const s = biased(dtype);
    const end = ends([deep, single, chain(40)]);
    const T = end.length;
    const random = randomSource(2);
    const bias = Float64Array.from({ length: T * T }, (_, i) => {
      const [q, k] = [Math.floor(i / T), i % T];
      return k <= q && q < end[k]! ? Math.fround(random()) : -Infinity;
    });
    const data = dataOf(s, end, 5, [3, 60, 17]);
    expect(distance(s, SIMT, { T, inputs: new Map([...data.inputs, ['bias', bias]]) })).toBeLessThan(
      tolerance(s, SIMT),
    );
  });
});

/** Every visible key gives the same and every other key nothing: column j counts visible keys that are j modulo d. */
describe.each(casesHere([MMA, schedule('mma', 16), SIMT], 0, 2))(
  'the mask of $skeleton with $queries queries',
  (plan) => {
    it.each([
      ['many shapes', ends(ZOO)],
      ['edges of tiles', ends(EDGES)],
      ['random trees', randomTrees(200, 11, 40).subtreeEnd],
    ] as const)('is exact: %s', (_, end) => {
      const s = MASKED;
      const T = end.length;
      const v = Float64Array.from({ length: T * 64 }, (_unused, i) => (Math.floor(i / 64) % 64 === i % 64 ? 1 : 0));
      const inputs = new Map([
        ['q', new Float64Array(T * 64)],
        ['k', new Float64Array(T * 64)],
        ['v', v],
        ['subtreeEnd', end],
      ]);
      const { out } = emulate(s, plan, { T, inputs });
      for (let q = 0; q < T; q++) {
        const seen = Array.from({ length: T }, (_unused, k) => k).filter((k) => k <= q && q < end[k]!);
        for (let j = 0; j < 64; j++) {
          const want = seen.filter((k) => k % 64 === j).length / seen.length;
          if (Math.abs(out[q * 64 + j]! - want) > 1e-6)
            expect.fail(`query ${q} column ${j}: ${out[q * 64 + j]!}, not ${want}`);
        }
      }
    });
  },
);

describe.each(ANSWERS)('an answer of $plan.skeleton', ({ plan, dtype }) => {
  const s = answering(dtype);
  const company: readonly Tree[] = [branches(9, [3, 4]), chain(50), branches(33, [20, 40, 7, 20]), single, chain(70)];
  const starts = company.map((_, i) => company.slice(0, i).reduce((sum, tree) => sum + tree.length, 0));
  const together = dataOf(s, ends(company), 9);
  const whole = emulate(s, plan, together).out;

  it('has the same bits alone and wherever its tree lies', () => {
    for (const i of [1, 2, 4]) {
      const [from, to] = [starts[i]!, starts[i]! + company[i]!.length];
      expectSame(emulate(s, plan, cut(together, from, to)).out, rowsOf(whole, 96, from, to), `tree ${i} alone`);
      expectSame(
        emulate(s, plan, cut(together, from, together.T)).out,
        rowsOf(whole, 96, from, together.T),
        `trees from ${i} on`,
      );
    }
  });

  it('has the same bits under every legal schedule, and gathered', () => {
    const others = schedulesLike(s, plan);
    expect(others.length).toBe(isThorough ? 4 : 2);
    for (const other of others) expectSame(emulate(s, other, together).out, whole, `${other.queries} queries`);
    const row = [170, 3, 60, 62, 61, 15, together.T - 1];
    const gathered = emulate({ ...s, hasQueryRow: true }, plan, {
      T: together.T,
      inputs: new Map([...together.inputs, ['row', Float64Array.from(row)]]),
    }).out;
    row.forEach((token, i) => {
      expectSame(rowsOf(gathered, 96, i, i + 1), rowsOf(whole, 96, token, token + 1), `token ${token}`);
    });
  });

  it('has the same bits whenever copies arrive and in whatever order threads run', () => {
    expectSame(emulate(s, plan, together, { late: false }).out, whole, 'early copies');
    expectSame(emulate(s, plan, together, { backwards: true }).out, whole, 'backwards');
    expectSame(emulate(s, plan, together, { tokensCapacity: 1024 }).out, whole, 'a larger capacity');
  });

  it('is not affected by NaN and infinity in other trees', () => {
    const poisoned = new Map([...together.inputs].map(([name, x]) => [name, x.slice()]));
    const [from, to] = [starts[2]!, starts[2]! + company[2]!.length];
    for (const name of ['k', 'v', 'q']) {
      const x = poisoned.get(name)!;
      const columns = x.length / together.T;
      for (let row = from; row < to; row++) x.fill(row % 2 === 0 ? NaN : Infinity, row * columns, (row + 1) * columns);
    }
    const got = emulate(s, plan, { T: together.T, inputs: poisoned }).out;
    expectSame(rowsOf(got, 96, 0, from), rowsOf(whole, 96, 0, from), 'before the poison');
    expectSame(rowsOf(got, 96, to, together.T), rowsOf(whole, 96, to, together.T), 'behind the poison');
    expect(rowsOf(got, 96, from, to).every(Number.isNaN)).toBe(true);
  });
});

/** The emulation must notice what it is there to notice. */
describe.runIf(isThorough)('the emulation', () => {
  const s = FORGETFUL;
  const data = dataOf(s, ends([...EDGES, ...ZOO]), 4);
  const whole = isThorough ? emulate(s, MMA, data).out : new Float64Array(0);
  const FORGOTTEN = [
    ['to wait for copies', 'copy_wait<slots - 2>();', ''],
    ['the barrier of a step', '      __syncthreads();  /* The tile is there', '      /* The tile is there'],
    ['the barrier between trees', 'if (stop <= highest) __syncthreads();  /* Keys of the next', '/* Keys of the next'],
    ['to skip by the lowest query', 'tops[tile] <= low)', 'tops[tile] <= low + (high - low))'],
    ['to mask', '> token[e / 2] || token[e / 2] >= end[e % 2]', '> token[e / 2]'],
    [
      'to count tiles from the root',
      'const int key = root + tile * TILE_KEYS;\n      copy_wait',
      'const int key = root / TILE_KEYS * TILE_KEYS + tile * TILE_KEYS;\n      copy_wait',
    ],
  ] as const;
  it.each(FORGOTTEN)('notices a kernel that forgets %s', (_, what, by) => {
    const outcomes = [false, true].map((backwards) => {
      try {
        return emulate(s, MMA, data, { backwards, mutate: (text) => text.replace(what, by) }).out;
      } catch (error) {
        if (String(error).includes('the mutation changed nothing')) throw error;
        return String(error);
      }
    });
    expect(outcomes.some((out) => typeof out === 'string' || out.some((x, i) => !Object.is(x, whole[i])))).toBe(true);
  });
});
