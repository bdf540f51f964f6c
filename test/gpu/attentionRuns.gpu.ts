/**
 * Attention of texts and their drafts on a real device: the bits of a block for each query, and how long a call takes
 * in which one or 64 texts have 1 to 16 queries each, by blocks of one query, lone warps of several, warpgroups, and
 * clusters whose blocks share runs of queries. Launches in turn read different rows, so that none finds its keys in L2.
 * The table comes last. Bytes are those of all paths, once each.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { attentionSchedules, defaultAttentionSchedule } from '../../codegen/cuda/attention/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import { attentionModule, type AttentionData, type Shape } from '../codegen/cuda/attentionHarness.js';
import { pathSchedule, PathWorld, tangledCall } from '../codegen/cuda/pathCases.js';
import { pathShape } from '../codegen/cuda/pathSchedules.js';
import { expectSame } from '../support/numbers.js';
import { Bench, skip } from './attentionBench.js';
import { layOutCalls, type TimedCall, TIMED_CAPACITY, timedCache, timeOf } from './attentionTimes.js';

const PAGE = 16;
/** Successive pages lie so far apart, which is prime. */
const STRIDE = 7919;
/** Rows of keys that the cache has: two turns of 64 texts of 8,192 keys. */
const CACHE_ROWS = 1_100_000;
const BITS_CAPACITY = 1 << 15;
const ROUNDS = 5;
/** Keys and values of all turns are more than L2 holds. */
const [MIN_BYTES, MOST_TURNS] = [150e6, 64];

const MODEL: Shape = { ...pathShape(32, 8, 128, 'bf16'), cacheRows: CACHE_ROWS };
const KEY_BYTES = 2 * 2 * MODEL.kvHeads * MODEL.headDim;
const CALLS = [
  { texts: 1, lengths: [512, 2048, 8192, 32_768] },
  { texts: 8, lengths: [2048, 8192] },
  { texts: 64, lengths: [512, 2048, 8192] },
] as const;
/** Queries of each text: 64 texts have few in the largest calls. */
const QUERIES = [1, 2, 4, 5, 8, 16] as const;

const SINGLE = pathSchedule('mma', 1);
const isRuns = ({ queries, cluster }: CudaAttentionSchedule): boolean => queries > 1 && cluster !== undefined;
const isStems = ({ queries, lone }: CudaAttentionSchedule): boolean => queries > 1 && lone !== undefined;
const isSingle = ({ queries }: CudaAttentionSchedule): boolean => queries === 1;

function plansOf(s: Shape, bench: Bench): readonly CudaAttentionSchedule[] {
  const { module, kernel } = attentionModule(s);
  return attentionSchedules(kernel, module, bench.limits).filter((plan) => {
    if (plan.skeleton === 'wgmma') return true;
    if (plan.skeleton !== 'mma' || plan.sharesTiles === true) return false;
    return isRuns(plan) || isStems(plan) || isSingle(plan);
  });
}

/** `texts` texts of `length` keys, each with its last `queries` tokens. Pages of a turn lie among those of others. */
function draftedTexts(texts: number, length: number, queries: number, turn: number): TimedCall {
  const all = Math.floor(CACHE_ROWS / PAGE);
  const pages = length / PAGE;
  const paths = texts * queries;
  return {
    paths,
    lists: {
      begin: Int32Array.from({ length: paths }, (_, i) => Math.floor(i / queries) * length),
      position: Int32Array.from({ length: paths }, (_, i) => length - queries + (i % queries)),
      key: Int32Array.from({ length: texts * length }, (_, i) => {
        const page = turn * texts * pages + Math.floor(i / PAGE);
        return ((page * STRIDE) % all) * PAGE + (i % PAGE);
      }),
    },
  };
}

describe('attention of texts and their drafts', { skip }, () => {
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
      { ...pathShape(8, 2, 128, 'bf16', 'f32'), window: 70 },
      pathShape(4, 4, 64, 'f16'),
      pathShape(7, 1, 80, 'bf16'),
      { ...pathShape(8, 1, 128, 'bf16'), window: 300 },
      { ...pathShape(8, 2, 128, 'bf16'), scaled: 'e4m3' },
      { ...pathShape(6, 2, 64, 'bf16'), scaled: 'i8', cap: 30 },
    ];
    const plans = shapes.flatMap((s) => [
      { s, plan: SINGLE },
      ...plansOf(s, bench)
        .filter(isRuns)
        .map((plan) => ({ s, plan })),
    ]);
    await bench.prepare(plans, BITS_CAPACITY);
    let compared = 0;
    for (const s of shapes) {
      const world = new PathWorld(s, [300, 40, 135, 1, 700, 129, 77], 7);
      const calls: AttentionData[] = [1, 2, 3, 5, 8, 16].map((size) => {
        const pieces = world.lengths.map((to, sequence) => ({ sequence, from: Math.max(0, to - size), to }));
        const row = Array.from({ length: pieces.reduce((sum, { from, to }) => sum + to - from, 0) }, (_, i) => i);
        return world.call(pieces, { placement: 1, ...(s.hasQueryRow === true ? { row } : {}) });
      });
      if (s.scaled === undefined) calls.push(tangledCall(s, 3, 200), tangledCall(s, 4, 200, Infinity));
      for (const data of calls) {
        const { out: want } = await bench.run(s, SINGLE, data, BITS_CAPACITY);
        for (const { plan } of plans.filter((each) => each.s === s && isRuns(each.plan))) {
          const { out } = await bench.run(s, plan, data, BITS_CAPACITY);
          expectSame(out, want, cudaScheduling.key(plan));
          compared++;
        }
      }
    }
    console.log(`${compared} answers have the bits of a block for each query`);
  });

  it('is timed', async () => {
    const { module, kernel } = attentionModule(MODEL);
    const plans = plansOf(MODEL, bench);
    await bench.prepare(
      plans.map((plan) => ({ s: MODEL, plan })),
      TIMED_CAPACITY,
    );
    const cache = timedCache(bench, MODEL, CACHE_ROWS);
    const [details, table]: [string[], string[]] = [[], []];
    for (const { texts, lengths } of CALLS) {
      for (const length of lengths) {
        const bytes = texts * length * KEY_BYTES;
        const room = Math.floor(CACHE_ROWS / (texts * length));
        const turns = Math.max(2, Math.min(MOST_TURNS, room, Math.ceil(MIN_BYTES / bytes)));
        for (const queries of QUERIES) {
          const calls = Array.from({ length: turns }, (_, turn) => draftedTexts(texts, length, queries, turn));
          const laid = layOutCalls(bench, MODEL, calls, cache);
          const samples = { rounds: ROUNDS, launches: Math.max(4, turns) };
          const times = new Map<string, number>();
          for (const plan of plans) {
            // Warpgroups have rows for more; clusters of a few queries leave most blocks of large calls waiting.
            if (plan.skeleton === 'wgmma') continue;
            if (texts * queries > 64 && (plan.cluster ?? 1) / plan.queries > 1) continue;
            times.set(cudaScheduling.key(plan), await timeOf(bench, MODEL, plan, calls[0]!, laid.memory, samples));
          }
          laid.release();
          const best = (which: (plan: CudaAttentionSchedule) => boolean): readonly [string, number] =>
            plans
              .filter((plan) => which(plan) && times.has(cudaScheduling.key(plan)))
              .map((plan) => [cudaScheduling.key(plan), times.get(cudaScheduling.key(plan))!] as const)
              .sort((a, b) => a[1] - b[1])[0] ?? ['none', NaN];
          const standard = cudaScheduling.key(
            defaultAttentionSchedule(kernel, module, bench.limits, {
              rows: texts * queries,
              multiprocessors: bench.device.info.multiprocessors,
              run: queries,
            }),
          );
          const former = best((plan) => isSingle(plan));
          const [stems, wgmma] = [best(isStems), best(({ skeleton }) => skeleton === 'wgmma')];
          const runs = best(isRuns);
          assert([...times.values()].every((time) => time > 0));
          const what = `${texts} × ${length}, ${queries} ${queries === 1 ? 'query' : 'queries'}`;
          details.push(`${what}: ${[...times].map(([key, time]) => `${key} ${time.toFixed(1)}`).join(', ')}`);
          table.push(
            [
              what.padEnd(26),
              ...[former[1], stems[1], wgmma[1], runs[1], times.get(standard) ?? NaN].map((time) =>
                time.toFixed(1).padStart(9),
              ),
              (former[1] / runs[1]).toFixed(2).padStart(7),
              (bytes / Math.min(...times.values()) / 1e3).toFixed(0).padStart(7),
              `  ${former[0]} | ${runs[0]} | ${standard}`,
            ].join(''),
          );
        }
      }
    }
    for (const memory of cache.values()) memory.release();
    for (const line of details) console.log(line);
    const columns = ['one query', 'stems', 'wgmma', 'runs', 'default'].map((name) => name.padStart(9)).join('');
    console.log(`\n${'µs of a layer'.padEnd(26)}${columns}   gain   GB/s  one query | runs | default`);
    for (const line of table) console.log(line);
  });
});
