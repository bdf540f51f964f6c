/** Tuning of several functions: order, shares of the budget, and names in the table. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { SearchResult } from '../../autotune/search.js';
import type { TuneRow } from '../../autotune/searchJob.js';
import { tuneFunctions } from '../../driver/targets/tuning.js';
import type { CpuSchedule, Plan } from '../../ir/plan.js';
import { scoringBucket } from '../../ir/scoring.js';

const bucket = scoringBucket({ tokens: 8, rows: 8, longest: 8 });
const planOf = (...names: readonly string[]): Plan => ({
  weights: [],
  constants: [],
  states: [],
  functions: names.map((name) => ({
    interface: { name, extents: [], inputs: [], outputs: [], takes: [], gives: [] },
    buffers: [],
    kernels: [],
    launches: [],
    capacity: bucket,
    buckets: [bucket],
    schedules: [{}],
    arenaBytes: 0,
    placements: [],
  })),
});
const row: TuneRow<CpuSchedule> = {
  kernel: 'mix',
  signature: 's',
  count: 1,
  bucket,
  schedule: { kind: 'loop', isa: 'avx2', rows: 1 },
  trials: 1,
  reused: 0,
  bestSeconds: 1,
  defaultSeconds: 2,
  failures: 0,
  isDone: true,
};
const { bestSeconds: _best, defaultSeconds: _default, ...unknown } = row;
const unmeasured: TuneRow<CpuSchedule> = { ...unknown, kernel: 'unmeasured', trials: 0 };
const result: SearchResult<CpuSchedule> = {
  schedules: [{}],
  rows: [row, unmeasured],
  bucketSeconds: [],
  trials: 1,
  reused: 0,
  isExhausted: true,
};

// No time passes.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

async function tuned(names: readonly string[], budgetSeconds = 1000) {
  const asked: { name: string; budgetSeconds: number; isEven: boolean }[] = [];
  const shown: { table: readonly string[]; status: string }[] = [];
  const begin = performance.now();
  const found = await tuneFunctions<CpuSchedule>(
    planOf(...names),
    { budgetSeconds, begin, onProgress: (table, status) => shown.push({ table, status }) },
    (rows) => rows.map(({ kernel }) => kernel),
    ({ interface: { name } }, { onProgress, ...part }) => {
      asked.push({ name, ...part });
      onProgress({ rows: result.rows, changed: 0, elapsedSeconds: 0, budgetSeconds: 1 });
      return Promise.resolve(result);
    },
  );
  return { found, asked, shown };
}

it('gives score half of the budget, and the other function what is left', async () => {
  const { found, asked, shown } = await tuned(['step', 'score']);
  expect(asked.map(({ name, isEven }) => [name, isEven])).toEqual([
    ['score', false],
    ['step', true],
  ]);
  // Score was done at once.
  expect(asked.map(({ budgetSeconds }) => budgetSeconds)).toEqual([500, 1000]);
  expect(found.functions.map(({ name }) => name)).toEqual(['score', 'step']);
  expect(found.table).toEqual(['score: mix', 'step: mix']);
  expect(shown.map(({ table }) => table)).toEqual([['score: mix'], ['score: mix', 'step: mix']]);
  expect(shown.map(({ status }) => status.split(' ')[0])).toEqual(['score:', 'step:']);
});

it('gives the only function everything, and names it nowhere', async () => {
  const { found, asked, shown } = await tuned(['score']);
  expect(asked[0]!.budgetSeconds).toBe(1000);
  expect(found.table).toEqual(['mix']);
  expect(shown[0]!.status).not.toContain('score');
});

it('measures nothing when the budget is over', async () => {
  const { asked } = await tuned(['score', 'step'], 0);
  expect(asked.map(({ budgetSeconds }) => budgetSeconds)).toEqual([0, 0]);
});
