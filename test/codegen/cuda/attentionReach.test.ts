/**
 * Attention by warpgroup products with slopes, windows and chunks, and with heads that leave rows idle, emulated: the
 * bits of the kernels on mma.sync.
 */
import { describe, expect, it } from 'vitest';
import { isLegalAttention } from '../../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, isThorough } from '../../support/thorough.js';
import { MMA } from './attentionCases.js';
import { type AttentionData, attentionModule, emulate, prepare, type Shape } from './attentionHarness.js';
import { withSlopes } from './leaningCases.js';
import { pathSchedule, PathWorld, tangledCall, treeCall } from './pathCases.js';
import { pathShape } from './pathSchedules.js';

const OPTIONS = { tokensCapacity: 4096, multiprocessors: 2 };
const HOPPER = { arch: 'sm_90a', sharedBytesPerBlock: 232_448 } as const;
const SLOPED = { sloped: true } as const;

const CASES = casesHere<Shape>(
  [
    // Llama 4's heads.
    { ...pathShape(5, 1, 64, 'bf16', 'f32'), ...SLOPED, chunk: 70 },
    { ...pathShape(1, 1, 64, 'bf16', 'f32'), ...SLOPED, cap: 3 },
    { ...pathShape(1, 1, 64, 'bf16'), window: 150 },
    { ...pathShape(14, 2, 128, 'bf16'), hasQueryRow: true, window: 45, sinks: 'f32' },
    { ...pathShape(3, 1, 64, 'bf16'), chunk: 256 },
    { ...pathShape(2, 1, 64, 'bf16'), ...SLOPED, slopeFactor: 0.125, hasQueryRow: true, chunk: 130 },
  ],
  0,
);
const wgmma = ({ heads, kvHeads }: Shape): CudaAttentionSchedule => ({
  ...MMA,
  skeleton: 'wgmma',
  queries: 2 * Math.floor((64 * kvHeads) / heads),
});
const mma = pathSchedule('mma', 8);
prepare(CASES.flatMap((s) => [wgmma(s), mma].map((plan) => ({ s, plan, capacity: OPTIONS.tokensCapacity }))));

const withAll = (data: AttentionData, s: Shape): AttentionData => {
  const { T, inputs } = withSlopes(data, s);
  const sink = s.sinks === undefined ? [] : [['sink', new Float64Array(s.heads).fill(0.5)] as const];
  return { T, inputs: new Map([...inputs, ...sink]) };
};

/** Paths that end within the list of keys: where a window lies of one that does not, kernels need not agree. */
function withinList({ T, inputs }: AttentionData): AttentionData {
  const [begin, key] = [inputs.get('begin')!, inputs.get('key')!];
  const position = inputs.get('position')!.map((last, i) => Math.min(last, Math.max(key.length - begin[i]! - 1, -1)));
  return { T, inputs: new Map([...inputs, ['position', position]]) };
}

describe.each(CASES.map((s) => ({ s, name: JSON.stringify(s) })))('products of warpgroups: $name', ({ s }) => {
  const same = (given: AttentionData, what: string, backwards = false): void => {
    const data = withAll(given, s);
    const want = emulate(s, mma, data, OPTIONS).out;
    expectSame(emulate(s, wgmma(s), data, { ...OPTIONS, backwards }).out, want, what);
  };
  const row = s.hasQueryRow === true ? [2, 69, 70, 80, 81, 140, 157, 158, 200, 230, 231, 3, 3] : undefined;

  it('are legal', () => {
    const { module, kernel } = attentionModule(s);
    expect(isLegalAttention(kernel, module, wgmma(s), HOPPER)).toBe(true);
  });

  it('have the bits of products of warps: trees', () => {
    same(treeCall(s, 5, row), 'trees');
    if (isThorough) same(treeCall(s, 6, row), 'backwards', true);
  });

  it('have the bits of products of warps: paths in no order', () => {
    same(withinList(tangledCall(s, 2, 61)), 'in no order');
    if (!isThorough) return;
    for (const seed of [1, 3, 4]) same(withinList(tangledCall(s, seed, 90)), `seed ${seed}`, seed === 3);
    for (const value of [NaN, -Infinity]) same(withinList(tangledCall(s, 4, 36, value)), `values of ${value}`);
  });

  it.runIf(isThorough)('have the bits of products of warps: texts of several chunks, cut anywhere', () => {
    const { hasQueryRow: _, ...all } = s;
    const world = new PathWorld(all, [300, 150, 40], 3);
    const pieces = [
      { sequence: 1, from: 100, to: 150 },
      { sequence: 0, from: 129, to: 300 },
    ];
    const given = world.call(pieces, {
      placement: 2,
      ...(s.hasQueryRow === true ? { row: [3, 9, 60, 180, 220] } : {}),
    });
    same(given, 'pieces');
    same(world.call(pieces, { ...(s.hasQueryRow === true ? { row: [3, 9, 60, 180, 220] } : {}) }), 'in order');
  });
});
