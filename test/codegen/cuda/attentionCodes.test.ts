/**
 * Attention over keys and values in codes (E4M3, int8) on CUDA, run without a GPU (test/support/cudaWarp): compared
 * with float64 on the same codes, and the same bits under all schedules, cuts of a prompt and places of keys.
 */
import { describe, expect, it } from 'vitest';
import { attentionSchedules, isLegalAttention } from '../../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { hasNvcc } from '../../support/nvcc.js';
import { label, reference, rowsOf, tolerance } from './attentionCases.js';
import { attentionModule, emulate, prepare, type Shape } from './attentionHarness.js';
import { HOPPER, schedule, SHAPE, testRegisters } from './attentionRegisters.js';
import { gather, pathSchedule, PathWorld, type Piece, treeCall } from './pathCases.js';
import { pathShape } from './pathSchedules.js';

const CAPACITY = 2048;
const OPTIONS = { tokensCapacity: CAPACITY };

const coded = (...shape: Parameters<typeof pathShape>): Shape => ({ ...pathShape(...shape), scaled: 'e4m3' });
const whole = (s: Shape): Shape => ({ ...s, scaled: 'i8' });
const SHARED = { ...pathSchedule('mma', 16), sharesTiles: true } as const;
const DECODE = pathSchedule('mma', 1);
const LONE = { ...DECODE, lone: 5 } as const;

const CASES: readonly { readonly s: Shape; readonly plan: CudaAttentionSchedule }[] = [
  { s: coded(4, 1, 32, 'bf16', 'f32'), plan: pathSchedule('mma', 4) },
  { s: coded(7, 1, 48, 'f16'), plan: DECODE },
  { s: coded(4, 1, 128, 'bf16'), plan: DECODE },
  { s: coded(4, 1, 128, 'bf16'), plan: LONE },
  { s: coded(2, 2, 80, 'bf16', 'f32'), plan: SHARED },
  { s: { ...coded(4, 2, 64, 'bf16', 'f32'), cap: 3 }, plan: pathSchedule('mma', 8) },
  { s: coded(3, 1, 37, 'bf16', 'f32'), plan: pathSchedule('simt', 4) },
  { s: whole(coded(4, 1, 128, 'bf16')), plan: DECODE },
  { s: whole(coded(2, 2, 80, 'f16', 'f32')), plan: SHARED },
  { s: whole(coded(3, 1, 37, 'bf16', 'f32')), plan: pathSchedule('simt', 4) },
];
/** Queries in registers and read again for each tile; a window; a group that needs both halves of a tile. */
const BITS: readonly { readonly s: Shape; readonly plans: readonly CudaAttentionSchedule[] }[] = [
  {
    s: coded(4, 1, 32, 'bf16', 'f32'),
    plans: [pathSchedule('mma', 16), DECODE, { ...DECODE, cluster: 2, teams: 2 }, LONE, SHARED],
  },
  { s: { ...coded(12, 1, 80, 'bf16', 'f32'), cap: 3, window: 40 }, plans: [pathSchedule('mma', 4), DECODE, LONE] },
  { s: whole(coded(4, 1, 48, 'bf16', 'f32')), plans: [pathSchedule('mma', 16), DECODE, LONE] },
];

prepare([
  ...CASES.map((each) => ({ ...each, capacity: CAPACITY })),
  ...BITS.flatMap(({ s, plans }) => plans.map((plan) => ({ s, plan, capacity: CAPACITY }))),
]);

describe('attention over codes agrees with float64', () => {
  it.each(CASES.map((c, i) => ({ ...c, i, name: label(c.s, c.plan) })))('$name', ({ s, plan, i }) => {
    const world = new PathWorld(s, [1, 5, 33, 70, 300], i + 1);
    const pieces: readonly Piece[] = [...world.whole.slice(0, 4), { sequence: 4, from: 297, to: 300 }];
    for (const data of [world.call(pieces, { placement: 1 })]) {
      const { out, buffers } = emulate(s, plan, data, OPTIONS);
      const want = reference(s, data, buffers);
      // Values are below 4 where numbers without codes are below 1.
      const most = 4 * tolerance(s, plan);
      out.forEach((x, at) => {
        if (!(Math.abs(x - want[at]!) < most)) expect.fail(`element ${at} is ${x}, not ${want[at]!}`);
      });
    }
  });
});

describe.each(BITS)('an answer over codes of $s.heads/$s.kvHeads heads of $s.headDim', ({ s, plans }) => {
  const world = new PathWorld(s, [45, 1, 170, 18], 7);
  const run = (pieces: readonly Piece[], placement = 0, plan = plans[0]!): Float64Array =>
    emulate(s, plan, world.call(pieces, { placement }), OPTIONS).out;
  const whole = run(world.whole);

  it('has the same bits under different schedules', () => {
    for (const plan of plans) expectSame(run(world.whole, 1, plan), whole, JSON.stringify(plan));
  });

  it('has the same bits where prompts come in chunks', () => {
    const chunked = gather(world, world.chunks(7), (pieces) => run(pieces, 7, plans.at(-1)!));
    expectSame(chunked, whole, 'chunks of 7');
  });

  it('is not affected by codes and scales that it does not see', () => {
    const data = world.call(world.whole);
    const place = data.inputs.get('key')![40]!;
    for (const name of ['k', 'v']) {
      const columns = s.kvHeads * s.headDim;
      // Whole numbers have no NaN: the scale alone says it.
      data.inputs.get(name)!.fill(s.scaled === 'i8' ? 127 : NaN, place * columns, (place + 1) * columns);
      data.inputs.get(`${name}Scale`)!.fill(name === 'k' ? NaN : Infinity, place * s.kvHeads, (place + 1) * s.kvHeads);
    }
    const width = s.heads * s.headDim;
    for (const plan of plans) {
      const { out } = emulate(s, plan, data, OPTIONS);
      expectSame(rowsOf(out, width, 0, 40), rowsOf(whole, width, 0, 40), 'before');
      expectSame(rowsOf(out, width, 45, data.T), rowsOf(whole, width, 45, data.T), 'other sequences');
      expect(rowsOf(out, width, 40, 45).every(Number.isNaN)).toBe(true);
    }
  });

  it.skipIf(!plans.includes(SHARED))('has the same bits where tiles of trees are shared', () => {
    const data = treeCall(s, 3);
    const wanted = emulate(s, plans[0]!, data, OPTIONS).out;
    expectSame(emulate(s, SHARED, data, OPTIONS).out, wanted, 'shared tiles');
  });
});

it('large and small queries, keys and values cost no accuracy', () => {
  const s = coded(2, 1, 32, 'bf16', 'f32');
  const plan = pathSchedule('mma', 16);
  for (const [queries, keys, values] of [
    [1e6, 1e-6, 1e8],
    [1e-8, 1e7, 1e-9],
  ] as const) {
    const data = new PathWorld(s, [40], 11).call([{ sequence: 0, from: 0, to: 40 }]);
    const scale = (name: string, by: number): void => {
      const own = data.inputs.get(name)!;
      own.forEach((x, i) => (own[i] = Math.fround(x * by)));
    };
    scale('q', queries);
    scale('kScale', keys);
    scale('vScale', values);
    const { out, buffers } = emulate(s, plan, data, OPTIONS);
    const want = reference(s, data, buffers);
    out.forEach((x, at) => expect(Math.abs(x - want[at]!) / values).toBeLessThan(4 * tolerance(s, plan)));
  }
});

describe('schedules over codes', () => {
  it('are those of mma.sync over paths, and CUDA cores for all else', () => {
    const skeletons = (s: Shape): readonly string[] => {
      const { module, kernel } = attentionModule(s);
      return [...new Set(attentionSchedules(kernel, module, HOPPER).map(({ skeleton }) => skeleton))];
    };
    expect(skeletons({ ...SHAPE, mask: 'path', scaled: 'e4m3' })).toEqual(['mma', 'simt']);
    expect(skeletons({ ...SHAPE, scaled: 'e4m3' })).toEqual(['simt']);
    const { module, kernel } = attentionModule({ ...SHAPE, mask: 'path', scaled: 'e4m3' });
    const { scales: _, ...plain } = kernel;
    expect(isLegalAttention(plain, module, schedule('mma', 1), HOPPER)).toMatch(/one dtype/);
  });
});

if (!hasNvcc) console.warn('SKIPPED: nvcc is not on PATH, so no attention over codes was compiled for a GPU.');
testRegisters(
  [
    [{ ...SHAPE, mask: 'path', scaled: 'e4m3' }, schedule('mma', 1), 4],
    [{ ...SHAPE, kvHeads: 13, mask: 'path', scaled: 'e4m3' }, schedule('mma', 1), 4],
    [{ ...SHAPE, kvHeads: 13, mask: 'path', scaled: 'e4m3' }, schedule('mma', 16), 2],
    [{ ...SHAPE, kvHeads: 13, mask: 'path', scaled: 'e4m3', cap: 30 }, { ...schedule('mma', 4), lone: 8 }, 8],
    [{ ...SHAPE, kvHeads: 13, headDim: 64, mask: 'path', scaled: 'i8' }, { ...schedule('mma', 4), lone: 8 }, 8],
    [{ ...SHAPE, mask: 'path', scaled: 'e4m3' }, { ...schedule('mma', 64), sharesTiles: true }, 3],
  ],
  ['sm_90a'],
);
