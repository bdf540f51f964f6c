/**
 * Attention within a window of positions, emulated: compared with float64, with the same bits however a sequence is cut
 * into calls and under every schedule, and blind to what lies before the window.
 */
import { describe, expect, it } from 'vitest';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { randomArray, randomSource } from '../harness.js';
import { randomTrees } from '../modules.js';
import { reference, rowsOf, tolerance } from './attentionCases.js';
import { type AttentionData, emulate, prepare, type Shape } from './attentionHarness.js';
import { gather, pathSchedule, PathWorld, type Piece, treeCall } from './pathCases.js';
import { pathShape } from './pathSchedules.js';

const OPTIONS = { tokensCapacity: 2048 };
const shared: CudaAttentionSchedule = { ...pathSchedule('mma', 16), sharesTiles: true };
/**
 * One by one, in tiles, in tiles that branches share, and a query a block of one team, of several, of a cluster and of
 * a lone warp.
 */
const PLANS: readonly CudaAttentionSchedule[] = [
  pathSchedule('mma', 16),
  shared,
  pathSchedule('mma', 1),
  { ...pathSchedule('mma', 1), teams: 2 },
  { ...pathSchedule('mma', 1), cluster: 4 },
  { ...pathSchedule('mma', 1), lone: 8 },
];
const of = (window: number): Shape => ({ ...pathShape(2, 1, 16, 'bf16', 'f32'), window });
/** Less than a tile; not a multiple of one; a chunk and more. */
const WIDTHS = [5, 45, 150];
const GATHERED = { ...of(45), hasQueryRow: true };
const TREE: Shape = { heads: 2, kvHeads: 1, headDim: 24, dtype: 'f32', window: 7 };
const SIMT = pathSchedule('simt', 16);

prepare([
  ...WIDTHS.flatMap((window) => PLANS.map((plan) => ({ s: of(window), plan, capacity: OPTIONS.tokensCapacity }))),
  ...PLANS.slice(0, 3).map((plan) => ({ s: GATHERED, plan, capacity: OPTIONS.tokensCapacity })),
  { s: of(45), plan: SIMT, capacity: OPTIONS.tokensCapacity },
  { s: TREE, plan: SIMT, capacity: OPTIONS.tokensCapacity },
]);

function expectClose(s: Shape, plan: CudaAttentionSchedule, data: AttentionData): void {
  const { out, buffers } = emulate(s, plan, data, OPTIONS);
  const want = reference(s, data, buffers);
  const far = out.findIndex((x, i) => !(Math.abs(x - want[i]!) < tolerance(s, plan)));
  if (far >= 0) expect.fail(`element ${far} is ${out[far]!}, not ${want[far]!}: ${JSON.stringify(plan)}`);
}

describe.each(WIDTHS)('a window of %i keys', (window) => {
  const s = of(window);
  const world = new PathWorld(s, [310, 1, 70, 33], 9);
  const pieces: readonly Piece[] = [
    { sequence: 0, from: 250, to: 262 },
    { sequence: 2, from: 69, to: 70 },
    { sequence: 1, from: 0, to: 1 },
    { sequence: 0, from: 309, to: 310 },
    { sequence: 3, from: 0, to: 33 },
  ];
  const run = (given: readonly Piece[], plan: CudaAttentionSchedule): Float64Array =>
    emulate(s, plan, world.call(given, { placement: 1 }), OPTIONS).out;

  it('agrees with float64', () => {
    for (const plan of PLANS.slice(0, 3)) expectClose(s, plan, world.call(pieces, { placement: 1 }));
  });

  it('gives the same bits under different schedules, whole and in pieces', () => {
    const whole = run(world.whole, PLANS[0]!);
    for (const plan of PLANS) expectSame(run(world.whole, plan), whole, JSON.stringify(plan));
    for (const [i, size] of [1, 7, 64].entries())
      expectSame(
        gather(world, world.chunks(size), (given) => run(given, PLANS[i]!)),
        whole,
        `pieces of ${size}`,
      );
  });

  it('does not see what lies before it', () => {
    const width = s.heads * s.headDim;
    for (const plan of PLANS.slice(0, 3)) {
      const data = world.call(world.whole);
      const right = emulate(s, plan, data, OPTIONS).out;
      const place = data.inputs.get('key')![20]!;
      for (const name of ['k', 'v']) data.inputs.get(name)!.fill(NaN, place * s.headDim, (place + 1) * s.headDim);
      const { out } = emulate(s, plan, data, OPTIONS);
      const end = Math.min(310, 20 + window);
      expectSame(rowsOf(out, width, 0, 20), rowsOf(right, width, 0, 20), 'before the token');
      expect(rowsOf(out, width, 20, end).every(Number.isNaN)).toBe(true);
      expectSame(rowsOf(out, width, end, data.T), rowsOf(right, width, end, data.T), 'past the window');
    }
  });

  it('gives the branches of trees that share tiles the bits of paths that are read one by one', () => {
    const data = treeCall(s, 4);
    const right = emulate(s, PLANS[0]!, data, OPTIONS).out;
    expectSame(emulate(s, shared, data, OPTIONS).out, right, 'shared');
    expectSame(emulate(s, shared, data, { ...OPTIONS, backwards: true }).out, right, 'backwards');
    expectClose(s, shared, data);
  });
});

it('is kept for chosen rows, and on CUDA cores', () => {
  const data = treeCall(GATHERED, 4, [2, 69, 70, 80, 81, 140, 157, 158, 200, 230, 231, 3]);
  for (const plan of PLANS.slice(0, 3)) expectClose(GATHERED, plan, data);
  expectClose(of(45), SIMT, treeCall(of(45), 4));
});

it('is one of positions in trees, too', () => {
  const T = 150;
  const random = randomSource(3);
  const values = (columns: number): Float64Array => randomArray(random, T * columns, 2);
  const inputs = { q: values(48), k: values(24), v: values(24), ...randomTrees(T, 8) };
  expectClose(TREE, SIMT, { T, inputs: new Map(Object.entries(inputs)) });
});
