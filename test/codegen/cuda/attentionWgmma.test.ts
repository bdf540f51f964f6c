/**
 * Attention by warpgroup products, emulated: the bits of the kernels on mma.sync, whatever branches where, whenever
 * copies arrive and in whatever order threads run.
 */
import { describe, expect, it } from 'vitest';
import { isLegalAttention } from '../../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere } from '../../support/thorough.js';
import { label, reference, rowsOf, tolerance } from './attentionCases.js';
import { type AttentionData, attentionModule, emulate, prepare, type Shape } from './attentionHarness.js';
import { pathSchedule, PathWorld, tangledCall, treeCall } from './pathCases.js';

const OPTIONS = { tokensCapacity: 4096 };
const HOPPER = { arch: 'sm_90a', sharedBytesPerBlock: 232_448 } as const;

const shape = (heads: number, kvHeads: number, headDim: number, more: Partial<Shape> = {}): Shape => ({
  heads,
  kvHeads,
  headDim,
  dtype: 'bf16',
  out: 'f32',
  mask: 'path',
  ...more,
});
const wgmma = ({ heads, kvHeads }: Shape): CudaAttentionSchedule => ({
  kind: 'attention',
  skeleton: 'wgmma',
  queries: (128 * kvHeads) / heads,
  keys: 32,
});
/** Queries of the same heads in blocks of 16 rows or more. */
const mma = ({ heads, kvHeads }: Shape): CudaAttentionSchedule =>
  pathSchedule('mma', Math.max(1, (64 * kvHeads) / heads));

const CASES = [
  shape(1, 1, 64),
  shape(4, 1, 128, { out: 'bf16' }),
  shape(8, 2, 64, { hasQueryRow: true, cap: 3, out: 'bf16' }),
] as const;
const PLANS = CASES.map((s) => ({ s, plan: wgmma(s) }));
prepare(
  [...PLANS, ...CASES.map((s) => ({ s, plan: mma(s) }))].map((each) => ({ ...each, capacity: OPTIONS.tokensCapacity })),
);

const rowsOfCall = ({ hasQueryRow }: Shape): readonly number[] | undefined =>
  hasQueryRow === true ? [2, 69, 70, 80, 81, 140, 157, 158, 159, 160, 200, 230, 231, 3, 3] : undefined;

describe.each(PLANS.map((each) => ({ ...each, name: label(each.s, each.plan) })))('products: $name', ({ s, plan }) => {
  const data = treeCall(s, 5, rowsOfCall(s));
  const right = emulate(s, mma(s), data, OPTIONS).out;
  const found = (given: AttentionData, options = {}): Float64Array =>
    emulate(s, plan, given, { ...OPTIONS, ...options }).out;

  it('are legal on Hopper only', () => {
    const { module, kernel } = attentionModule(s);
    expect(isLegalAttention(kernel, module, plan, HOPPER)).toBe(true);
    expect(isLegalAttention(kernel, module, plan, { ...HOPPER, arch: 'sm_80' })).toMatch(/sm_90a/);
    const narrow = attentionModule({ ...s, headDim: 80 });
    expect(isLegalAttention(narrow.kernel, narrow.module, plan, HOPPER)).toMatch(/heads of 64 or 128/);
  });

  it('give the bits of products of warps', () => {
    expectSame(found(data), right, 'products');
  });

  it('agree with float64', () => {
    const { out, buffers } = emulate(s, plan, data, OPTIONS);
    const want = reference(s, data, buffers);
    expect(out.every((x, i) => Math.abs(x - want[i]!) < tolerance(s, mma(s)))).toBe(true);
  });

  it('give the same bits whenever copies arrive and in whatever order threads run', () => {
    expectSame(found(data, { late: false }), right, 'early copies');
    expectSame(found(data, { backwards: true }), right, 'backwards');
  });
});

describe('warpgroup products', () => {
  const s = CASES[0];

  it('have the bits of several paths of several chunks, cut anywhere', () => {
    const world = new PathWorld(s, [300, 150, 40], 3);
    const whole = world.call(world.whole, { placement: 1 });
    const want = emulate(s, mma(s), whole, OPTIONS).out;
    expectSame(emulate(s, wgmma(s), whole, OPTIONS).out, want, 'whole');
    const pieces = [
      { sequence: 1, from: 100, to: 150 },
      { sequence: 0, from: 129, to: 260 },
    ];
    const part = world.call(pieces, { placement: 2 });
    expectSame(emulate(s, wgmma(s), part, OPTIONS).out, emulate(s, mma(s), part, OPTIONS).out, 'pieces');
  });

  it('spread NaN and infinity to nobody who does not see them', () => {
    const wanted = emulate(s, wgmma(s), treeCall(s, 5), OPTIONS).out;
    for (const value of [NaN, Infinity]) {
      const data = treeCall(s, 5);
      const token = 69;
      const row = data.inputs.get('key')![token]!;
      for (const name of ['k', 'v']) data.inputs.get(name)!.fill(value, row * s.headDim, (row + 1) * s.headDim);
      const { out } = emulate(s, wgmma(s), data, OPTIONS);
      expectSame(rowsOf(out, s.headDim, 0, token), rowsOf(wanted, s.headDim, 0, token), 'before');
      expectSame(rowsOf(out, s.headDim, token + 1, data.T), rowsOf(wanted, s.headDim, token + 1, data.T), 'behind');
      expect(rowsOf(out, s.headDim, token, token + 1).every(Number.isNaN)).toBe(true);
    }
  });

  // Tiles of one block after another, and of several blocks; seeds at which stems begin and end within a tile.
  const TANGLED = [
    { s: CASES[0], T: 140, seed: 1, multiprocessors: 1 },
    { s: CASES[1], T: 75, seed: 2, multiprocessors: 2 },
    { s: CASES[2], T: 61, seed: 3, multiprocessors: 3 },
  ];
  it.each(casesHere(TANGLED, 0))(
    'have the bits of paths in no order: seed $seed',
    ({ s, T, seed, multiprocessors }) => {
      const data = tangledCall(s, seed, T);
      const want = emulate(s, mma(s), data, OPTIONS).out;
      for (const backwards of [false, true])
        expectSame(emulate(s, wgmma(s), data, { ...OPTIONS, multiprocessors, backwards }).out, want, `${backwards}`);
    },
  );

  it('copy parts whose rows follow each other as boxes, and gather others', () => {
    const data = tangledCall(CASES[2], 3, 61);
    const want = emulate(CASES[2], mma(CASES[2]), data, OPTIONS).out;
    const broken = (from: string, to: string): Float64Array =>
      emulate(CASES[2], wgmma(CASES[2]), data, { ...OPTIONS, mutate: (text) => text.replace(from, to) }).out;
    expect(broken('slab * 64, row,', 'slab * 64, row + 1,')).not.toEqual(want);
    expect(broken('at[j] * stride', '(at[j] ^ 1) * stride')).not.toEqual(want);
    expectSame(broken('boxes = 512', 'boxes = 3'), want, 'more parts than are known');
  });

  const BAD = [
    { value: -Infinity, multiprocessors: 3 },
    { value: NaN, multiprocessors: 2 },
  ];
  it.each(casesHere(BAD, 0))('repeat tiles of several blocks: values of $value', ({ value, multiprocessors }) => {
    const tiled = CASES[2];
    const data = tangledCall(tiled, 4, 36, value);
    const want = emulate(tiled, mma(tiled), data, OPTIONS).out;
    expect(want.some((x) => Object.is(x, value))).toBe(true);
    expect(want.some(Number.isFinite)).toBe(true);
    expectSame(emulate(tiled, wgmma(tiled), data, { ...OPTIONS, multiprocessors }).out, want, 'repeated');
  });
});
