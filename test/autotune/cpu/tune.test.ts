/** The search on a simulated machine: how it spends its time, what it records, and what it finds. */
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { enumerateSpace, scheduleSpace } from '../../../autotune/cpu/candidates.js';
import { estimateSeconds } from '../../../autotune/cpu/costModel.js';
import { CPU_RECORDS, type CpuTuneOptions, type CpuTuningTarget, tuneCpu } from '../../../autotune/cpu/tune.js';
import { TuningDatabase } from '../../../autotune/database.js';
import type { Measure, MeasureRequest } from '../../../autotune/measurement.js';
import type { TuneProgress } from '../../../autotune/search.js';
import { parseBudget } from '../../../autotune/table.js';
import { defaultSchedule, isLegal, kernelSignature } from '../../../codegen/cpu/index.js';
import { cpuScheduling } from '../../../codegen/cpu/schedules.js';
import type { CpuSchedule } from '../../../ir/plan.js';
import { scoringBucket, tokensIn } from '../../../ir/scoring.js';
import { CAPACITY, FACTS, kernelAt, llamaModule, MACHINE, TARGET } from '../fixture.js';

const module = llamaModule();
const folder = mkdtempSync(join(tmpdir(), 'tilewright-search-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let files = 0;
const databasePath = (): string => join(folder, `${files++}.jsonl`);

const BUCKETS = [
  scoringBucket({ tokens: 64, rows: 64, longest: 64 }),
  scoringBucket({ tokens: 256, rows: 256, longest: 256 }),
];
const distinct = new Set(module.kernels.map((kernel) => kernelSignature(kernel, module, CAPACITY.extents))).size;

/**
 * Seconds of a schedule on the simulated machine, unknown to the search: a bowl over the logarithms of its parameters.
 */
function truth({ kernel, bucket }: MeasureRequest<CpuSchedule>, s: CpuSchedule): number {
  const log = (x: number, best: number): number => Math.log2(x / best) ** 2;
  const scale = tokensIn(bucket) * 1e-6 * (kernel.anchor === 'gemm' ? 10 : 1);
  switch (s.kind) {
    case 'gemm':
      return scale * (1 + 0.1 * (log(s.kc, 64) + log(s.mb, 48) + log(s.nb, 64)) + 0.05 * log(s.mr * s.nr, 256));
    case 'attention':
      return scale * (1 + 0.2 * (log(s.queries, 64) + log(s.keys, 128)));
    case 'loop':
      return scale * (1 + 0.1 * log(s.rows, 4));
    default:
      return s satisfies never;
  }
}

interface Fake {
  readonly measure: Measure<CpuSchedule>;
  readonly now: () => number;
  readonly asked: { request: MeasureRequest<CpuSchedule>; schedule: CpuSchedule }[];
}

/** Measures by `truth`. Each measurement takes `each` seconds of a clock that nothing else advances. */
function fake(
  each = 1,
  change: (request: MeasureRequest<CpuSchedule>, s: CpuSchedule) => number | string = truth,
): Fake {
  let clock = 0;
  const asked: Fake['asked'] = [];
  return {
    asked,
    now: () => clock,
    measure: async function* (request) {
      for (const schedule of request.schedules) {
        clock += each;
        asked.push({ request, schedule });
        const result = change(request, schedule);
        await Promise.resolve();
        yield typeof result === 'string'
          ? { schedule, failure: result }
          : { schedule, seconds: [result, result, result] };
      }
    },
  };
}

function options(
  machine: Fake,
  database: TuningDatabase<CpuSchedule, CpuTuningTarget>,
  change: Partial<CpuTuneOptions> = {},
): CpuTuneOptions {
  return {
    module,
    buckets: BUCKETS,
    facts: FACTS,
    machine: MACHINE,
    capacity: CAPACITY.extents,
    budgetSeconds: 1e9,
    database,
    target: TARGET,
    measure: machine.measure,
    now: machine.now,
    ...change,
  };
}

const linesOf = (path: string): readonly Readonly<Record<string, unknown>>[] =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Readonly<Record<string, unknown>>);
const trialsIn = (path: string): readonly unknown[] => linesOf(path).filter((line) => 'seconds' in line);

describe('tune', () => {
  it('says once of each kernel and bucket what its trials are of, before the first of them', async () => {
    const path = databasePath();
    const database = TuningDatabase.open(path, CPU_RECORDS);
    await tuneCpu(options(fake(), database));
    database.close();
    const seen = new Set<string>();
    for (const { key, bucket, job } of linesOf(path)) {
      const place = JSON.stringify([key, bucket]);
      expect(seen.has(place)).toBe(job === undefined);
      seen.add(place);
    }
    expect(linesOf(path)[0]!['job']).toMatchObject({ kernel: 'layers.0.attention.mix', count: 2 });
  });

  it('returns a legal schedule for every kernel and bucket without any time, and measures nothing', async () => {
    const machine = fake();
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const result = await tuneCpu(options(machine, database, { budgetSeconds: 0 }));
    expect(machine.asked).toEqual([]);
    expect(result.trials).toBe(0);
    result.schedules.forEach((schedules, i) => {
      expect(Object.keys(schedules)).toHaveLength(distinct);
      for (const kernel of module.kernels)
        expect(schedules[kernelSignature(kernel, module, CAPACITY.extents)]).toEqual(
          defaultSchedule(kernel, module, FACTS, BUCKETS[i]!),
        );
    });
    expect(result.bucketSeconds).toEqual([]);
    database.close();
  });

  it('finds schedules near the optimum, and better than the defaults', async () => {
    const machine = fake();
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const result = await tuneCpu(options(machine, database));
    expect(result.isExhausted).toBe(true);
    for (const row of result.rows) {
      const kernel = kernelAt(module, row.kernel);
      const start = defaultSchedule(kernel, module, FACTS, row.bucket);
      const request = { kernel, module, bucket: row.bucket, reference: start, schedules: [] };
      const best = Math.min(
        ...enumerateSpace(scheduleSpace(kernel, module, start, FACTS, row.bucket)).map((s) => truth(request, s)),
      );
      expect(row.bestSeconds).toBe(truth(request, row.schedule));
      expect(row.defaultSeconds).toBe(truth(request, start));
      expect(row.bestSeconds!).toBeLessThanOrEqual(row.defaultSeconds!);
      expect(row.bestSeconds! / best).toBeLessThan(1.15);
      expect(isLegal(kernel, module, row.schedule, FACTS)).toBe(true);
    }
    // Far fewer than the grids contain.
    expect(result.trials).toBeLessThan(40 * result.rows.length);
    database.close();
  });

  it('measures equal kernels of different layers once', async () => {
    const machine = fake();
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const result = await tuneCpu(options(machine, database));
    expect(result.rows).toHaveLength(distinct * BUCKETS.length);
    expect(result.rows.find((row) => row.kernel === 'layers.0.ffn.down')?.count).toBe(2);
    expect(new Set(machine.asked.map(({ request }) => request.kernel.path))).not.toContain('layers.1.ffn.down');
    // A schedule is measured once per bucket, and again only next to the default, to confirm it.
    const counts = new Map<string, number>();
    for (const { request, schedule } of machine.asked) {
      const key = `${request.kernel.path} ${tokensIn(request.bucket)} ${cpuScheduling.key(schedule)}`;
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    expect(Math.max(...counts.values())).toBeLessThanOrEqual(2);
    database.close();
  });

  it('keeps one instruction set for all buckets of a kernel', async () => {
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const { schedules } = await tuneCpu(options(fake(), database));
    for (const signature of Object.keys(schedules[0]!))
      expect(new Set(schedules.map((bucket) => bucket[signature]!.isa)).size).toBe(1);
    database.close();
  });

  it('is deterministic for the same measurements', async () => {
    const runs = await Promise.all(
      [0, 1].map(async () => {
        const machine = fake();
        const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
        const result = await tuneCpu(options(machine, database, { budgetSeconds: 150 }));
        database.close();
        return {
          result,
          asked: machine.asked.map(({ request, schedule }) => [
            request.kernel.path,
            tokensIn(request.bucket),
            cpuScheduling.key(schedule),
          ]),
        };
      }),
    );
    expect(runs[0]).toEqual(runs[1]);
  });

  it('stops when its time is up, and starts with the most expensive kernels', async () => {
    const machine = fake(1);
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const result = await tuneCpu(options(machine, database, { budgetSeconds: 10 }));
    expect(machine.asked).toHaveLength(10);
    expect(result.trials).toBe(10);
    expect(result.isExhausted).toBe(false);
    expect(tokensIn(machine.asked[0]!.request.bucket)).toBe(256);
    expect(['gemm', 'logprob', 'attention']).toContain(machine.asked[0]!.request.kernel.anchor);
    expect(cpuScheduling.key(machine.asked[0]!.schedule)).toBe(cpuScheduling.key(machine.asked[0]!.request.reference));
    database.close();
  });

  it('measures every job once before it climbs anywhere', async () => {
    const machine = fake(1);
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    await tuneCpu(options(machine, database, { budgetSeconds: 6 * distinct * BUCKETS.length }));
    const looked = new Set(machine.asked.map(({ request }) => `${request.kernel.path} ${tokensIn(request.bucket)}`));
    expect(looked.size).toBe(distinct * BUCKETS.length);
    database.close();
  });

  it('continues after an interruption: measures nothing twice, and ends where an undisturbed search ends', async () => {
    const path = databasePath();
    const controller = new AbortController();
    let database = TuningDatabase.open(path, CPU_RECORDS);
    const first = fake();
    const cut = await tuneCpu(
      options(first, database, {
        signal: controller.signal,
        onProgress: ({ rows }) => {
          if (rows.reduce((n, r) => n + r.trials, 0) === 37) controller.abort();
        },
      }),
    );
    database.close();
    expect(cut.trials).toBe(37);
    expect(cut.isExhausted).toBe(false);
    expect(trialsIn(path)).toHaveLength(37);
    appendFileSync(path, '{"version":1,"key":"0123');

    database = TuningDatabase.open(path, CPU_RECORDS);
    const second = fake();
    const rest = await tuneCpu(options(second, database));
    expect(rest.reused).toBe(
      new Set(
        first.asked.map(
          ({ request, schedule }) =>
            `${request.kernel.path} ${tokensIn(request.bucket)} ${cpuScheduling.key(schedule)}`,
        ),
      ).size,
    );
    const known = new Set(
      first.asked.map(
        ({ request, schedule }) => `${request.kernel.path} ${tokensIn(request.bucket)} ${cpuScheduling.key(schedule)}`,
      ),
    );
    const again = second.asked.filter(({ request, schedule }) =>
      known.has(`${request.kernel.path} ${tokensIn(request.bucket)} ${cpuScheduling.key(schedule)}`),
    );
    // Only confirmations, which come in pairs with the default.
    expect(
      again.every(({ request, schedule }) => request.schedules.length === 2 && request.schedules.includes(schedule)),
    ).toBe(true);
    database.close();

    const whole = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const undisturbed = await tuneCpu(options(fake(), whole));
    const seconds = (rows: typeof rest.rows): number =>
      rows.reduce((sum, row) => sum + row.count * row.bestSeconds!, 0);
    expect(seconds(rest.rows)).toBeCloseTo(seconds(undisturbed.rows), 3);
    whole.close();

    const third = fake();
    const database3 = TuningDatabase.open(path, CPU_RECORDS);
    const nothing = await tuneCpu(options(third, database3));
    expect(
      third.asked.map(
        ({ request, schedule }) => `${request.kernel.path} ${tokensIn(request.bucket)} ${cpuScheduling.key(schedule)}`,
      ),
    ).toEqual([]);
    expect(nothing.schedules).toEqual(rest.schedules);
    database3.close();
  });

  it('never chooses a candidate that failed, however good its estimate, nor tries it again', async () => {
    const path = databasePath();
    let database = TuningDatabase.open(path, CPU_RECORDS);
    const broken = (request: MeasureRequest<CpuSchedule>, s: CpuSchedule): number | string =>
      cpuScheduling.key(s) === cpuScheduling.key(request.reference)
        ? truth(request, s)
        : "its result differs from the default schedule's";
    const first = fake(1, broken);
    const result = await tuneCpu(options(first, database));
    database.close();
    for (const row of result.rows) {
      expect(row.schedule).toEqual(defaultSchedule(kernelAt(module, row.kernel), module, FACTS, row.bucket));
      expect(row.failures).toBeGreaterThan(0);
    }
    database = TuningDatabase.open(path, CPU_RECORDS);
    const second = fake(1, broken);
    await tuneCpu(options(second, database));
    const tried = (f: Fake): Set<string> =>
      new Set(
        f.asked
          .filter(({ request, schedule }) => cpuScheduling.key(schedule) !== cpuScheduling.key(request.reference))
          .map(
            ({ request, schedule }) =>
              `${request.kernel.path} ${tokensIn(request.bucket)} ${cpuScheduling.key(schedule)}`,
          ),
      );
    const before = tried(first);
    expect([...tried(second)].filter((key) => before.has(key))).toEqual([]);
    database.close();
  });

  it('drops a winner that does not win again next to the default', async () => {
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const times = new Map<string, number>();
    // At first, everything but the default appears twice as fast as it is.
    const lucky = fake(1, (request, s) => {
      const key = `${request.kernel.path} ${tokensIn(request.bucket)} ${cpuScheduling.key(s)}`;
      times.set(key, (times.get(key) ?? 0) + 1);
      const isStart = cpuScheduling.key(s) === cpuScheduling.key(request.reference);
      return isStart ? 1e-3 : times.get(key) === 1 ? 0.5e-3 : 2e-3;
    });
    const result = await tuneCpu(
      options(lucky, database, {
        buckets: [BUCKETS[0]!],
        module: { ...module, kernels: [kernelAt(module, 'prepare')] },
      }),
    );
    expect(result.rows[0]!.defaultSeconds).toBe(1e-3);
    const winner = cpuScheduling.key(result.rows[0]!.schedule);
    expect(result.rows[0]!.bestSeconds).toBeLessThan(1e-3);
    // The confirmed schedule is known to be slow; another, not yet confirmed, may be chosen.
    expect([...times].filter(([, count]) => count === 2).map(([key]) => key)).not.toContain(`prepare 64 ${winner}`);
    database.close();
  });

  it('distrusts a database that promises the impossible', async () => {
    const path = databasePath();
    let database = TuningDatabase.open(path, CPU_RECORDS);
    const kernel = kernelAt(module, '0.ffn.down');
    const key = kernelSignature(kernel, module, CAPACITY.extents);
    const start = defaultSchedule(kernel, module, FACTS, BUCKETS[0]!);
    for (const schedule of [
      { ...start, nb: 7 },
      { ...start, mr: 31, nr: 512 },
      { ...start, isa: 'portable', mr: 2, nr: 16, mb: 2 },
      { kind: 'loop', isa: 'avx512', rows: 4 },
    ] as CpuSchedule[])
      database.append({ key, bucket: BUCKETS[0]!, target: TARGET, schedule, seconds: [1e-12] });
    database.close();
    database = TuningDatabase.open(path, CPU_RECORDS);
    const result = await tuneCpu(options(fake(), database, { budgetSeconds: 0 }));
    expect(result.schedules[0]![key]).toEqual(start);
    expect(result.reused).toBe(0);
    database.close();
  });

  it('adds up the cost of a bucket: every kernel as often as it occurs, split by what it depends on', async () => {
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const { rows, bucketSeconds } = await tuneCpu(options(fake(), database));
    expect(bucketSeconds.map(tokensIn)).toEqual([64, 256]);
    const own = rows.filter((row) => tokensIn(row.bucket) === 256);
    const sum = (filter: (path: string) => boolean): number =>
      own.filter((row) => filter(row.kernel)).reduce((n, row) => n + row.count * row.bestSeconds!, 0);
    expect(bucketSeconds[1]!.seconds).toBeCloseTo(
      sum(() => true),
      12,
    );
    expect(bucketSeconds[1]!.attentionSeconds).toBeCloseTo(
      sum((path) => path.endsWith('mix')),
      12,
    );
    expect(bucketSeconds[1]!.rowSeconds).toBeCloseTo(
      sum(
        (path) =>
          path.startsWith('head') || (path.startsWith('layers.2') && !path.endsWith('mix') && !path.endsWith('qkv')),
      ),
      12,
    );
    database.close();
  });

  it('estimates what was not measured in a bucket at the rate of what was', async () => {
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const estimate = (request: MeasureRequest<CpuSchedule>, s: CpuSchedule): number =>
      2 * estimateSeconds(request.kernel, module, s, request.bucket, MACHINE);
    // Every kernel takes twice its estimate, and there is time only for the heaviest.
    const result = await tuneCpu(options(fake(1, estimate), database, { budgetSeconds: 60 }));
    const unmeasured = result.rows.filter((row) => row.bestSeconds === undefined);
    expect(unmeasured.length).toBeGreaterThan(3);
    const expected = result.rows
      .filter((row) => tokensIn(row.bucket) === 64)
      .reduce(
        (sum, row) =>
          sum +
          row.count *
            estimate(
              {
                kernel: kernelAt(module, row.kernel),
                module,
                bucket: row.bucket,
                reference: row.schedule,
                schedules: [],
              },
              row.schedule,
            ),
        0,
      );
    expect(result.bucketSeconds[0]!.seconds / expected).toBeCloseTo(1, 9);
    const little = await tuneCpu(
      options(fake(1, estimate), TuningDatabase.open(databasePath(), CPU_RECORDS), { budgetSeconds: 1 }),
    );
    expect(little.bucketSeconds).toEqual([]);
    database.close();
  });

  it('reports every measurement', async () => {
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const seen: TuneProgress<CpuSchedule>[] = [];
    const machine = fake(2);
    await tuneCpu(options(machine, database, { budgetSeconds: 20, onProgress: (progress) => seen.push(progress) }));
    expect(seen).toHaveLength(10);
    expect(seen.map((p) => p.elapsedSeconds)).toEqual([2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
    expect(seen[0]!.rows[seen[0]!.changed]!.trials).toBe(1);
    expect(seen[0]!.rows).toHaveLength(distinct * 2);
    database.close();
  });

  it('passes on errors of measuring, and keeps earlier measurements', async () => {
    const path = databasePath();
    const database = TuningDatabase.open(path, CPU_RECORDS);
    let left = 3;
    const failing = fake(1, (request, s) => {
      if (left-- === 0) throw new Error('the compiler vanished');
      return truth(request, s);
    });
    await expect(tuneCpu(options(failing, database))).rejects.toThrow('the compiler vanished');
    database.close();
    expect(trialsIn(path)).toHaveLength(3);
  });
});

describe('a search that waits for work that never ends', () => {
  const hanging = (asked: AbortSignal[], onHang: () => void): Measure<CpuSchedule> =>
    async function* ({ reference, signal }) {
      asked.push(signal!);
      yield { schedule: reference, seconds: [1e-3] };
      onHang();
      await new Promise<never>(() => undefined);
    };

  it('stops waiting at the end of its budget, and signals the measurer', async () => {
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const asked: AbortSignal[] = [];
    const bells: (() => void)[] = [];
    const result = await tuneCpu({
      ...options(fake(), database),
      measure: hanging(asked, () => setImmediate(() => bells.forEach((ring) => ring()))),
      budgetSeconds: 12,
      alarm: (seconds, ring) => {
        expect(seconds).toBe(12);
        bells.push(ring);
        return () => undefined;
      },
    });
    expect(result.trials).toBe(1);
    expect(asked.map(({ aborted }) => aborted)).toEqual([true]);
    database.close();
  });

  it('stops waiting when its signal is aborted', async () => {
    const database = TuningDatabase.open(databasePath(), CPU_RECORDS);
    const stop = new AbortController();
    const measure = hanging([], () => setImmediate(() => stop.abort()));
    const result = await tuneCpu({ ...options(fake(), database), measure, signal: stop.signal });
    expect(result.trials).toBe(1);
    database.close();
  });
});

describe('parseBudget', () => {
  it('reads seconds, minutes and hours', () => {
    expect(['30s', '5m', '1h', '1.5h', '45', '0', ' 2m '].map(parseBudget)).toEqual([30, 300, 3600, 5400, 45, 0, 120]);
  });
  it.each(['', 'soon', '-5s', '5 m', '5d', '1e9', '25h', 'NaN', '5mm'])('refuses %j and gives an example', (text) => {
    expect(() => parseBudget(text)).toThrow(/--budget .*30s, 5m or 1h/);
  });
});
