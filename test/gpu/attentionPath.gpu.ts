/**
 * Attention over paths on a real device: accuracy compared with float64, equal bits in any pieces and company, and
 * speed.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { attentionSchedules } from '../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { label, reference, rowsOf, tolerance } from '../codegen/cuda/attentionCases.js';
import { type AttentionData, attentionModule, type Shape } from '../codegen/cuda/attentionHarness.js';
import { gather, PathWorld, type Piece, treeCall } from '../codegen/cuda/pathCases.js';
import { Bench, skip } from './attentionBench.js';

/** Entries of the list of keys that buffers have room for. */
const CAPACITY = 4096;

const shape = (heads: number, kvHeads: number, headDim: number, dtype: Shape['dtype'], out?: Shape['out']): Shape => ({
  heads,
  kvHeads,
  headDim,
  dtype,
  ...(out === undefined ? {} : { out }),
  mask: 'path',
});

const SHAPES: readonly Shape[] = [
  shape(2, 2, 32, 'bf16'),
  shape(4, 2, 64, 'f16', 'f32'),
  shape(8, 2, 128, 'bf16'),
  shape(7, 1, 128, 'bf16', 'f32'),
  shape(3, 3, 80, 'f16'),
  shape(4, 1, 256, 'bf16', 'f32'),
  shape(4, 2, 64, 'f32'),
  shape(2, 1, 37, 'f32'),
];
const schedulesOf = (s: Shape, bench: Bench): readonly CudaAttentionSchedule[] => {
  const { module, kernel } = attentionModule(s);
  return attentionSchedules(kernel, module, bench.limits);
};

describe('attention over paths on a device', { skip }, () => {
  /** Of all tests: each kernel is compiled once. */
  let bench: Bench;
  before(() => {
    bench = new Bench();
  });
  after(() => {
    bench.release();
  });

  // Schedules of mma and wgmma have the same bits, as the next tests show, so that one of them stands for all.
  it('agrees with float64', async () => {
    const plans = SHAPES.flatMap((s) => {
      const all = schedulesOf(s, bench);
      const first = all.findIndex(({ skeleton }) => skeleton === 'mma');
      return all.filter(({ skeleton }, i) => skeleton === 'simt' || i === first).map((plan) => ({ s, plan }));
    });
    await bench.prepare(
      plans.flatMap(({ s, plan }) => [false, true].map((hasQueryRow) => ({ s: { ...s, hasQueryRow }, plan }))),
      CAPACITY,
    );
    // The tail of the longest passes a chunk of 512 keys.
    const pieces: Piece[] = [
      { sequence: 3, from: 10, to: 70 },
      { sequence: 4, from: 540, to: 600 },
      { sequence: 0, from: 0, to: 1 },
      { sequence: 2, from: 32, to: 33 },
      { sequence: 1, from: 0, to: 5 },
    ];
    const row = [119, 3, 4, 0, 0, 100, 60, 125, 61];
    for (const s of SHAPES) {
      const world = new PathWorld(s, [1, 5, 33, 70, 600], 3);
      for (const [hasQueryRow, data] of [
        [false, world.call(pieces, { placement: 1 })],
        [true, world.call(pieces, { placement: 2, row })],
      ] as const) {
        const own = { ...s, hasQueryRow };
        let want: Float64Array | undefined;
        for (const { plan } of plans.filter((each) => each.s === s)) {
          const { out, buffers } = await bench.run(own, plan, data, CAPACITY);
          const right = (want ??= reference(own, data, buffers));
          const limit = tolerance(s, plan);
          const wrong = out.findIndex((x, i) => !(Math.abs(x - right[i]!) < limit));
          assert(wrong < 0, `${label(s, plan)}: element ${wrong} is ${out[wrong]!}, not ${right[wrong]!} ± ${limit}`);
        }
      }
    }
  });

  it('gives the same bits where branches share tiles', async () => {
    for (const s of SHAPES) {
      const plans = schedulesOf(s, bench).filter(({ skeleton }) => skeleton !== 'simt');
      await bench.prepare(
        plans.map((plan) => ({ s, plan })),
        CAPACITY,
      );
      const data = treeCall(s, 5);
      const answers: Float64Array[] = [];
      for (const plan of plans) answers.push((await bench.run(s, plan, data, CAPACITY)).out);
      answers.forEach((out, i) => assert.deepEqual(out, answers[0], `${label(s, plans[i]!)}: other bits`));
    }
  });

  it('gives the same bits under every schedule, in any chunks and company, wherever keys lie', async () => {
    for (const s of SHAPES) {
      const world = new PathWorld(s, [45, 1, 560, 130, 18], 7);
      const plans = schedulesOf(s, bench).filter((plan) => (plan.skeleton === 'simt') === (s.dtype === 'f32'));
      await bench.prepare(
        plans.map((plan) => ({ s, plan })),
        CAPACITY,
      );
      const run = async (pieces: readonly Piece[], placement = 0, plan = plans[0]!): Promise<Float64Array> =>
        (await bench.run(s, plan, world.call(pieces, { placement }), CAPACITY)).out;
      const inCalls = async (calls: readonly (readonly Piece[])[], placement: number, plan = plans[0]!) => {
        const answers = new Map<readonly Piece[], Float64Array>();
        for (const pieces of calls) answers.set(pieces, await run(pieces, placement, plan));
        return gather(world, calls, (pieces) => answers.get(pieces)!);
      };
      const whole = await run(world.whole);
      const scattered = world.call(world.whole, { placement: 1 });
      for (const plan of plans)
        assert.deepEqual((await bench.run(s, plan, scattered, CAPACITY)).out, whole, `${label(s, plan)}: other bits`);
      // Rows that are asked for: another kernel.
      const row = [749, 3, 4, 0, 45, 46, 605, 100, 60];
      const asked = world.call(world.whole, { row });
      const some = plans.filter((_, i) => i % 4 === 0).map((plan) => ({ s: { ...s, hasQueryRow: true }, plan }));
      await bench.prepare(some, CAPACITY);
      const rows = Float64Array.from(row.flatMap((at) => [...rowsOf(whole, s.heads * s.headDim, at, at + 1)]));
      for (const { s: own, plan } of some)
        assert.deepEqual((await bench.run(own, plan, asked, CAPACITY)).out, rows, `${label(own, plan)}: other bits`);
      // Small chunks are many calls.
      for (const [i, size] of (s === SHAPES[1] || s === SHAPES[2] ? [100, 16, 7] : [100]).entries())
        assert.deepEqual(
          await inCalls(world.chunks(size), size, plans[i % plans.length]),
          whole,
          `${label(s, plans[0]!)}: other bits in chunks of ${size}`,
        );
      const alone = world.whole.map((piece) => [piece]);
      assert.deepEqual(await inCalls(alone, 2), whole, `${label(s, plans[0]!)}: other bits alone`);
      // The last tokens one by one, as decoding computes them.
      const few = plans.find(({ queries }) => queries === 1) ?? plans[0]!;
      const width = s.heads * s.headDim;
      for (const at of [0, 15, 16, 511, 512, 559]) {
        const one = await run([{ sequence: 2, from: at, to: at + 1 }], 3, few);
        assert.deepEqual(one, rowsOf(whole, width, 46 + at, 47 + at), `${label(s, few)}: token ${at} alone`);
      }
      // What a query does not see may be anything.
      const data = world.call(world.whole);
      const place = data.inputs.get('key')![40]!;
      const columns = s.kvHeads * s.headDim;
      for (const [name, value] of [
        ['k', NaN],
        ['v', Infinity],
      ] as const)
        data.inputs.get(name)!.fill(value, place * columns, (place + 1) * columns);
      const beside = (await bench.run(s, plans[0]!, data, CAPACITY)).out;
      assert.deepEqual(rowsOf(beside, width, 0, 40), rowsOf(whole, width, 0, 40));
      assert.deepEqual(rowsOf(beside, width, 45, data.T), rowsOf(whole, width, 45, data.T));
    }
  });

  /** `paths` paths of `length` keys, of which the last `fresh` are new, with keys in pages of 16 in any order. */
  const timed = (paths: number, length: number, fresh: number, cacheRows: number): AttentionData => {
    const order = Int32Array.from({ length: paths * length }, (_, i) => {
      const page = ((Math.floor(i / 16) * 7919) % (cacheRows / 16)) * 16;
      return page + (i % 16);
    });
    const of = (f: (path: number, i: number) => number): Float64Array =>
      Float64Array.from({ length: paths * fresh }, (_, t) => f(Math.floor(t / fresh), t % fresh));
    return {
      T: paths * fresh,
      inputs: new Map([
        ['begin', of((path) => path * length)],
        ['position', of((_, i) => length - fresh + i)],
        ['key', Float64Array.from(order)],
      ]),
    };
  };

  it('computes new keys as fast as tensor cores allow', async () => {
    const [heads, kvHeads, cacheRows] = [32, 8, 1 << 14];
    const s = { ...shape(heads, kvHeads, 128, 'bf16'), cacheRows };
    const plans = schedulesOf(s, bench).filter(({ skeleton, queries }) => skeleton === 'mma' && queries >= 8);
    await bench.prepare(
      plans.map((plan) => ({ s, plan })),
      cacheRows,
    );
    for (const [paths, length, fresh] of [
      [4, 2048, 2048],
      [16, 1024, 256],
    ] as const) {
      const data = timed(paths, length, fresh, cacheRows);
      for (const plan of plans) {
        await bench.bound(s, plan, data, cacheRows, async (program, sizes) => {
          const flushBytes = 2 * bench.device.info.l2Bytes;
          const times = await program.time({ ...sizes, launches: [0], warmup: 2, repeats: 9, flushBytes });
          const milliseconds = [...times].sort((a, b) => a - b)[4]!;
          const pairs = paths * fresh * (length - (fresh - 1) / 2);
          const rate = (4 * pairs * heads * 128) / 1e12 / milliseconds;
          console.log(
            `${paths} paths of ${length} keys, ${fresh} new each, ${label(s, plan)}: ` +
              `${(1000 * milliseconds).toFixed(1)} µs, ${(1000 * rate).toFixed(0)} TFLOP/s`,
          );
          assert(milliseconds > 0 && milliseconds < 50);
        });
      }
    }
  });
});
