/**
 * Attention over paths on a real device: accuracy compared with float64, equal bits in any pieces and company, and
 * speed.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { attentionSchedules } from '../../codegen/cuda/attentionSchedules.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { label, reference, rowsOf, tolerance } from '../codegen/cuda/attentionCases.js';
import { attentionModule, type AttentionData, type Shape } from '../codegen/cuda/attentionHarness.js';
import { gather, pathSchedule, PathWorld, treeCall, type Piece } from '../codegen/cuda/pathCases.js';
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
  it('agrees with float64 under every schedule', async () => {
    const bench = new Bench();
    const plans = SHAPES.flatMap((s) => schedulesOf(s, bench).map((plan) => ({ s, plan })));
    await bench.prepare(
      plans.flatMap(({ s, plan }) => [false, true].map((hasQueryRow) => ({ s: { ...s, hasQueryRow }, plan }))),
      CAPACITY,
    );
    for (const { s, plan } of plans) {
      const world = new PathWorld(s, [1, 5, 33, 70, 600], 3);
      const pieces: Piece[] = [
        { sequence: 3, from: 10, to: 70 },
        { sequence: 4, from: 500, to: 600 },
        { sequence: 0, from: 0, to: 1 },
        { sequence: 2, from: 32, to: 33 },
        { sequence: 1, from: 0, to: 5 },
      ];
      const row = [159, 3, 4, 0, 0, 100, 60, 165, 61];
      for (const [hasQueryRow, data] of [
        [false, world.call(pieces, { placement: 1 })],
        [true, world.call(pieces, { placement: 2, row })],
      ] as const) {
        const own = { ...s, hasQueryRow };
        const { out, buffers } = await bench.run(own, plan, data, CAPACITY);
        const want = reference(own, data, buffers);
        const limit = tolerance(s, plan);
        out.forEach((x, i) =>
          assert(Math.abs(x - want[i]!) < limit, `${label(s, plan)}: element ${i} is ${x}, not ${want[i]!} ± ${limit}`),
        );
      }
    }
    bench.release();
  });

  it('gives the same bits where branches share tiles', async () => {
    const bench = new Bench();
    for (const s of SHAPES) {
      const plans = schedulesOf(s, bench).filter(({ skeleton }) => skeleton === 'mma');
      await bench.prepare(
        plans.map((plan) => ({ s, plan })),
        CAPACITY,
      );
      const data = treeCall(s, 5);
      const answers: Float64Array[] = [];
      for (const plan of plans) answers.push((await bench.run(s, plan, data, CAPACITY)).out);
      answers.forEach((out, i) => assert.deepEqual(out, answers[0], `${label(s, plans[i]!)}: other bits`));
    }
    bench.release();
  });

  it('gives the same bits under every schedule, in any chunks and company, wherever keys lie', async () => {
    const bench = new Bench();
    for (const s of SHAPES) {
      const world = new PathWorld(s, [45, 1, 560, 130, 18], 7);
      const skeleton = s.dtype === 'f32' ? 'simt' : 'mma';
      const plans = schedulesOf(s, bench).filter((plan) => plan.skeleton === skeleton);
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
      for (const plan of plans)
        assert.deepEqual(await run(world.whole, 1, plan), whole, `${label(s, plan)}: other bits`);
      for (const [i, size] of [16, 7, 100].entries())
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
    bench.release();
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

  it('reads keys as fast as memory allows', async () => {
    const bench = new Bench();
    const cacheRows = 1 << 16;
    for (const [heads, kvHeads, paths, length, fresh] of [
      [32, 8, 64, 1024, 1],
      [32, 8, 8, 4096, 1],
      [32, 8, 1, 512, 1],
      [52, 52, 16, 512, 1],
      [32, 8, 4, 2048, 2048],
      [32, 8, 16, 1024, 256],
    ] as const) {
      const s = { ...shape(heads, kvHeads, 128, 'bf16'), cacheRows };
      const data = timed(paths, length, fresh, cacheRows);
      for (const queries of fresh === 1 ? [4] : [4, 8, 16, 32, 64]) {
        const plan = pathSchedule('mma', queries);
        if (!schedulesOf(s, bench).some((each) => each.skeleton === 'mma' && each.queries === queries)) continue;
        await bench.bound(s, plan, data, 1 << 16, async (program, sizes) => {
          const times = [
            ...(await program.time({
              ...sizes,
              launches: [0],
              warmup: 3,
              repeats: 15,
              flushBytes: 2 * bench.device.info.l2Bytes,
            })),
          ].sort((a, b) => a - b);
          const milliseconds = times[7]!;
          const gigabytes = (paths * length * kvHeads * 128 * 4) / 1e9;
          const pairs = paths * fresh * (length - (fresh - 1) / 2);
          const rate = fresh === 1 ? gigabytes / milliseconds : (4 * pairs * heads * 128) / 1e12 / milliseconds;
          console.log(
            `${paths} paths of ${length} keys, ${fresh} new each, ${heads}/${kvHeads} heads, ${queries} queries a ` +
              `block: ${(1000 * milliseconds).toFixed(1)} µs, ${(1000 * rate).toFixed(0)} ` +
              (fresh === 1 ? 'GB/s' : 'TFLOP/s'),
          );
          assert(milliseconds > 0 && milliseconds < 50);
        });
      }
    }
    bench.release();
  });
});
