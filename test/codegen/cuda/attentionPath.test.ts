/**
 * Attention over paths on CUDA, run without a GPU (test/support/cudaWarp): compared with float64, and the same bits
 * however a sequence is cut into calls, whatever else is in a call, and wherever its keys lie.
 */
import { describe, expect, it } from 'vitest';
import type { ClusterSize, CudaAttentionSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere } from '../../support/thorough.js';
import { label, reference, rowsOf, tolerance } from './attentionCases.js';
import { type AttentionData, emulate, prepare, type Shape } from './attentionHarness.js';
import { gather, pathSchedule, PathWorld, type Piece } from './pathCases.js';
import { BITS, LONG, pathShape, sampleOf, schedulesOf } from './pathSchedules.js';

/** Positions that the buffers of a call have room for. */
const CAPACITY = 2048;
const OPTIONS = { tokensCapacity: CAPACITY };

/** Groups of 1, 2, 4 and 7 heads; tiles that a group does not fill. */
const CASES: readonly { readonly s: Shape; readonly plan: CudaAttentionSchedule }[] = [
  { s: pathShape(2, 2, 32, 'bf16'), plan: pathSchedule('mma', 16) },
  { s: pathShape(4, 2, 64, 'f16', 'f32'), plan: pathSchedule('mma', 8) },
  { s: pathShape(4, 1, 128, 'bf16'), plan: pathSchedule('mma', 4) },
  { s: pathShape(7, 1, 64, 'bf16', 'f32'), plan: pathSchedule('mma', 16) },
  { s: pathShape(7, 1, 48, 'f16'), plan: pathSchedule('mma', 1) },
  { s: pathShape(2, 1, 256, 'bf16', 'f32'), plan: pathSchedule('mma', 8) },
  { s: pathShape(1, 1, 96, 'f16', 'bf16'), plan: pathSchedule('mma', 64) },
  { s: pathShape(2, 2, 32, 'f32'), plan: pathSchedule('simt', 16) },
  { s: pathShape(7, 1, 37, 'f32'), plan: pathSchedule('simt', 4) },
  { s: pathShape(4, 2, 128, 'bf16', 'f32'), plan: pathSchedule('simt', 8) },
  { s: { ...pathShape(4, 1, 32, 'f16', 'f32'), cap: 3 }, plan: pathSchedule('mma', 4) },
  { s: { ...pathShape(4, 1, 32, 'f16', 'f32'), cap: 3 }, plan: pathSchedule('mma', 1) },
];
const LENGTHS = [1, 5, 33, 70, 16];

prepare([
  ...CASES.flatMap(({ s, plan }) =>
    [false, true].map((hasQueryRow) => ({ s: { ...s, hasQueryRow }, plan, capacity: CAPACITY })),
  ),
  ...[...BITS, LONG].flatMap((s) => sampleOf(schedulesOf(s)).map((plan) => ({ s, plan, capacity: CAPACITY }))),
]);

function expectClose(s: Shape, plan: CudaAttentionSchedule, data: AttentionData): void {
  const { out, buffers } = emulate(s, plan, data, OPTIONS);
  const want = reference(s, data, buffers);
  expect(out.length).toBe(want.length);
  out.forEach((x, i) => {
    if (!(Math.abs(x - want[i]!) < tolerance(s, plan))) expect.fail(`element ${i} is ${x}, not ${want[i]!}`);
  });
}

describe('attention over paths agrees with float64', () => {
  it.each(CASES.map((c, i) => ({ ...c, i, name: label(c.s, c.plan) })))('$name', ({ s, plan, i }) => {
    const world = new PathWorld(s, LENGTHS, i + 1);
    expectClose(s, plan, world.call(world.whole, { placement: 1 }));
    // New tokens of some sequences, in any order, one of them alone.
    const pieces: Piece[] = [
      { sequence: 3, from: 64, to: 70 },
      { sequence: 0, from: 0, to: 1 },
      { sequence: 2, from: 32, to: 33 },
      { sequence: 1, from: 2, to: 5 },
    ];
    expectClose(s, plan, world.call(pieces, { placement: 2 }));
    const row = [9, 3, 4, 0, 0, 10, 6, 5];
    expectClose({ ...s, hasQueryRow: true }, plan, world.call(pieces, { placement: 3, row }));
  });

  it.each([pathSchedule('mma', 16), pathSchedule('simt', 16)])(
    'over several chunks of keys, some of a row: $skeleton',
    (plan) => {
      const world = new PathWorld(LONG, [1100, 1, 200], 5);
      const pieces = [
        { sequence: 0, from: 500, to: 530 },
        { sequence: 1, from: 0, to: 1 },
        { sequence: 0, from: 1020, to: 1030 },
        { sequence: 0, from: 1099, to: 1100 },
      ];
      expectClose(LONG, plan, world.call(pieces, { placement: 1 }));
    },
  );
});

describe.each(BITS)('an answer over a path of $dtype, $heads/$kvHeads heads of $headDim, cap $cap', (s) => {
  const world = new PathWorld(s, [45, 1, 70, 18], 7);
  const plans = sampleOf(schedulesOf(s));
  const plan = plans[0]!;
  const run = (pieces: readonly Piece[], placement = 0, by = plan): Float64Array =>
    emulate(s, by, world.call(pieces, { placement }), OPTIONS).out;
  const whole = run(world.whole);

  it('has the same bits under different schedules', () => {
    expect(plans.length).toBeGreaterThan(1);
    for (const other of plans) expectSame(run(world.whole, 0, other), whole, `${other.queries} queries`);
  });

  it.each([1, 7, 16])('has the same bits where prompts come in chunks of %i tokens', (size) => {
    expectSame(
      gather(world, world.chunks(size), (pieces) => run(pieces, size)),
      whole,
      `chunks of ${size}`,
    );
  });

  it('has the same bits alone and wherever its keys lie', () => {
    const alone = world.whole.map((piece) => [piece]);
    expectSame(
      gather(world, alone, (pieces) => run(pieces)),
      whole,
      'alone',
    );
    for (const placement of [1, 2]) expectSame(run(world.whole, placement), whole, `placement ${placement}`);
    const backwards = [[...world.whole].reverse()];
    expectSame(
      gather(world, backwards, (pieces) => run(pieces)),
      whole,
      'in another order',
    );
  });

  it('has the same bits whenever copies arrive and in whatever order threads run', () => {
    const data = world.call(world.whole);
    expectSame(emulate(s, plan, data, { ...OPTIONS, late: false }).out, whole, 'early copies');
    expectSame(emulate(s, plan, data, { ...OPTIONS, backwards: true }).out, whole, 'backwards');
  });

  it('is not affected by NaN and infinity in keys and values that it does not see', () => {
    const width = s.heads * s.headDim;
    for (const value of [NaN, Infinity]) {
      const data = world.call(world.whole);
      // Token 40 of the first sequence: those before it do not see it.
      const place = data.inputs.get('key')![40]!;
      for (const name of ['k', 'v']) {
        const columns = s.kvHeads * s.headDim;
        data.inputs.get(name)!.fill(value, place * columns, (place + 1) * columns);
      }
      const { out } = emulate(s, plan, data, OPTIONS);
      expectSame(rowsOf(out, width, 0, 40), rowsOf(whole, width, 0, 40), 'before');
      expectSame(rowsOf(out, width, 45, data.T), rowsOf(whole, width, 45, data.T), 'other sequences');
      expect(rowsOf(out, width, 40, 45).every(Number.isNaN)).toBe(true);
    }
  });
});

describe('an answer over a path of several chunks of keys', () => {
  const world = new PathWorld(LONG, [1100, 40], 3);
  const plan = pathSchedule('mma', 16);
  const last = { sequence: 0, from: 1000, to: 1100 };
  const run = (pieces: readonly Piece[], by = plan): Float64Array => emulate(LONG, by, world.call(pieces), OPTIONS).out;
  const together = run([{ sequence: 1, from: 0, to: 40 }, last]).slice(40 * 32);

  it('has the same bits in any company and under different schedules', () => {
    for (const by of sampleOf(schedulesOf(LONG))) expectSame(run([last], by), together, `${by.queries} queries`);
    for (const at of [1000, 1023, 1024, 1030, 1099]) {
      const alone = run([{ sequence: 0, from: at, to: at + 1 }]);
      expectSame(alone, rowsOf(together, 32, at - 1000, at - 999), `token ${at} alone`);
    }
  });
});

/** Whether a kernel with `what` replaced by `by` gives anything but `right`. */
function isNoticed(
  s: Shape,
  plan: CudaAttentionSchedule,
  data: AttentionData,
  right: Float64Array,
  what: string,
  by: string,
): boolean {
  return [false, true].some((backwards) => {
    try {
      const { out } = emulate(s, plan, data, { ...OPTIONS, backwards, mutate: (text) => text.replace(what, by) });
      return out.some((x, i) => !Object.is(x, right[i]));
    } catch (error) {
      // A mutation that cannot be compiled, or that changes nothing, shows nothing.
      if (/the mutation changed nothing|Command failed/.test(String(error))) throw error;
      return true;
    }
  });
}

/** The emulation must notice what it is there to notice. */
describe('the emulation', () => {
  const s = BITS[0]!;
  const plan = pathSchedule('mma', 16);
  const world = new PathWorld(s, [127, 1, 20, 45], 4);
  const data = world.call(world.whole, { placement: 1 });
  const whole = emulate(s, plan, data, OPTIONS).out;
  const MUTATIONS = [
    ['to wait for copies', 'copy_wait<slots - 2>();', ''],
    ['the barrier of a step', '__syncthreads();  /* The tile is there, the one before has been read. */', ''],
    ['to mask', 'if (at > last[e / 2] ||', 'if (at > last[e / 2] + 1 ||'],
    ['the queries of a run', 'if (begins[i] != begin) to = i;', ''],
    ['where a run begins', 'x.key[begin + i]', 'x.key[i]'],
    ['to rescale', 'answer.sum[0] = mul(answer.sum[0], keep[0]);', ''],
  ] as const;
  it.each(casesHere<(typeof MUTATIONS)[number]>(MUTATIONS, 0))('notices a kernel that forgets %s', (_, what, by) => {
    expect(isNoticed(s, plan, data, whole, what, by)).toBe(true);
  });
});

/** Blocks of one query: clusters, teams, lone warps, and what they must not forget. */
describe('one query a block', () => {
  const world = new PathWorld(LONG, [700, 300, 129, 1], 6);
  const ends = world.call(
    world.lengths.map((to, sequence) => ({ sequence, from: to - 1, to })),
    { placement: 1 },
  );
  const right = emulate(LONG, pathSchedule('mma', 16), ends, OPTIONS).out;
  const decode = (cluster?: ClusterSize, teams?: number): CudaAttentionSchedule => ({
    ...pathSchedule('mma', 1),
    ...(cluster === undefined ? {} : { cluster }),
    ...(teams === undefined ? {} : { teams }),
  });

  const lone: CudaAttentionSchedule = { ...decode(), lone: 8 };

  it.each([decode(), decode(2), decode(4, 2), decode(8), decode(16, 2), decode(undefined, 4), lone])(
    'has the same bits whenever copies arrive and in whatever order threads run: $cluster $teams $lone',
    (plan) => {
      for (const options of [{ late: false }, { backwards: true }, { late: false, backwards: true }])
        expectSame(emulate(LONG, plan, ends, { ...OPTIONS, ...options }).out, right, JSON.stringify(options));
    },
  );

  const MUTATIONS = [
    ['to wait for a part', lone, 'copy_wait<parts - 1>();', ''],
    ['chunks that have ended', lone, 'if ((path.keys - 1) / CHUNK > first_chunk)', 'if (false)'],
    ['to wait for keys', decode(), '      copy_wait<1>();\n      __syncwarp();', '      __syncwarp();'],
    ['to wait for values', decode(), '      copy_wait<1>();\n      team.meet();', '      team.meet();'],
    ['the maxima of other warps', decode(), 'team.meet();  /* The maxima of all warps are there. */', ''],
    [
      'the weights of other warps',
      decode(),
      'team.meet();  /* The weights and the values of all warps are there. */',
      '',
    ],
    ['that values are still read', decode(), 'team.meet();  /* The values have been read. */', ''],
    ['to mask', decode(), 'at >= keys[half]', 'at > keys[half]'],
    ['to rescale', decode(), 'if (t > 0) sum = mul(sum, power2(top[t - 1] - top[t]));', ''],
    ['that a team is slower', decode(undefined, 4), '__syncthreads();  /* The chunks of', ';  /* The chunks of'],
    ['that a block is slower', decode(4), 'chunks_there.wait((round - 1) / 2 % 2);', ''],
    ['how many blocks have a chunk', decode(4), 'expect(count *', 'expect(1 *'],
    ['that barriers are made', decode(8), 'if (round == 0) cluster_wait();', 'if (round == 1) cluster_wait();'],
    ['that blocks still read', decode(4), 'round_bytes = workers * chunk_bytes', 'round_bytes = 0'],
  ] as const;
  it.each(casesHere<(typeof MUTATIONS)[number]>(MUTATIONS, 0, 2, 9))('is noticed when it forgets %s', (...mutation) => {
    const [, plan, what, by] = mutation;
    expect(isNoticed(LONG, plan, ends, right, what, by)).toBe(true);
  });
});
