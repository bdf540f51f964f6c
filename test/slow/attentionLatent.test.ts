/** Latent attention on tensor cores, run over fibres: near float64, and the same bits whatever the schedule. */
import { describe, expect, it } from 'vitest';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { expectSame } from '../support/numbers.js';
import { reference, tolerance } from '../codegen/cuda/attentionCases.js';
import { emulate, prepare, type Shape } from '../codegen/cuda/attentionHarness.js';
import { LATENT_SHAPES, withTails } from '../codegen/cuda/latentCases.js';
import { pathSchedule, type Piece, PathWorld } from '../codegen/cuda/pathCases.js';
import { schedulesOf } from '../codegen/cuda/pathSchedules.js';

const OPTIONS = { tokensCapacity: 2304 };
const SHAPES: readonly Shape[] = LATENT_SHAPES;
const [WIDE, PARTED] = LATENT_SHAPES;
const SCHEDULES = new Map(SHAPES.map((s) => [s, schedulesOf(s)]));
/** Ends of paths of one stream, two, three, seven to nine, 15 and 16, and of more chunks: streams of several. */
const ROWS = [0, 128, 383, 895, 1023, 1024, 1919, 2047, 2048, 2049, 2053];
const LENGTHS = [2049, 5];
/** Columns enough for a cluster of 16, which is legal but in no list. */
const WIDEST: Shape = { ...WIDE, headDim: 256 };
const CLUSTERS = ([undefined, 2, 4, 8, 16] as const).map((cluster) => ({
  ...pathSchedule('mma', 1),
  ...(cluster === undefined ? {} : { cluster }),
  teams: 2,
}));

prepare(
  [
    ...SHAPES.flatMap((s) => SCHEDULES.get(s)!.map((plan) => ({ s, plan }))),
    ...CLUSTERS.map((plan) => ({ s: WIDEST, plan })),
  ].map((each) => ({ ...each, capacity: OPTIONS.tokensCapacity })),
);

const answersOf = (world: PathWorld, pieces: readonly Piece[], row: readonly number[], plan: CudaAttentionSchedule) => {
  const data = withTails(world.call(pieces, { placement: 1, row }), world.shape);
  return { data, ...emulate(world.shape, plan, data, OPTIONS) };
};

describe('latent attention on tensor cores', () => {
  it('has blocks of one query and of two, and clusters', () => {
    const printed = (s: Shape): readonly string[] =>
      SCHEDULES.get(s)!.map(({ queries, cluster = 1, teams = 1 }) => `${queries} by ${cluster} of ${teams}`);
    const of = (cluster: number): readonly string[] => [`1 by ${cluster} of 1`, `1 by ${cluster} of 2`];
    expect(printed(WIDE)).toEqual([...[1, 2, 4, 8].flatMap(of), '2 by 1 of 1']);
    expect(printed(PARTED)).toEqual([1, 2, 4].flatMap(of));
    expect(schedulesOf({ ...WIDE, cap: 3 })).toEqual([]);
    expect(schedulesOf({ ...WIDE, tail: 32 })).toEqual([]);
  });

  it.each(SHAPES.map((s) => ({ s, heads: s.heads })))('is near float64, to the same bits: $heads heads', ({ s }) => {
    const world = new PathWorld(s, LENGTHS, 4);
    const runs = SCHEDULES.get(s)!.map((plan) => ({ plan, ...answersOf(world, world.whole, ROWS, plan) }));
    const [{ out: first, data, buffers, plan }] = runs as [(typeof runs)[0]];
    const want = reference(s, data, buffers);
    const limit = 3 * tolerance(s, plan);
    first.forEach((x, i) => {
      if (!(Math.abs(x - want[i]!) < limit)) expect.fail(`element ${i} is ${x}, not ${want[i]!}`);
    });
    for (const { out } of runs) expectSame(out, first);
    // A token alone in its call, behind what is kept.
    const alone = answersOf(world, [{ sequence: 0, from: 2048, to: 2049 }], [0], runs.at(-1)!.plan);
    const width = s.heads * s.headDim;
    expectSame(alone.out, first.slice(ROWS.indexOf(2048) * width, (ROWS.indexOf(2048) + 1) * width));
    // CUDA cores agree.
    const simt = answersOf(world, [{ sequence: 1, from: 0, to: 5 }], [4], pathSchedule('simt', 4)).out;
    simt.forEach((x, i) => {
      expect(Math.abs(x - want[ROWS.indexOf(2053) * width + i]!)).toBeLessThan(limit);
    });
  });

  it('has the same bits in clusters of up to 16', () => {
    const world = new PathWorld(WIDEST, LENGTHS, 4);
    const runs = CLUSTERS.map((plan) => answersOf(world, world.whole, ROWS, plan).out);
    for (const out of runs) expectSame(out, runs[0]!);
  });
});
