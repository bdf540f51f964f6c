/**
 * Attention of clusters of several queries, emulated: whatever runs the queries are, each gets the bits that blocks of
 * its own give it, and the keys of a run are read once.
 */
import { describe, expect, it } from 'vitest';
import type { ClusterSize, CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, isThorough, thorough } from '../../support/thorough.js';
import { label, reference, tolerance } from './attentionCases.js';
import { type AttentionData, emulate, prepare, type Shape } from './attentionHarness.js';
import { pathSchedule, PathWorld, type Piece, siblingsCall, tangledCall } from './pathCases.js';
import { pathShape } from './pathSchedules.js';

const OPTIONS = { tokensCapacity: 4096 };
const runs = (queries: number, cluster: ClusterSize, teams?: number): CudaAttentionSchedule => ({
  ...pathSchedule('mma', queries),
  cluster,
  ...(teams === undefined ? {} : { teams }),
});
const single = pathSchedule('mma', 1);

/** A block or more for each query, one team and two; one tile of rows and two; windows, codes, capped scores. */
const CASES: readonly { readonly s: Shape; readonly plan: CudaAttentionSchedule }[] = [
  { s: { ...pathShape(4, 1, 32, 'bf16', 'f32'), hasQueryRow: true, window: 70 }, plan: runs(8, 8) },
  { s: pathShape(4, 1, 32, 'bf16', 'f32'), plan: runs(4, 4) },
  { s: pathShape(8, 2, 64, 'bf16'), plan: runs(4, 8, 2) },
  { s: pathShape(3, 1, 128, 'f16', 'f32'), plan: runs(2, 8) },
  { s: pathShape(7, 1, 80, 'bf16'), plan: runs(4, 4, 2) },
  { s: pathShape(1, 1, 16, 'bf16', 'f32'), plan: runs(8, 8) },
  { s: { ...pathShape(4, 1, 32, 'bf16', 'f32'), scaled: 'e4m3' }, plan: runs(4, 4) },
  { s: { ...pathShape(16, 2, 96, 'f16', 'f32'), scaled: 'i8', cap: 3 }, plan: runs(4, 8) },
  { s: { ...pathShape(2, 1, 48, 'bf16', 'f32'), cap: 3, window: 200 }, plan: runs(8, 8) },
];
const HERE = casesHere(CASES, 0);
prepare(
  HERE.flatMap(({ s, plan }) => [plan, single].map((each) => ({ s, plan: each, capacity: OPTIONS.tokensCapacity }))),
);

const LENGTHS = [300, 40, 135, 1, 430, 129];
/** A text and its drafts across a tile, across a chunk and short ones; more than a cluster has queries; one alone. */
const PIECES: readonly Piece[] = [
  { sequence: 0, from: 296, to: 300 },
  { sequence: 1, from: 29, to: 35 },
  { sequence: 3, from: 0, to: 1 },
  { sequence: 4, from: 420, to: 430 },
  { sequence: 2, from: 125, to: 131 },
  { sequence: 5, from: 128, to: 129 },
];

/**
 * The call, with a list of asked rows if the shape has one: by default each token's, but one row twice and one that is
 * nobody's.
 */
function callOf(s: Shape, seed: number, pieces = PIECES, rowOf = (i: number) => (i === 7 ? -1 : i === 9 ? 8 : i)) {
  const tokens = pieces.reduce((sum, { from, to }) => sum + to - from, 0);
  const row = Array.from({ length: tokens }, (_, i) => rowOf(i));
  return new PathWorld(s, LENGTHS, seed).call(pieces, { placement: 1, ...(s.hasQueryRow === true ? { row } : {}) });
}

describe.each(HERE.map((each) => ({ ...each, name: label(each.s, each.plan) })))('runs: $name', ({ s, plan }) => {
  const found = (data: AttentionData, options = {}): Float64Array =>
    emulate(s, plan, data, { ...OPTIONS, ...options }).out;
  const expectBits = (data: AttentionData, options = {}, what = ''): void =>
    expectSame(found(data, options), emulate(s, single, data, OPTIONS).out, `${what} ${JSON.stringify(options)}`);

  it('give drafts the bits of blocks of their own, whenever copies arrive', () => {
    const data = callOf(s, 1);
    for (const options of casesHere([{}, { late: false }, { backwards: true }], 0, 2)) expectBits(data, options);
  });

  it.each(casesHere([1, 2, 3, 5, 16], 1))('of %i tokens of every text', (size) => {
    const pieces = LENGTHS.map((to, sequence) => ({ sequence, from: Math.max(0, to - size), to }));
    expectBits(callOf(s, 2, pieces));
  });

  it.runIf(isThorough && s.scaled === undefined)(
    'part where a value is not finite that some of them do not see',
    () => {
      for (const value of casesHere([NaN, Infinity], 0)) {
        const data = callOf(s, 3);
        // The first, a middle and the last token of runs, and one that a window has left.
        for (const at of [0, 300 + 31, 300 + 40 + 128, 300 + 40 + 135 + 1 + 429, 300 - 71]) {
          const columns = s.kvHeads * s.headDim;
          const place = new PathWorld(s, LENGTHS, 3).place(at, 1);
          for (const name of ['k', 'v']) data.inputs.get(name)!.fill(value, place * columns, (place + 1) * columns);
        }
        expectBits(data, {}, String(value));
      }
    },
  );

  it.skipIf(s.scaled !== undefined).each(casesHere([undefined, Infinity, NaN], 1))(
    'give the bits of lists in no order, with values of %s',
    (value) => {
      for (const seed of casesHere([1, 2, 3, 4, 5, 6, 7, 8], 0)) expectBits(tangledCall(s, seed, 61, value));
    },
  );

  thorough('give those of siblings', () =>
    expectBits(
      siblingsCall(
        s,
        1,
        [
          { stem: 170, own: [3, 40, 1, 22] },
          { stem: 64, own: [0, 0, 32] },
        ],
        33,
      ),
    ),
  );

  thorough('agree with float64', () => {
    const data = callOf(s, 4, PIECES, (i) => i);
    const { out, buffers } = emulate(s, plan, data, OPTIONS);
    const want = reference(s, data, buffers);
    const most = (s.scaled === undefined ? 1 : 4) * tolerance(s, plan);
    expect(out.every((x, i) => Math.abs(x - want[i]!) < most)).toBe(true);
  });
});

describe('runs', () => {
  const { s, plan } = CASES[0]!;
  // Also a run backwards, and two texts of which one has a key more than the one before it.
  const pieces = [...PIECES, { sequence: 5, from: 128, to: 129 }, { sequence: 2, from: 129, to: 130 }];
  const data = callOf(s, 5, pieces, (i) => (i < 4 ? 3 - i : i));
  const right = (): Float64Array => emulate(s, single, data, OPTIONS).out;
  const broken = (given: AttentionData, from: string, to: string): Float64Array =>
    emulate(s, plan, given, { ...OPTIONS, mutate: (text) => text.replace(from, to) }).out;

  thorough('read keys once for all queries of a cluster that go on in one list', () => {
    // Nobody misses the scores of blocks with others than every eighth tile, where eight blocks share every path.
    const from = 'const int chunk = chunk_of(round), key';
    const to = 'if (workers != 8 && chunk_of(round) < chunks) break;\n    const int chunk = chunk_of(round), key';
    const eights = callOf(
      s,
      6,
      [
        { sequence: 0, from: 292, to: 300 },
        { sequence: 4, from: 415, to: 423 },
      ],
      (i) => i,
    );
    expectSame(broken(eights, from, to), emulate(s, single, eights, OPTIONS).out, 'runs of eight');
  });

  const NEEDED = [
    ['what each row sees', 'at >= keys[half]', 'at >= keys[0]'],
    ['that a list ends', 'own.begin == begin_before', 'true'],
    ['that queries go on', 'own.keys > keys_before', 'true'],
    ['which block begins a run', 'first_rank = from * blocks_of_query;', 'first_rank = 0;'],
    ['rows of the second tile', 'team.has(2 * m)', 'm == 0'],
    ['queries of the second tile', 'LeftQueries<config>(memory, m).leave', 'LeftQueries<config>(memory, 0).leave'],
    ['how many bytes come', 'run.rows() * 8)', 'Layout::group * 8)'],
  ] as const;
  it.each(casesHere<(typeof NEEDED)[number]>(NEEDED))('need %s', (_what, from, to) => {
    let out: Float64Array | undefined;
    try {
      out = broken(data, from, to);
    } catch (error) {
      expect(String(error)).toContain('wait for each other for ever');
    }
    expect(out).not.toEqual(right());
  });
});
