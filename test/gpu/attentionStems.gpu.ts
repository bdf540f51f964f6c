/**
 * Attention of paths that begin alike, on a real device: the bits of a block for each query, and how long 900 paths
 * take, unrelated, in groups of four and sixteen, and in groups that end one by one. Launches in turn read different
 * rows, so that none finds the keys of the one before in L2. The table comes last.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { attentionSchedules, defaultAttentionSchedule } from '../../codegen/cuda/attention/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { attentionModule, type Shape } from '../codegen/cuda/attentionHarness.js';
import { pathSchedule, siblingsCall, tangledCall } from '../codegen/cuda/pathCases.js';
import { pathShape } from '../codegen/cuda/pathSchedules.js';
import { expectSame } from '../support/numbers.js';
import { Bench, skip } from './attentionBench.js';
import { layOutCalls, TIMED_CAPACITY, timedCache, timeOf } from './attentionTimes.js';
import { groupedPaths } from './groupedPaths.js';

/** Rows of keys that a shape's cache has. */
const CACHE_ROWS = 2_400_000;
/** Those of calls whose bits are compared. */
const BITS_CAPACITY = 1 << 15;
const SAMPLES = { rounds: 5, launches: 4 };

/** Heads of 64 and 128 as in models of one and eight billion weights. */
const MODELS = [
  { name: '1B', s: { ...pathShape(32, 8, 64, 'bf16'), cacheRows: CACHE_ROWS } },
  { name: '8B', s: { ...pathShape(32, 8, 128, 'bf16'), cacheRows: CACHE_ROWS } },
] as const;
const LENGTHS = [300, 1300, 2600];
/** Paths, and how many follow each other that have all but their last pages in common. */
const CALLS = [
  { name: 'unrelated', paths: 900, sizes: [1] },
  { name: 'by 4', paths: 900, sizes: [4] },
  { name: 'by 16', paths: 900, sizes: [16] },
  { name: 'by 4 to 1', paths: 900, sizes: [4, 3, 4, 2, 4, 1, 3] },
  { name: 'by 4', paths: 300, sizes: [4] },
  { name: 'by 4', paths: 128, sizes: [4] },
] as const;

const isStems = ({ queries, lone }: CudaAttentionSchedule): boolean => queries > 1 && lone !== undefined;
const SINGLE = pathSchedule('mma', 1);

/** Blocks of one query, tiles that are shared by blocks of several warps, and lone warps of several queries. */
function plansOf(s: Shape, bench: Bench): readonly CudaAttentionSchedule[] {
  const { module, kernel } = attentionModule(s);
  return attentionSchedules(kernel, module, bench.limits).filter((plan) => {
    const { skeleton, queries, cluster, teams, lone, sharesTiles } = plan;
    if (skeleton !== 'mma' || cluster !== undefined || teams !== undefined) return false;
    if (sharesTiles === true) return queries === 16;
    return isStems(plan) || (queries === 1 && (lone === undefined || lone === 8));
  });
}

describe('attention of paths that begin alike', { skip }, () => {
  let bench: Bench;
  before(() => {
    bench = new Bench();
  });
  after(() => {
    bench.release();
  });

  it('has the bits of a block for each query', async () => {
    const shapes: readonly Shape[] = [
      pathShape(8, 2, 64, 'bf16'),
      { ...pathShape(8, 2, 128, 'bf16', 'f32'), hasQueryRow: true },
      pathShape(4, 4, 64, 'f16'),
      pathShape(7, 1, 80, 'bf16'),
      { ...pathShape(8, 2, 128, 'bf16'), scaled: 'e4m3' },
      { ...pathShape(6, 2, 64, 'bf16'), scaled: 'i8', cap: 30 },
    ];
    const plans = shapes.flatMap((s) => [
      { s, plan: SINGLE },
      ...plansOf(s, bench)
        .filter((plan) => isStems(plan) && (plan.lone === 5 || plan.lone === 8))
        .map((plan) => ({ s, plan })),
    ]);
    await bench.prepare(plans, BITS_CAPACITY);
    for (const s of shapes) {
      const families = [3, 1, 4, 16, 2, 4, 4].map((count, i) => ({
        stem: [0, 70, 128, 33, 200, 64, 5][i]!,
        own: Array.from({ length: count }, (_, path) => (path * 37 + i) % 11),
      }));
      const calls = [0, 33, 130].map((common) => siblingsCall(s, 7, families, common));
      if (s.scaled === undefined) calls.push(tangledCall(s, 3, 200), tangledCall(s, 4, 200, Infinity));
      for (const data of calls) {
        const { out: want } = await bench.run(s, SINGLE, data, BITS_CAPACITY);
        for (const { plan } of plans.filter((each) => each.s === s && isStems(each.plan))) {
          const { out } = await bench.run(s, plan, data, BITS_CAPACITY);
          expectSame(out, want, cudaScheduling.key(plan));
        }
      }
    }
  });

  it('is timed', async () => {
    const all = MODELS.map((model) => ({ ...model, plans: plansOf(model.s, bench) }));
    await bench.prepare(
      all.flatMap(({ s, plans }) => plans.map((plan) => ({ s, plan }))),
      TIMED_CAPACITY,
    );
    const [details, table]: [string[], string[]] = [[], []];
    for (const { name, s, plans } of all) {
      const { module, kernel } = attentionModule(s);
      const keyBytes = 2 * 2 * s.kvHeads * s.headDim;
      const cache = timedCache(bench, s, CACHE_ROWS);
      for (const call of CALLS) {
        const standard = cudaScheduling.key(
          defaultAttentionSchedule(kernel, module, bench.limits, {
            rows: call.paths,
            multiprocessors: bench.device.info.multiprocessors,
            run: 1,
          }),
        );
        for (const length of LENGTHS) {
          const calls = [0, 1].map((turn) => groupedPaths({ ...call, length, cacheRows: CACHE_ROWS, turn }));
          const laid = layOutCalls(bench, s, calls, cache);
          const times = new Map<string, number>();
          for (const plan of plans)
            times.set(cudaScheduling.key(plan), await timeOf(bench, s, plan, calls[0]!, laid.memory, SAMPLES));
          laid.release();
          const best = (which: (plan: CudaAttentionSchedule) => boolean): readonly [string, number] =>
            plans
              .filter(which)
              .map((plan) => [cudaScheduling.key(plan), times.get(cudaScheduling.key(plan))!] as const)
              .sort((a, b) => a[1] - b[1])[0] ?? ['none', NaN];
          const single = best(({ queries }) => queries === 1);
          const stems = best(isStems);
          const { rows } = calls[0]!;
          assert(rows > 0 && [...times.values()].every((time) => time > 0));
          const what = `${name} ${call.paths} × ${length} ${call.name}`;
          details.push(`${what}: ${[...times].map(([key, time]) => `${key} ${time.toFixed(1)}`).join(', ')}`);
          table.push(
            [
              what.padEnd(26),
              single[1].toFixed(1).padStart(9),
              (times.get(standard) ?? NaN).toFixed(1).padStart(9),
              stems[1].toFixed(1).padStart(9),
              (single[1] / stems[1]).toFixed(2).padStart(6),
              ((rows * keyBytes) / stems[1] / 1e3).toFixed(0).padStart(6),
              `  ${single[0]} | ${standard} | ${stems[0]}`,
            ].join(''),
          );
        }
      }
      for (const memory of cache.values()) memory.release();
    }
    for (const line of details) console.log(line);
    console.log(`\nµs of a layer${' '.repeat(13)}one query  default  siblings  gain   GB/s  schedules`);
    for (const line of table) console.log(line);
  });
});
