/**
 * Attention over the branches of trees, emulated: blocks that read the tiles of a stem once give the bits of those that
 * read every path by itself, whatever branches where.
 */
import { describe, expect, it } from 'vitest';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere } from '../../support/thorough.js';
import { label, reference, rowsOf, tolerance } from './attentionCases.js';
import { type AttentionData, emulate, prepare, type Shape } from './attentionHarness.js';
import { pathSchedule, treeCall } from './pathCases.js';

const OPTIONS = { tokensCapacity: 4096 };

const shape = (heads: number, kvHeads: number, headDim: number, dtype: 'bf16' | 'f16', hasQueryRow = false): Shape => ({
  heads,
  kvHeads,
  headDim,
  dtype,
  out: 'f32',
  mask: 'path',
  hasQueryRow,
});
const shared = (queries: number): CudaAttentionSchedule => ({ ...pathSchedule('mma', queries), sharesTiles: true });

/** Queries in registers and in shared memory, groups that fill a tile and one that does not, two and three slots. */
const CASES: readonly { readonly s: Shape; readonly queries: number }[] = [
  { s: shape(1, 1, 16, 'bf16'), queries: 64 },
  { s: shape(4, 1, 32, 'f16', true), queries: 8 },
  { s: shape(7, 1, 16, 'bf16'), queries: 4 },
  { s: shape(2, 2, 80, 'bf16'), queries: 32 },
];
const PLANS = casesHere(CASES, 0, 1).flatMap(({ s, queries }) =>
  [shared(queries), pathSchedule('mma', queries)].map((plan) => ({ s, plan, capacity: OPTIONS.tokensCapacity })),
);
prepare(PLANS);

const rowsOfCall = ({ hasQueryRow }: Shape): readonly number[] | undefined =>
  hasQueryRow === true ? [2, 69, 70, 80, 81, 140, 157, 158, 159, 160, 200, 230, 231, 3, 3] : undefined;

describe.each(casesHere(CASES, 0, 1).map((each) => ({ ...each, name: label(each.s, shared(each.queries)) })))(
  'shared tiles: $name',
  ({ s, queries }) => {
    const data = treeCall(s, 5, rowsOfCall(s));
    const right = emulate(s, pathSchedule('mma', queries), data, OPTIONS).out;
    const found = (given: AttentionData, options = {}): Float64Array =>
      emulate(s, shared(queries), given, { ...OPTIONS, ...options }).out;

    it('give the bits of paths that are read one by one', () => {
      expectSame(found(data), right, 'shared');
    });

    it('agree with float64', () => {
      const { out, buffers } = emulate(s, shared(queries), data, OPTIONS);
      const want = reference(s, data, buffers);
      expect(out.every((x, i) => Math.abs(x - want[i]!) < tolerance(s, shared(queries)))).toBe(true);
    });

    it('give the same bits whenever copies arrive and in whatever order threads run', () => {
      expectSame(found(data, { late: false }), right, 'early copies');
      expectSame(found(data, { backwards: true }), right, 'backwards');
    });
  },
);

describe('shared tiles', () => {
  const { s, queries } = CASES[0]!;

  it('spread NaN and infinity to nobody who does not see them', () => {
    const wanted = emulate(s, shared(queries), treeCall(s, 5), OPTIONS).out;
    for (const value of [NaN, Infinity]) {
      const data = treeCall(s, 5);
      // The last token of the first branch: it sees itself, and nobody else does.
      const token = 69;
      const row = data.inputs.get('key')![token]!;
      for (const name of ['k', 'v']) data.inputs.get(name)!.fill(value, row * s.headDim, (row + 1) * s.headDim);
      const { out } = emulate(s, shared(queries), data, OPTIONS);
      expectSame(rowsOf(out, s.headDim, 0, token), rowsOf(wanted, s.headDim, 0, token), 'before');
      expectSame(rowsOf(out, s.headDim, token + 1, data.T), rowsOf(wanted, s.headDim, token + 1, data.T), 'behind');
      expect(rowsOf(out, s.headDim, token, token + 1).every(Number.isNaN)).toBe(true);
    }
  });

  const NEEDED = [
    ['the tiles that a run has from the run before', 'table.shared[run] = tiles;', 'table.shared[run] = tiles + 1;'],
    ['the runs that share a tile', 'table.shared[to] > tile.index', 'table.shared[to] > tile.index + 1'],
    ['the end of a chunk', 'key > from0 + CHUNK,', 'false,'],
    [
      'the total of the chunks before',
      'if (last[0] / CHUNK > first_seen<config>(last[0]) / CHUNK) add_total<0>',
      'if (false) add_total<0>',
    ],
  ] as const;
  it.each(casesHere<(typeof NEEDED)[number]>(NEEDED))('need %s', (_what, text, by) => {
    const data = treeCall(s, 5);
    const right = emulate(s, shared(queries), data, OPTIONS).out;
    const { out } = emulate(s, shared(queries), data, { ...OPTIONS, mutate: (source) => source.replace(text, by) });
    expect(out.some((x, i) => !Object.is(x, right[i]))).toBe(true);
  });
});
