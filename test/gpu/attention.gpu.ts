/**
 * Tree attention on a real device: accuracy compared with float64, equal bits in any batch, no leak between trees, and
 * speed.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { attentionSchedules } from '../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { readSettings } from '../../settings.js';
import {
  adversarialData,
  ADVERSARIES,
  branches,
  CASES,
  chain,
  cut,
  dataOf,
  EDGES,
  ends,
  label,
  MMA,
  reference,
  rowsOf,
  schedule,
  SIMT,
  single,
  tolerance,
  type Tree,
  ZOO,
} from '../codegen/cuda/attentionCases.js';
import { type AttentionData, attentionModule, type Shape } from '../codegen/cuda/attentionHarness.js';
import { randomSource } from '../codegen/harness.js';
import { randomTrees } from '../codegen/modules.js';
import { Bench, skip } from './attentionBench.js';

const SEED = readSettings().testSeed;

/** Heads of queries and of keys. */
const GROUPS = [
  { heads: 2, kvHeads: 2 },
  { heads: 2, kvHeads: 1 },
  { heads: 6, kvHeads: 2 },
] as const;

/** Asserts that an answer is close to float64 everywhere. */
async function agrees(
  bench: Bench,
  s: Shape,
  plan: CudaAttentionSchedule,
  data: AttentionData,
  trees = '',
): Promise<void> {
  const { out, buffers } = await bench.run(s, plan, data);
  const want = reference(s, data, buffers);
  const limit = tolerance(s, plan);
  out.forEach((x, i) =>
    assert(
      Math.abs(x - want[i]!) < limit,
      `${label(s, plan)}${trees === '' ? '' : `, ${trees}`}: element ${i} is ${x}, not ${want[i]!} ± ${limit}`,
    ),
  );
}

describe('attention', { skip }, () => {
  it('agrees with float64 on adversarial and on random trees', async () => {
    const bench = new Bench();
    await bench.prepare(CASES);
    for (const [i, { s, plan, trees }] of CASES.entries()) {
      await agrees(bench, s, plan, dataOf(s, ends(trees), i));
      for (let seed = SEED; seed < SEED + 3; seed++) {
        const size = 1 + (seed - SEED);
        await agrees(bench, s, plan, dataOf(s, randomTrees(40 + 150 * size, seed, 20 * size).subtreeEnd, seed));
      }
    }
    const gathered: Shape = { heads: 2, kvHeads: 1, headDim: 48, dtype: 'f16', hasQueryRow: true };
    const random = randomSource(3);
    const end = ends([...ZOO, ...EDGES]);
    const row = Array.from({ length: 200 }, () => Math.floor(((random() + 1) / 2) * end.length * 0.999));
    for (const plan of [MMA, SIMT]) await agrees(bench, gathered, plan, dataOf(gathered, end, 6, row));
    bench.release();
  });

  it('agrees with float64 for every head size, with or without shared keys, on each adversarial tree', async () => {
    const bench = new Bench();
    console.log(`random trees of seed ${SEED}`);
    const list = Array.from({ length: 15 }, (_, i): { s: Shape; plan: CudaAttentionSchedule } => {
      const s: Shape = { ...GROUPS[i % GROUPS.length]!, headDim: 32 + 16 * i, dtype: i % 2 === 0 ? 'bf16' : 'f16' };
      const { module, kernel } = attentionModule(s);
      const plans = attentionSchedules(kernel, module, bench.limits).filter(({ skeleton }) => skeleton === 'mma');
      return { s, plan: plans[i % plans.length]! };
    });
    await bench.prepare(list);
    for (const [i, { s, plan }] of list.entries()) {
      for (const [name, trees] of ADVERSARIES) {
        await agrees(bench, s, plan, adversarialData(s, name, trees, i), name);
      }
      await agrees(
        bench,
        s,
        plan,
        dataOf(s, randomTrees(75 + 13 * i, SEED + i, 20 + 3 * i).subtreeEnd, i),
        `random trees of seed ${SEED + i}`,
      );
    }
    bench.release();
  });

  it('has the same bits alone, in any batch, under every schedule, and whatever other trees hold', async () => {
    const bench = new Bench();
    const company: readonly Tree[] = [
      branches(9, [3, 4]),
      chain(50),
      branches(33, [20, 40, 7, 20]),
      single,
      chain(170),
      branches(61, [30, 30, 30, 30]),
    ];
    const starts = company.map((_, i) => company.slice(0, i).reduce((sum, tree) => sum + tree.length, 0));
    const shapes = (
      [
        [48, 'bf16'],
        [64, 'f16'],
        [128, 'bf16'],
        [256, 'f16'],
      ] as const
    ).map(([headDim, dtype]): Shape => ({ heads: 2, kvHeads: 1, headDim, dtype, out: 'f32' }));
    await bench.prepare(
      shapes.flatMap((s) => [16, 32, 64, 128].map((queries) => ({ s, plan: schedule('mma', queries) }))),
    );
    for (const s of shapes) {
      const { headDim } = s;
      const width = 2 * headDim;
      const together = dataOf(s, ends(company), headDim);
      const poisoned = new Map([...together.inputs].map(([name, x]) => [name, x.slice()]));
      for (const name of ['q', 'k', 'v'])
        poisoned
          .get(name)!
          .fill(
            NaN,
            (starts[2]! * poisoned.get(name)!.length) / together.T,
            (starts[3]! * poisoned.get(name)!.length) / together.T,
          );
      const whole = (await bench.run(s, MMA, together)).out;
      for (const queries of [16, 32, 128])
        assert.deepEqual((await bench.run(s, schedule('mma', queries), together)).out, whole, `${queries} queries`);
      for (const i of [1, 2, 4, 5]) {
        const [from, to] = [starts[i]!, starts[i]! + company[i]!.length];
        assert.deepEqual(
          (await bench.run(s, MMA, cut(together, from, to))).out,
          rowsOf(whole, width, from, to),
          `tree ${i} alone, heads of ${headDim}`,
        );
      }
      const beside = (await bench.run(s, MMA, { T: together.T, inputs: poisoned })).out;
      assert.deepEqual(rowsOf(beside, width, 0, starts[2]!), rowsOf(whole, width, 0, starts[2]!));
      assert.deepEqual(rowsOf(beside, width, starts[3]!, together.T), rowsOf(whole, width, starts[3]!, together.T));
    }
    bench.release();
  });

  it('takes a small part of the time of a LLaMA-33B layer', async () => {
    const bench = new Bench();
    const s: Shape = { heads: 52, kvHeads: 52, headDim: 128, dtype: 'bf16' };
    const random = randomSource(5);
    const below = (n: number): number => Math.floor(((random() + 1) / 2) * n * 0.999);
    const T = 1024;
    await bench.prepare(
      [32, 64, 128].map((queries) => ({ s, plan: schedule('mma', queries) })),
      T,
    );
    const trees: Tree[] = [];
    for (let left = T; left > 0;) {
      const stem = Math.min(left, 15 + below(60));
      const lengths = [0, 1, 2, 3]
        .map(() => 5 + below(30))
        .map((length, i, all) =>
          Math.max(0, Math.min(length, left - stem - all.slice(0, i).reduce((a, b) => a + b, 0))),
        );
      trees.push(
        branches(
          stem,
          lengths.filter((length) => length > 0),
        ),
      );
      left -= trees.at(-1)!.length;
    }
    const width = 52 * 128;
    const values = new Float64Array(T * width).map(() => random());
    const data: AttentionData = {
      T,
      inputs: new Map([
        ['q', values],
        ['k', values],
        ['v', values],
        ['subtreeEnd', ends(trees)],
      ]),
    };
    for (const queries of [32, 64, 128]) {
      await bench.bound(s, schedule('mma', queries), data, T, async (program, sizes) => {
        const times = [
          ...(await program.time({
            ...sizes,
            launches: [0],
            warmup: 5,
            repeats: 21,
            flushBytes: 2 * bench.device.info.l2Bytes,
          })),
        ].sort((a, b) => a - b);
        const gigabytes = (4 * T * width * 2) / 1e9;
        const microseconds = (1000 * times[10]!).toFixed(1);
        const rate = ((gigabytes / times[10]!) * 1000).toFixed(0);
        console.log(`T ${T}, ${trees.length} trees, ${queries} queries per block: ${microseconds} µs, ${rate} GB/s`);
        assert(times[10]! > 0 && times[10]! < 10);
      });
    }
    bench.release();
  });
});
