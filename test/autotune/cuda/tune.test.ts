/** Tuning for a GPU with a made-up one: spaces, estimates, the search, its records, the table. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CudaSpace, referenceSchedule } from '../../../autotune/cuda/candidates.js';
import { cudaCost } from '../../../autotune/cuda/costModel.js';
import { contractionOf } from '../../../autotune/cuda/rival.js';
import { renderCudaTable } from '../../../autotune/cuda/table.js';
import { tuneCuda, type CudaTuneOptions } from '../../../autotune/cuda/tune.js';
import { cudaScheduleKey, TuningDatabase } from '../../../autotune/database.js';
import type { Measure, MeasureRequest } from '../../../autotune/measure.js';
import { defaultCudaSchedule, isLegalCuda, kernelSignature } from '../../../codegen/cuda/index.js';
import type { CudaSchedule } from '../../../ir/cuda.js';
import { kernelAt } from '../fixture.js';
import { CAPACITY, cudaModule, FACTS, MACHINE, TARGET, WIDE } from './fixture.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-cuda-tune-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let files = 0;
const databasePath = (): string => join(folder, `${files++}.jsonl`);

const module = cudaModule();
const wide = cudaModule(WIDE);
const BUCKETS = [{ tokens: 64, rows: 64, longest: 64 }, { tokens: 256, rows: 256, longest: 256 }];
const LARGE = { tokens: 3840, rows: 3840, longest: 256 };

describe('the space of a kernel', () => {
  it('holds legal schedules of the default\'s skeleton only, each once, and steps within itself', () => {
    for (const path of ['layers.0.attention.qkv', 'layers.0.ffn.down', 'layers.0.attention.mix', 'prepare', 'head']) {
      const kernel = kernelAt(wide, path);
      const start = defaultCudaSchedule(kernel, wide, FACTS, LARGE);
      const space = new CudaSpace(kernel, wide, FACTS);
      const all = space.enumerate(start);
      expect(all.length).toBeGreaterThan(0);
      expect(new Set(all.map(cudaScheduleKey)).size).toBe(all.length);
      for (const schedule of [...all.slice(0, 40), ...space.neighbours(start)]) {
        expect(isLegalCuda(kernel, wide, schedule, FACTS)).toBe(true);
        expect('skeleton' in schedule ? schedule.skeleton : 'loop').toBe('skeleton' in start ? start.skeleton : 'loop');
      }
      expect(space.neighbours(start).map(cudaScheduleKey)).not.toContain(cudaScheduleKey(start));
      const reference = referenceSchedule(kernel, wide, FACTS, start);
      expect(isLegalCuda(kernel, wide, reference, FACTS)).toBe(true);
      expect('skeleton' in reference ? reference.skeleton : 'loop').toBe('skeleton' in start ? 'simt' : 'loop');
    }
  });
});

describe('estimates', () => {
  const gemm = (tn: number): CudaSchedule => ({ kind: 'gemm', skeleton: 'wgmma', tm: 128, tn, tk: 64, stages: 4, cluster: 2, raster: 16, mode: 'pingpong' });

  it('count whole waves: at 1,920 tokens narrower column tiles fill the last wave of the output projection', () => {
    const cost = cudaCost(kernelAt(wide, 'layers.0.attention.o'), wide, { T: 1920, R: 1920, longest: 256 }, MACHINE);
    // 15 row tiles (16 in clusters) × 26 column tiles of 256 make 4 waves of 132 blocks; × 35 of 192 make 5 of three quarters the length.
    expect(cost(gemm(192))).toBeLessThan(cost(gemm(256)));
  });

  it('never promise more than the device has, and grow with the micro-batch', () => {
    for (const kernel of wide.kernels.slice(0, 8)) {
      let before = 0;
      for (const T of [128, 1024, 4096]) {
        const schedule = defaultCudaSchedule(kernel, wide, FACTS, { tokens: T, rows: T, longest: 256 });
        const seconds = cudaCost(kernel, wide, { T, R: T, longest: 256 }, MACHINE)(schedule);
        expect(seconds).toBeGreaterThan(before);
        before = seconds;
        if (kernel.anchor === 'gemm') {
          const { m, n, k } = contractionOf(kernel, wide, { tokens: T, rows: T, longest: 256 })!;
          expect(2 * m * n * k / seconds).toBeLessThan(MACHINE.flopsPerSecond);
        }
      }
    }
  });
});

interface Fake { readonly measure: Measure<CudaSchedule>; readonly now: () => number; readonly asked: string[] }

/** Seconds that the search does not know: the estimate, but for one number of each schedule that the estimate cannot see. */
function truth({ kernel, bucket }: MeasureRequest<CudaSchedule>, s: CudaSchedule): number {
  const size = { T: bucket.tokens, R: bucket.rows, longest: bucket.longest };
  const base = cudaCost(kernel, module, size, MACHINE)(s);
  return s.kind === 'gemm' ? base * (1 + 0.2 * Math.abs(Math.log2(s.raster / 4))) : s.kind === 'loop' ? base * (s.threads === 64 ? 0.5 : 1) : base;
}

function fake(change: (request: MeasureRequest<CudaSchedule>, s: CudaSchedule) => number | string = truth): Fake {
  let clock = 0;
  const asked: string[] = [];
  return {
    asked, now: () => clock,
    measure: async function* (request) {
      for (const schedule of request.schedules) {
        clock++;
        asked.push(`${request.kernel.path} ${request.bucket.tokens} ${cudaScheduleKey(schedule)}`);
        const result = change(request, schedule);
        await Promise.resolve();
        yield typeof result === 'string' ? { schedule, failure: result } : { schedule, seconds: [result, result, result] };
      }
    },
  };
}

const options = (machine: Fake, database: TuningDatabase, change: Partial<CudaTuneOptions> = {}): CudaTuneOptions => ({
  module, buckets: BUCKETS, facts: FACTS, machine: MACHINE, tokensCapacity: CAPACITY.tokens, budgetSeconds: 1e9, database, target: TARGET, measure: machine.measure, now: machine.now, ...change,
});

describe('tuneCuda', () => {
  it('climbs to what the estimates do not know, sums up buckets, and finds it all again without measuring', async () => {
    const path = databasePath();
    let database = TuningDatabase.open(path);
    const machine = fake();
    const first = await tuneCuda(options(machine, database));
    database.close();
    expect(first.isExhausted).toBe(true);
    for (const row of first.rows) {
      if (row.schedule.kind === 'gemm') expect(row.schedule.raster).toBe(4);
      if (row.schedule.kind === 'loop') expect(row.schedule.threads).toBe(64);
      expect(row.bestSeconds!).toBeLessThanOrEqual(row.defaultSeconds!);
    }
    const own = first.rows.filter((row) => row.bucket.tokens === 256);
    expect(first.bucketSeconds[1]!.seconds).toBeCloseTo(own.reduce((sum, row) => sum + row.count * row.bestSeconds!, 0), 12);

    database = TuningDatabase.open(path);
    expect(database.skipped).toBe(0);
    const again = fake();
    const second = await tuneCuda(options(again, database));
    expect(again.asked).toEqual([]);
    expect(second.schedules).toEqual(first.schedules);
    // Another driver, another compiler, other templates: nothing of it counts.
    for (const change of [{ driver: 12_080 }, { compiler: 'nvrtc 12.9' }, { codegen: 'beef' }, { gpu: 'Other GPU/132' }]) {
      const elsewhere = await tuneCuda(options(fake(), database, { target: { ...TARGET, ...change }, budgetSeconds: 0 }));
      expect(elsewhere.reused).toBe(0);
    }
    database.close();
  });

  it('takes what wins under load, not what won a burst, and knows it the next time', async () => {
    const path = databasePath();
    const database = TuningDatabase.open(path);
    const isDefault = (request: MeasureRequest<CudaSchedule>, s: CudaSchedule): boolean => cudaScheduleKey(s) === cudaScheduleKey(request.reference);
    // Whatever is not the default is fast for a moment; of those, one in seven is fast for hours.
    const luck = (s: CudaSchedule): number => [...cudaScheduleKey(s)].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) % 1009, 7) % 7;
    const bursts = fake((request, s) => (request.finalSeconds === undefined ? (isDefault(request, s) ? 1e-3 : 5e-4 + luck(s) * 1e-5) : isDefault(request, s) ? 1e-3 : luck(s) === 1 ? 9e-4 : 1.1e-3));
    const first = await tuneCuda(options(bursts, database));
    const chosen = first.rows.filter((row) => row.kernel.includes('ffn')).map((row) => {
      const kernel = kernelAt(module, row.kernel);
      const start = defaultCudaSchedule(kernel, module, FACTS, row.bucket);
      expect(row.bestSeconds).toBe(cudaScheduleKey(row.schedule) === cudaScheduleKey(start) ? 1e-3 : 9e-4);
      return row.bestSeconds;
    });
    expect(new Set(chosen)).toContain(1e-3);
    const second = await tuneCuda(options(fake(), database, { budgetSeconds: 0 }));
    expect(second.schedules).toEqual(first.schedules);
    database.close();
  });

  it('holds the finals of a layer\'s kernels within the layer as it stands, the others alone', async () => {
    const database = TuningDatabase.open(databasePath());
    const held = new Map<string, MeasureRequest<CudaSchedule>>();
    const machine = fake((request, s) => {
      if (request.finalSeconds !== undefined) held.set(`${request.kernel.path} ${request.bucket.tokens}`, request);
      return truth(request, s);
    });
    const { rows } = await tuneCuda(options(machine, database));
    const layer = rows.filter((row) => row.bucket.tokens === 256 && row.count > 1);
    expect(layer.length).toBeGreaterThan(2);
    const finals = [...held.values()].filter(({ bucket }) => bucket.tokens === 256);
    const inLayer = finals.filter(({ kernel }) => layer.some((row) => row.kernel === kernel.path));
    expect(inLayer.length).toBeGreaterThan(2);
    for (const { sequence } of inLayer) expect(sequence!.map(({ kernel }) => kernel.path)).toEqual(layer.map((row) => row.kernel));
    for (const { kernel, sequence } of finals) if (!inLayer.some((each) => each.kernel === kernel)) expect(sequence).toBeUndefined();
    // Who has won already is in its place when the next one is judged.
    const last = inLayer.at(-1)!, before = inLayer[0]!;
    const winner = rows.find((row) => row.kernel === before.kernel.path && row.bucket.tokens === 256)!;
    expect(last.sequence!.find(({ kernel }) => kernel === before.kernel)).toMatchObject({ schedule: winner.schedule, seconds: winner.bestSeconds });
    database.close();
  });

  it('holds finals of what it looked at when its time runs out, before it looks at more', async () => {
    const database = TuningDatabase.open(databasePath());
    const finals: string[] = [];
    const machine = fake((request, s) => {
      if (request.finalSeconds !== undefined) finals.push(request.kernel.path);
      return truth(request, s);
    });
    const { rows } = await tuneCuda(options(machine, database, { budgetSeconds: 60 }));
    expect(rows.some((row) => row.trials === 0)).toBe(true);
    expect(finals.length).toBeGreaterThan(4);
    expect(rows.filter((row) => finals.includes(row.kernel)).some((row) => row.bestSeconds! < row.defaultSeconds!)).toBe(true);
    database.close();
  });

  it('records why candidates fail and never chooses one; where the default itself fails, CUDA cores compute', async () => {
    const path = databasePath();
    const database = TuningDatabase.open(path);
    const result = await tuneCuda(options(fake(() => '3 of 9 elements differ'), database, { buckets: [BUCKETS[1]!] }));
    for (const row of result.rows) {
      const kernel = kernelAt(module, row.kernel);
      expect(row.schedule).toEqual(referenceSchedule(kernel, module, FACTS, defaultCudaSchedule(kernel, module, FACTS, BUCKETS[1]!)));
      expect(row.failures).toBeGreaterThan(0);
    }
    expect(readFileSync(path, 'utf8')).toContain('3 of 9 elements differ');
    expect(result.bucketSeconds).toEqual([]);
    database.close();
  });

  it('holds finals of what is left where the default itself fails', async () => {
    const database = TuningDatabase.open(databasePath());
    const machine = fake((request, s) => (cudaScheduleKey(s) === cudaScheduleKey(request.reference) ? 'too many resources' : truth(request, s)));
    const { rows } = await tuneCuda(options(machine, database));
    for (const row of rows.filter(({ kernel }) => kernel.includes('ffn'))) {
      const kernel = kernelAt(module, row.kernel);
      expect(cudaScheduleKey(row.schedule)).not.toBe(cudaScheduleKey(defaultCudaSchedule(kernel, module, FACTS, row.bucket)));
      const { entries, marginSeconds } = database.finalCuda(row.signature, row.bucket, TARGET)!;
      expect([entries.length > 1, marginSeconds]).toEqual([true, 0]);
    }
    database.close();
  });

  it('compiles the first round of everything in one go', async () => {
    const database = TuningDatabase.open(databasePath());
    const prepared: number[] = [];
    const machine = fake();
    await tuneCuda(options(machine, database, {
      prepare: (requests) => {
        prepared.push(requests.length);
        expect(machine.asked).toEqual([]);
        return Promise.resolve();
      },
    }));
    expect(prepared).toEqual([BUCKETS.length * new Set(module.kernels.map((kernel) => kernelSignature(kernel, module, CAPACITY.tokens))).size]);
    database.close();
  });

  it('asks the rival once for each contraction, remembers it, and goes on where it fails', async () => {
    const path = databasePath();
    let database = TuningDatabase.open(path);
    const asked: string[] = [];
    const rival = { library: 'cuBLASLt 13.0.2', time: (c: object): Promise<{ name: string; seconds: number[] }> => {
      asked.push(JSON.stringify(c));
      return Promise.resolve({ name: 'algorithm 66', seconds: [1e-5, 2e-5, 3e-5] });
    } };
    const { rows } = await tuneCuda(options(fake(), database, { rival }));
    database.close();
    const contractions = rows.filter((row) => row.rival !== undefined);
    expect(contractions.length).toBeGreaterThan(4);
    expect(contractions.every((row) => row.rival!.seconds === 2e-5)).toBe(true);
    expect(new Set(asked).size).toBe(asked.length);
    const table = renderCudaTable(rows, { name: '13.0.2' });
    expect(table[0]).toMatch(/kernel +bucket +trials +ours +cuBLASLt +ratio +of best rate/);
    const line = table.find((each) => each.includes('ffn.down') && each.includes('256/256'))!;
    const down = rows.find((row) => row.kernel.endsWith('ffn.down') && row.bucket.tokens === 256)!;
    expect(line).toContain((2e-5 / down.bestSeconds!).toFixed(3));

    database = TuningDatabase.open(path);
    const known = await tuneCuda(options(fake(), database, { rival: { ...rival, time: () => Promise.reject(new Error('not again')) }, budgetSeconds: 0 }));
    expect(known.rows.filter((row) => row.rival !== undefined)).toHaveLength(contractions.length);
    database.close();

    database = TuningDatabase.open(databasePath());
    const reasons: string[] = [];
    const without = await tuneCuda(options(fake(), database, { rival: { ...rival, time: () => Promise.reject(new Error('no handle')) }, onRivalFailure: (reason) => reasons.push(reason) }));
    expect(reasons).toEqual(['no handle']);
    expect(without.isExhausted).toBe(true);
    expect(renderCudaTable(without.rows, { absence: 'there is no libcublasLt.so' }).join('\n')).toContain('cuBLASLt is not compared with: there is no libcublasLt.so');
    database.close();
  });

  it('stops at its budget', async () => {
    const database = TuningDatabase.open(databasePath());
    const machine = fake();
    const result = await tuneCuda(options(machine, database, { budgetSeconds: 7 }));
    expect(machine.asked).toHaveLength(7);
    expect(result.isExhausted).toBe(false);
    database.close();
  });
});
