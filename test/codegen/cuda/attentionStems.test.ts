/**
 * Attention of lone warps with several queries, emulated: whatever their lists have in common, each query gets the bits
 * that a block of its own gives it, and what lists begin with is read once.
 */
import { describe, expect, it } from 'vitest';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { label, reference, tolerance } from './attentionCases.js';
import { type AttentionData, emulate, prepare, type Shape } from './attentionHarness.js';
import { type Family, pathSchedule, siblingsCall, tangledCall } from './pathCases.js';
import { pathShape } from './pathSchedules.js';

const OPTIONS = { tokensCapacity: 4096 };
const stems = (queries: number): CudaAttentionSchedule => ({ ...pathSchedule('mma', queries), lone: 5 });
const single = pathSchedule('mma', 1);

/** Totals in registers and in shared memory; groups that fill a tile and one that does not; codes; capped scores. */
const CASES: readonly { readonly s: Shape; readonly queries: number }[] = [
  { s: { ...pathShape(8, 2, 64, 'bf16', 'f32'), hasQueryRow: true }, queries: 4 },
  { s: pathShape(3, 1, 128, 'f16', 'f32'), queries: 4 },
  { s: pathShape(1, 1, 16, 'bf16', 'f32'), queries: 16 },
  { s: pathShape(7, 1, 80, 'bf16'), queries: 2 },
  { s: { ...pathShape(4, 1, 32, 'bf16', 'f32'), scaled: 'e4m3' }, queries: 4 },
  { s: { ...pathShape(4, 1, 96, 'f16', 'f32'), scaled: 'i8', cap: 3 }, queries: 4 },
  { s: { ...pathShape(2, 1, 48, 'bf16', 'f32'), cap: 3 }, queries: 8 },
];
const HERE = casesHere(CASES, 1);
prepare(
  HERE.flatMap(({ s, queries }) =>
    [stems(queries), single].map((plan) => ({ s, plan, capacity: OPTIONS.tokensCapacity })),
  ),
);

/** Whole chunks in common, less than a tile; paths that are others' beginnings; one alone; families across blocks. */
const FAMILIES: readonly Family[] = [
  { stem: 170, own: [3, 40, 1, 22] },
  { stem: 5, own: [1, 300, 30] },
  { stem: 0, own: [96] },
  { stem: 64, own: [0, 0, 32, 5, 64, 2] },
  { stem: 128, own: [1, 1, 1] },
];

describe.each(HERE.map((each) => ({ ...each, name: label(each.s, stems(each.queries)) })))(
  'stems: $name',
  ({ s, queries }) => {
    const found = (data: AttentionData, options = {}): Float64Array =>
      emulate(s, stems(queries), data, { ...OPTIONS, ...options }).out;
    const expectBits = (data: AttentionData, options = {}): void =>
      expectSame(found(data, options), emulate(s, single, data, OPTIONS).out, JSON.stringify(options));

    it.each(casesHere([0, 33, 130], 1))(
      'give siblings with %i keys in common the bits of blocks of their own',
      (common) => {
        const data = siblingsCall(s, 1, FAMILIES, common);
        for (const options of [{}, { late: false }, { backwards: true }]) expectBits(data, options);
      },
    );

    thorough('agree with float64', () => {
      const data = siblingsCall(s, 2, FAMILIES);
      const { out, buffers } = emulate(s, stems(queries), data, OPTIONS);
      const want = reference(s, data, buffers);
      const most = (s.scaled === undefined ? 1 : 4) * tolerance(s, stems(queries));
      expect(out.every((x, i) => Math.abs(x - want[i]!) < most)).toBe(true);
    });

    it.skipIf(s.scaled !== undefined).each(casesHere([undefined, Infinity, NaN], 1))(
      'give the bits of paths in no order, with values of %s among theirs and others',
      (value) => {
        for (const seed of casesHere([1, 2, 3, 4, 5, 6, 7, 8], 0)) expectBits(tangledCall(s, seed, 61, value));
      },
    );
  },
);

describe('stems', () => {
  const { s, queries } = CASES[0]!;
  const data = siblingsCall(s, 3, FAMILIES, 40);
  const right = (): Float64Array => emulate(s, single, data, OPTIONS).out;
  const broken = (given: AttentionData, from: string, to: string): Float64Array =>
    emulate(s, stems(queries), given, { ...OPTIONS, mutate: (text) => text.replace(from, to) }).out;

  thorough('are read once for all siblings of a block', () => {
    // Without what later lists begin with, nobody misses anything but those whose list begins otherwise.
    const [from, to] = [
      'queries;\n    place = next_place;',
      'queries;\n    place = next.run > 0 && next.index < 2 ? -1 : next_place;',
    ];
    const alike = siblingsCall(s, 3, [
      { stem: 64, own: [3, 40, 1, 22] },
      { stem: 70, own: [9, 1, 33, 2] },
    ]);
    expectSame(broken(alike, from, to), emulate(s, single, alike, OPTIONS).out, 'two families');
    const others = siblingsCall(s, 3, [
      { stem: 64, own: [3, 40] },
      { stem: 70, own: [9, 1] },
    ]);
    expect(broken(others, from, to)).not.toEqual(emulate(s, single, others, OPTIONS).out);
  });

  const NEEDED = [
    ['which lists part in a tile', 'common = next.index;', 'common = next.index + 1;'],
    ['that entries differ', 'others[q] != next_place', 'false'],
    ['who shares a tile', 'common > tile.index', 'common >= tile.index'],
    ['where a list goes on alone', '{ first, __shfl_sync(ALL_LANES, common, first) }', '{ first, 0 }'],
    ['the end of a chunk', 'end_chunk<0>(total, key > CHUNK,', 'end_chunk<0>(total, false,'],
    ['the total of the chunks before', 'if (end[0] >= CHUNK) add_total<0>', 'if (false) add_total<0>'],
    ['to wait for a part', 'copy_wait<parts - 1>();', ''],
    ['that rows do not see others’ tiles', 'query_of[0] >= tile.run && query_of[0] < to ? end[0]', 'true ? end[0]'],
  ] as const;
  it.each(casesHere<(typeof NEEDED)[number]>(NEEDED))('need %s', (_what, from, to) => {
    expect(broken(data, from, to)).not.toEqual(right());
  });
});
