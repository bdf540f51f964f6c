/** Tuning for a simulated GPU: spaces, estimates, the search, its records, and the table. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { referenceSchedule } from '../../../autotune/cuda/candidates.js';
import { cudaCost } from '../../../autotune/cuda/costModel.js';
import { renderBaselineTable } from '../../../autotune/table.js';
import { CUDA_RECORDS, type CudaTuneOptions, type CudaTuningTarget, tuneCuda } from '../../../autotune/cuda/tune.js';
import { TuningDatabase } from '../../../autotune/database.js';
import type { FinalRequest, HoldFinal } from '../../../autotune/finals.js';
import type { Measure, MeasureRequest } from '../../../autotune/measurement.js';
import type { TuneProgress } from '../../../autotune/search.js';
import type { TuneRow } from '../../../autotune/searchJob.js';
import { defaultCudaSchedule, kernelSignature } from '../../../codegen/cuda/index.js';
import { cudaScheduling } from '../../../codegen/cuda/encoding.js';
import type { CudaSchedule } from '../../../ir/cuda.js';
import { scoringBucket, tokensIn } from '../../../ir/scoring.js';
import { kernelAt, SHAPE } from '../fixture.js';
import { CAPACITY, cudaModule, FACTS, MACHINE, once, TARGET } from './fixture.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-cuda-tune-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let files = 0;
const databasePath = (): string => join(folder, `${files++}.jsonl`);

const module = cudaModule();
const BUCKETS = [
  scoringBucket({ tokens: 64, rows: 64, longest: 64 }),
  scoringBucket({ tokens: 256, rows: 256, longest: 256 }),
];

type Place = Pick<MeasureRequest<CudaSchedule>, 'kernel' | 'bucket'>;

interface Fake {
  readonly measure: Measure<CudaSchedule>;
  readonly hold: HoldFinal<CudaSchedule>;
  readonly now: () => number;
  /** Schedules that were measured, and finals that were held. `at`: when each began. */
  readonly asked: string[];
  readonly held: { readonly request: FinalRequest<CudaSchedule>; readonly at: number }[];
}

const costAt = once((kernel, bucket) => cudaCost(kernel, module, bucket, MACHINE));
const startAt = once((kernel, bucket) => defaultCudaSchedule(kernel, module, FACTS, bucket));
const startKeyAt = once((kernel, bucket) => cudaScheduling.key(startAt(kernel, bucket)));

/** Seconds that the search does not know: the estimate, except for one property of each schedule that it ignores. */
function truth({ kernel, bucket }: Place, s: CudaSchedule): number {
  const base = costAt(kernel, bucket)(s);
  return s.kind === 'gemm'
    ? base * (1 + 0.2 * Math.abs(Math.log2(s.raster / 4)))
    : s.kind === 'loop'
      ? base * (s.threads === 64 ? 0.5 : 1)
      : base;
}

const FINAL_ROUNDS = 6;
const askedOf = ({ kernel, bucket }: Place, s: CudaSchedule): string =>
  `${kernel.path} ${tokensIn(bucket)} ${cudaScheduling.key(s)}`;

/**
 * A measurement takes one second, whatever its result; a final takes the time it is given. `change`: seconds in a
 * burst, or why it fails. `load`: seconds under load.
 */
function fake(
  change: (place: Place, s: CudaSchedule) => number | string = truth,
  load: (place: Place, s: CudaSchedule) => number = truth,
): Fake {
  let clock = 0;
  const asked: string[] = [];
  const held: Fake['held'] = [];
  return {
    asked,
    held,
    now: () => clock,
    measure: async function* (request) {
      for (const schedule of request.schedules) {
        clock++;
        asked.push(askedOf(request, schedule));
        const result = change(request, schedule);
        await Promise.resolve();
        yield typeof result === 'string'
          ? { schedule, failure: result }
          : { schedule, seconds: [result, result, result] };
      }
    },
    hold: async (request) => {
      const { kernels, bucket, contenders, seconds, onRound } = request;
      held.push({ request, at: clock });
      for (let round = 0; round < FINAL_ROUNDS; round++) {
        clock += seconds / FINAL_ROUNDS;
        await Promise.resolve();
        onRound?.();
      }
      return contenders.map((schedules) =>
        new Array<number>(FINAL_ROUNDS).fill(
          kernels.reduce((sum, kernel, i) => sum + load({ kernel, bucket }, schedules[i]!), 0),
        ),
      );
    },
  };
}

const options = (
  machine: Fake,
  database: TuningDatabase<CudaSchedule, CudaTuningTarget>,
  change: Partial<CudaTuneOptions> = {},
): CudaTuneOptions => ({
  module,
  buckets: BUCKETS,
  facts: FACTS,
  machine: MACHINE,
  capacity: CAPACITY.extents,
  budgetSeconds: 1e9,
  database,
  target: TARGET,
  measure: machine.measure,
  hold: machine.hold,
  now: machine.now,
  ...change,
});
const startOf = ({ kernel, bucket }: Place): CudaSchedule => startAt(kernel, bucket);
const isDefault = (place: Place, s: CudaSchedule): boolean =>
  cudaScheduling.key(s) === startKeyAt(place.kernel, place.bucket);
const placeOf = (row: TuneRow<CudaSchedule>): Place => ({ kernel: kernelAt(module, row.kernel), bucket: row.bucket });
const keysOf = (schedules: readonly CudaSchedule[]): readonly string[] => schedules.map(cudaScheduling.key);
/** Rows of the kernels in a layer, which are the sequence of a final. */
const layerOf = (rows: readonly TuneRow<CudaSchedule>[], tokens: number): readonly TuneRow<CudaSchedule>[] =>
  rows.filter(({ bucket, count }) => tokensIn(bucket) === tokens && count > 1);

describe('tuneCuda', () => {
  it('climbs to what the estimates ignore, adds up buckets, and repeats the result without measuring', async () => {
    const path = databasePath();
    let database = TuningDatabase.open(path, CUDA_RECORDS);
    const machine = fake();
    const first = await tuneCuda(options(machine, database));
    database.close();
    expect(first.isExhausted).toBe(true);
    for (const row of first.rows) {
      if (row.schedule.kind === 'gemm') expect(row.schedule.raster).toBe(4);
      if (row.schedule.kind === 'loop') expect(row.schedule.threads).toBe(64);
      expect(row.bestSeconds!).toBeLessThanOrEqual(row.defaultSeconds!);
    }
    const own = first.rows.filter((row) => tokensIn(row.bucket) === 256);
    expect(first.bucketSeconds[1]!.seconds).toBeCloseTo(
      own.reduce((sum, row) => sum + row.count * row.bestSeconds!, 0),
      12,
    );

    database = TuningDatabase.open(path, CUDA_RECORDS);
    expect(database.skipped).toBe(0);
    const again = fake();
    const second = await tuneCuda(options(again, database));
    expect([again.asked, again.held]).toEqual([[], []]);
    expect(second.schedules).toEqual(first.schedules);
    // With another driver, compiler or set of templates, no record counts.
    for (const change of [
      { driver: 12_080 },
      { compiler: 'nvrtc 12.9' },
      { codegen: 'beef' },
      { gpu: 'Other GPU/132' },
    ]) {
      const elsewhere = await tuneCuda(
        options(fake(), database, { target: { ...TARGET, ...change }, budgetSeconds: 0 }),
      );
      expect(elsewhere.reused).toBe(0);
    }
    database.close();
  });

  it('chooses what wins under load, not what won a burst, and remembers it', async () => {
    const path = databasePath();
    let database = TuningDatabase.open(path, CUDA_RECORDS);
    // Every schedule but the default is fast for a moment; one in four of them stays fast.
    const luck = (place: Place, s: CudaSchedule): number =>
      [...askedOf(place, s)].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) % 1009, 7);
    const machine = fake(
      (place, s) => (isDefault(place, s) ? 1e-3 : 5e-4 + luck(place, s) * 1e-7),
      (place, s) => (isDefault(place, s) ? 1e-3 : luck(place, s) % 4 === 1 ? 9e-4 : 1.1e-3),
    );
    const first = await tuneCuda(options(machine, database));
    const layer = BUCKETS.flatMap((bucket) => layerOf(first.rows, tokensIn(bucket)));
    const isKept = layer.map((row) => isDefault(placeOf(row), row.schedule));
    expect(new Set(isKept)).toEqual(new Set([true, false]));
    for (const [i, row] of layer.entries()) expect(row.bestSeconds).toBeCloseTo(isKept[i]! ? 1e-3 : 9e-4, 12);
    database.close();
    database = TuningDatabase.open(path, CUDA_RECORDS);
    expect(database.skipped).toBe(0);
    const second = await tuneCuda(options(fake(), database, { budgetSeconds: 0 }));
    expect(second.schedules).toEqual(first.schedules);
    database.close();
  });

  it('compares repeated kernels in module order, first with one changed, then with all winners', async () => {
    const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const machine = fake();
    const { rows } = await tuneCuda(options(machine, database));
    for (const tokens of BUCKETS.map(tokensIn)) {
      const layer = layerOf(rows, tokens);
      expect(layer.length).toBeGreaterThan(2);
      const [meeting, again, ...more] = machine.held
        .map(({ request }) => request)
        .filter(({ bucket }) => tokensIn(bucket) === tokens);
      expect(more).toEqual([]);
      for (const { kernels, contenders } of [meeting!, again!]) {
        expect(kernels.map(({ path }) => path)).toEqual(layer.map(({ kernel }) => kernel));
        expect(kernels).toEqual(module.kernels.filter((kernel) => kernels.includes(kernel)));
        expect(keysOf(contenders[0]!)).toEqual(keysOf(layer.map((row) => startOf(placeOf(row)))));
      }
      const [defaults, ...changed] = meeting!.contenders.map(keysOf);
      for (const keys of changed) expect(keys.filter((key, i) => key !== defaults![i])).toHaveLength(1);
      expect(again!.contenders).toHaveLength(2);
      expect(keysOf(again!.contenders[1]!)).toEqual(keysOf(layer.map(({ schedule }) => schedule)));
    }
    database.close();
  });

  it('compares all kernels if none is repeated', async () => {
    const single = cudaModule({ ...SHAPE, layers: 1 });
    const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const seconds = (_place: Place, s: CudaSchedule): number =>
      s.kind === 'gemm' ? 1e-3 * (1 + 0.2 * Math.abs(Math.log2(s.raster / 4))) : 1e-3;
    const machine = fake(seconds, seconds);
    const { rows } = await tuneCuda(options(machine, database, { module: single, buckets: [BUCKETS[1]!] }));
    expect(machine.held.length).toBeGreaterThan(0);
    for (const { request } of machine.held) expect(request.kernels).toEqual(single.kernels);
    expect(rows.some((row) => row.bestSeconds! < row.defaultSeconds!)).toBe(true);
    database.close();
  });

  it('changes a kernel that occurs once only for a gain of 5 % of its time; kernels in finals for less', async () => {
    for (const [seconds, isChanged] of [
      [0.96e-3, false],
      [0.94e-3, true],
    ] as const) {
      const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
      const known = (place: Place, s: CudaSchedule): number => (isDefault(place, s) ? 1e-3 : seconds);
      const { rows } = await tuneCuda(options(fake(known, known), database));
      // Some kernels have only one schedule.
      for (const row of rows.filter(({ trials }) => trials > 1))
        expect(!isDefault(placeOf(row), row.schedule)).toBe(row.count > 1 || isChanged);
      expect(rows.filter(({ trials, count }) => trials > 1 && count === 1).length).toBeGreaterThan(4);
      database.close();
    }
  });

  it('reserves the end of its time for finals of measured kernels, heaviest bucket first', async () => {
    const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const machine = fake();
    const heard: number[] = [],
      finals = new Set<number | undefined>();
    const onProgress = ({ elapsedSeconds, final }: TuneProgress<CudaSchedule>): void => {
      heard.push(elapsedSeconds);
      finals.add(final && tokensIn(final));
    };
    const { rows, isExhausted } = await tuneCuda(options(machine, database, { budgetSeconds: 200, onProgress }));
    expect([...finals]).toEqual([undefined, 256, 64]);
    expect(isExhausted).toBe(false);
    // Kernels that weigh little were not measured.
    expect(rows.some((row) => row.trials === 0)).toBe(true);
    expect(machine.held.map(({ request }) => tokensIn(request.bucket))).toEqual([256, 256, 64, 64]);
    expect(machine.held[0]!.at).toBeGreaterThanOrEqual(140);
    expect(machine.held[0]!.at).toBeLessThan(150);
    expect(machine.asked).toHaveLength(machine.held[0]!.at);
    for (const tokens of BUCKETS.map(tokensIn))
      expect(layerOf(rows, tokens).some((row) => row.bestSeconds! < row.defaultSeconds!)).toBe(true);
    // Each round is reported.
    const {
      at,
      request: { seconds },
    } = machine.held[0]!;
    expect(heard.filter((elapsed) => elapsed > at && elapsed < at + seconds - 1e-6)).toHaveLength(FINAL_ROUNDS - 1);
    database.close();
  });

  it('starts no final when its time is up; the next search holds it', async () => {
    const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const machine = fake();
    const hold: HoldFinal<CudaSchedule> = async (request) => machine.hold({ ...request, seconds: 1e9 });
    const first = await tuneCuda(options(machine, database, { hold, budgetSeconds: 1e6 }));
    expect(first.isExhausted).toBe(false);
    expect(new Set(machine.held.map(({ request }) => tokensIn(request.bucket)))).toEqual(new Set([256]));
    for (const row of layerOf(first.rows, 64)) expect(isDefault(placeOf(row), row.schedule)).toBe(true);
    const next = fake();
    const second = await tuneCuda(options(next, database));
    expect(second.isExhausted).toBe(true);
    expect(next.held.map(({ request }) => tokensIn(request.bucket))).toEqual([64, 64]);
    expect(layerOf(second.rows, 64).some((row) => row.bestSeconds! < row.defaultSeconds!)).toBe(true);
    expect(keysOf(layerOf(second.rows, 256).map(({ schedule }) => schedule))).toEqual(
      keysOf(layerOf(first.rows, 256).map(({ schedule }) => schedule)),
    );
    database.close();
  });

  it('keeps defaults if no final can be held, and checks recorded schedules before they compete', async () => {
    const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const controller = new AbortController();
    const hold: HoldFinal<CudaSchedule> = (request) => {
      // Aborting the search aborts its final.
      expect(request.signal?.aborted).toBe(false);
      return Promise.resolve(undefined);
    };
    const first = await tuneCuda(options(fake(), database, { hold, signal: controller.signal }));
    expect(first.isExhausted).toBe(false);
    const layer = BUCKETS.flatMap((bucket) => layerOf(first.rows, tokensIn(bucket)));
    for (const row of layer)
      expect([isDefault(placeOf(row), row.schedule), database.final(row.signature, row.bucket, TARGET)]).toEqual([
        true,
        undefined,
      ]);
    // Challengers are checked first; those that compute different results do not compete.
    const challengers = new Set(
      layer.flatMap((row) => {
        const place = placeOf(row);
        const start = startOf(place);
        const known = [...database.known(row.signature, row.bucket, TARGET).values()].filter(
          ({ schedule }) => !isDefault(place, schedule),
        );
        return known
          .filter(({ seconds }) => seconds < truth(place, start))
          .sort((a, b) => a.seconds - b.seconds)
          .slice(0, 2)
          .map(({ schedule }) => askedOf(place, schedule));
      }),
    );
    // A broken challenger is replaced, and its replacement is checked too.
    const isBroken = (place: Place, s: CudaSchedule): boolean =>
      !isDefault(place, s) && (challengers.has(askedOf(place, s)) || (s.kind === 'gemm' && s.raster === 4));
    const machine = fake((place, s) => (isBroken(place, s) ? '3 of 9 elements differ' : truth(place, s)));
    const { rows, isExhausted } = await tuneCuda(options(machine, database));
    expect(isExhausted).toBe(true);
    for (const each of challengers) expect(machine.asked).toContain(each);
    expect(machine.held.length).toBeGreaterThan(0);
    for (const {
      request: { kernels, bucket, contenders },
    } of machine.held) {
      for (const schedules of contenders)
        expect(schedules.some((schedule, i) => isBroken({ kernel: kernels[i]!, bucket }, schedule))).toBe(false);
    }
    for (const tokens of BUCKETS.map(tokensIn))
      expect(layerOf(rows, tokens).some((row) => isBroken(placeOf(row), row.schedule))).toBe(false);
    database.close();
  });

  it('records why candidates fail and never chooses one; if the default fails, CUDA cores are used', async () => {
    const path = databasePath();
    const database = TuningDatabase.open(path, CUDA_RECORDS);
    const machine = fake(() => '3 of 9 elements differ');
    const result = await tuneCuda(options(machine, database, { buckets: [BUCKETS[1]!] }));
    expect(machine.held).toEqual([]);
    for (const row of result.rows) {
      const kernel = kernelAt(module, row.kernel);
      expect(row.schedule).toEqual(
        referenceSchedule(kernel, module, FACTS, defaultCudaSchedule(kernel, module, FACTS, BUCKETS[1]!)),
      );
      expect(row.failures).toBeGreaterThan(0);
    }
    expect(readFileSync(path, 'utf8')).toContain('3 of 9 elements differ');
    expect(result.bucketSeconds).toEqual([]);
    database.close();
  });

  it("replaces a failing default by the best other schedule, in its neighbours' finals too", async () => {
    const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const isFailing = (place: Place, s: CudaSchedule): boolean =>
      place.kernel.path.includes('ffn') && isDefault(place, s);
    const machine = fake((place, s) => (isFailing(place, s) ? 'too many resources' : truth(place, s)));
    const { rows, isExhausted } = await tuneCuda(options(machine, database));
    expect(isExhausted).toBe(true);
    const standIns = BUCKETS.flatMap((bucket) => layerOf(rows, tokensIn(bucket))).filter(({ kernel }) =>
      kernel.includes('ffn'),
    );
    expect(standIns).toHaveLength(2 * BUCKETS.length);
    for (const row of standIns) {
      expect(row.schedule).toMatchObject({ raster: 4 });
      expect(database.final(row.signature, row.bucket, TARGET)).toBeUndefined();
      const meetings = machine.held.filter(({ request }) => request.bucket === row.bucket);
      expect(meetings.length).toBeGreaterThan(0);
      for (const {
        request: { kernels, contenders },
      } of meetings) {
        const at = kernels.findIndex(({ path }) => path === row.kernel);
        for (const schedules of contenders) expect(schedules[at]).toEqual(row.schedule);
      }
    }
    database.close();
  });

  it('measures kernels and holds a final, however much of its time the first compilation takes', async () => {
    const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const machine = fake();
    let compiling = 0;
    const prepare = (): Promise<void> => {
      compiling = 160;
      return Promise.resolve();
    };
    await tuneCuda(options(machine, database, { budgetSeconds: 200, prepare, now: () => machine.now() + compiling }));
    expect(machine.asked.length).toBeGreaterThan(20);
    expect(machine.held.length).toBeGreaterThan(0);
    expect(machine.held[0]!.request.seconds).toBeLessThan(12.1);
    database.close();
  });

  it('compiles the first round of all jobs before measuring, heaviest first, within a share of its time', async () => {
    for (const [seconds, isAll] of [
      [1, true],
      [100, false],
    ] as const) {
      const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
      const prepared: number[][] = [];
      const machine = fake();
      await tuneCuda(
        options(machine, database, {
          budgetSeconds: 200,
          now: () => machine.now() + seconds * prepared.length,
          prepare: (requests) => {
            prepared.push(requests.map(({ bucket }) => tokensIn(bucket)));
            expect(machine.asked).toEqual([]);
            return Promise.resolve();
          },
        }),
      );
      const all =
        BUCKETS.length *
        new Set(module.kernels.map((kernel) => kernelSignature(kernel, module, CAPACITY.extents))).size;
      expect(prepared.length).toBe(isAll ? 2 : 1);
      expect(prepared.flat().length === all).toBe(isAll);
      expect(prepared[0]![0]).toBe(256);
      expect(machine.asked.length).toBeGreaterThan(20);
      database.close();
    }
  });

  it('asks the rival once per contraction, records its time, and continues if it fails', async () => {
    const path = databasePath();
    let database = TuningDatabase.open(path, CUDA_RECORDS);
    const asked: string[] = [];
    const rival = {
      name: 'cuBLASLt 13.0.2',
      time: (c: object): Promise<{ name: string; seconds: number[] }> => {
        asked.push(JSON.stringify(c));
        return Promise.resolve({ name: 'algorithm 66', seconds: [1e-5, 2e-5, 3e-5] });
      },
    };
    const { rows } = await tuneCuda(options(fake(), database, { library: rival }));
    database.close();
    const contractions = rows.filter((row) => row.baseline !== undefined);
    expect(contractions.length).toBeGreaterThan(4);
    expect(contractions.every((row) => row.baseline!.seconds === 2e-5)).toBe(true);
    expect(new Set(asked).size).toBe(asked.length);
    const table = renderBaselineTable(rows, { name: '13.0.2' }, cudaScheduling.key);
    expect(table[0]).toMatch(/kernel +bucket +trials +ours +cuBLASLt +ratio +of best rate/);
    const line = table.find((each) => each.includes('ffn.down') && each.includes('256/256'))!;
    const down = rows.find((row) => row.kernel.endsWith('ffn.down') && tokensIn(row.bucket) === 256)!;
    expect(line).toContain((2e-5 / down.bestSeconds!).toFixed(3));

    database = TuningDatabase.open(path, CUDA_RECORDS);
    const known = await tuneCuda(
      options(fake(), database, {
        library: { ...rival, time: () => Promise.reject(new Error('not again')) },
        budgetSeconds: 0,
      }),
    );
    expect(known.rows.filter((row) => row.baseline !== undefined)).toHaveLength(contractions.length);
    database.close();

    database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const reasons: string[] = [];
    const without = await tuneCuda(
      options(fake(), database, {
        library: { ...rival, time: () => Promise.reject(new Error('no handle')) },
        onLibraryFailure: (reason) => reasons.push(reason),
      }),
    );
    expect(reasons).toEqual(['no handle']);
    expect(without.isExhausted).toBe(true);
    expect(
      renderBaselineTable(without.rows, { absence: 'there is no libcublasLt.so' }, cudaScheduling.key).join('\n'),
    ).toContain('no comparison with cuBLASLt: there is no libcublasLt.so');
    database.close();
  });

  it('stops at its budget', async () => {
    const database = TuningDatabase.open(databasePath(), CUDA_RECORDS);
    const machine = fake();
    const result = await tuneCuda(options(machine, database, { budgetSeconds: 7 }));
    expect([machine.asked.length, machine.held]).toEqual([7, []]);
    expect(result.isExhausted).toBe(false);
    database.close();
  });
});
