/** Real measurements of generated code, with the system compiler and the runtime. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { cpuMachine } from '../../../autotune/cpu/costModel.js';
import { CpuMeasurer } from '../../../autotune/cpu/measure.js';
import { CPU_RECORDS, cpuTarget, tuneCpu } from '../../../autotune/cpu/tune.js';
import { TuningDatabase } from '../../../autotune/database.js';
import type { Measurement } from '../../../autotune/measurement.js';
import { defaultSchedule } from '../../../codegen/cpu/index.js';
import type { CpuIsa, CpuSchedule } from '../../../ir/plan.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { loadAddon } from '../../../runtime/addon.js';
import { readSettings } from '../../../settings.js';
import { quickCc } from '../../support/runFolder.js';
import { CAPACITY, kernelAt, llamaModule } from '../fixture.js';

const ROOT = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));
const missing = [
  ...(existsSync(join(ROOT, 'build', 'Release', 'tilewright.node')) ? [] : ['the native addon (npm run build:native)']),
  ...(['cc', 'gcc', 'clang'].some((name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0)
    ? []
    : ['a C compiler']),
];
if (missing.length > 0)
  process.stderr.write(`\n!! SKIPPED: real measurements of the tuner: missing ${missing.join(' and ')}\n\n`);

describe.skipIf(missing.length > 0)('measuring', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-measure-'));
  const settings = { ...readSettings(), cacheDir: folder, cc: quickCc() };
  const measurers: CpuMeasurer[] = [];
  afterAll(async () => {
    for (const measurer of measurers) {
      await measurer.idle();
      measurer.release();
    }
    rmSync(folder, { recursive: true, force: true });
  });
  const isas = (): readonly CpuIsa[] => {
    const cpu = loadAddon().cpuInfo();
    return cpu.isas.avx512 ? ['avx512'] : cpu.isas.avx2 ? ['avx2'] : ['portable'];
  };
  const make = (): { measurer: CpuMeasurer; facts: { isas: readonly CpuIsa[]; l1: number; l2: number } } => {
    const facts = { isas: isas(), l1: 32 << 10, l2: 1 << 20 };
    const measurer = new CpuMeasurer({
      isa: facts.isas[0]!,
      threads: 2,
      capacity: CAPACITY,
      l3Bytes: 8 << 20,
      settings,
    });
    measurers.push(measurer);
    return { measurer, facts };
  };
  const module = llamaModule();
  const BUCKET = scoringBucket({ tokens: 100, rows: 45, longest: 40 });
  const collect = async (
    measurements: AsyncIterable<Measurement<CpuSchedule>>,
  ): Promise<Measurement<CpuSchedule>[]> => {
    const all: Measurement<CpuSchedule>[] = [];
    for await (const measurement of measurements) all.push(measurement);
    return all;
  };

  it('times every kind of kernel, and finds that other tiles give identical bits', async () => {
    const { measurer, facts } = make();
    const variants = (s: CpuSchedule): CpuSchedule[] => {
      switch (s.kind) {
        case 'gemm':
          return [s, { ...s, mr: 2, nr: 16, mb: 8, kc: 32 }, { ...s, nr: 32, mr: 1, mb: 33, nb: s.nb * 2 }];
        case 'attention':
          return [s, { ...s, queries: 16, keys: 64 }];
        case 'loop':
          return [s, { ...s, rows: 3 }];
        default:
          return s satisfies never;
      }
    };
    for (const end of [
      'prepare',
      'embed',
      '0.attention.qkv',
      '0.attention.mix',
      '0.ffn.gate_up',
      '2.attention.mix',
      '2.attention.o',
      'head',
      'head.reduce',
    ]) {
      const kernel = kernelAt(module, end);
      const reference = defaultSchedule(kernel, module, facts, BUCKET);
      const schedules = variants(reference);
      const measured = await collect(measurer.measure({ kernel, module, bucket: BUCKET, reference, schedules }));
      expect(measured.map((m) => m.schedule)).toEqual(schedules);
      for (const m of measured) {
        expect(m, `${end} ${JSON.stringify(m)}`).toHaveProperty('seconds');
        if (!('seconds' in m)) continue;
        expect(m.seconds.length).toBeGreaterThanOrEqual(3);
        for (const s of m.seconds) expect(s).toBeGreaterThan(0);
      }
    }
  });

  it('refuses a candidate that computes different results', async () => {
    const { measurer, facts } = make();
    const kernel = kernelAt(module, '0.ffn.gate_up');
    const reference = defaultSchedule(kernel, module, facts, BUCKET);
    if (reference.kind !== 'gemm') throw new Error('expected a gemm schedule');
    // Illegal on purpose: register tiles of 32 columns leave 16 of every 48 uncomputed, and split pairs.
    const wrong: CpuSchedule = { ...reference, mr: 2, mb: 32, nr: 32, nb: 48 };
    const [right, bad] = await collect(
      measurer.measure({ kernel, module, bucket: BUCKET, reference, schedules: [reference, wrong] }),
    );
    expect(right).toHaveProperty('seconds');
    expect(bad).toEqual({ schedule: wrong, failure: expect.stringContaining('differs') });
  });

  it('abandons hopeless candidates early', async () => {
    const { measurer, facts } = make();
    const kernel = kernelAt(module, 'prepare');
    const reference = defaultSchedule(kernel, module, facts, BUCKET);
    const [m] = await collect(
      measurer.measure({ kernel, module, bucket: BUCKET, reference, schedules: [reference], bestSeconds: 1e-12 }),
    );
    expect(m).toHaveProperty('seconds');
    if (m !== undefined && 'seconds' in m) expect(m.seconds).toHaveLength(3);
  });

  it('tunes one contraction of a tiny model from search to database', async () => {
    const { measurer, facts } = make();
    const isa = facts.isas[0]!;
    const path = join(folder, 'tuning.jsonl');
    const request = {
      module: { ...module, kernels: [kernelAt(module, '0.ffn.down')] },
      buckets: [BUCKET],
      facts,
      capacity: CAPACITY.extents,
      measure: measurer.measure,
      machine: cpuMachine({ ...facts, l3: 8 << 20 }, { isa, threads: 2, ...(await measurer.peaks()) }),
      target: await cpuTarget(isa, 2, settings),
    };
    const database = TuningDatabase.open(path, CPU_RECORDS);
    // Three measurements, however long the compiler takes for them.
    let measured = 0;
    const measure: typeof measurer.measure = async function* (asked) {
      for await (const each of measurer.measure(asked)) {
        measured++;
        yield each;
      }
    };
    const result = await tuneCpu({ ...request, measure, now: () => measured, budgetSeconds: 3, database });
    database.close();
    expect(result.trials).toBeGreaterThan(0);
    const [row] = result.rows;
    expect(row?.failures).toBe(0);
    expect(row?.defaultSeconds).toBeGreaterThan(0);
    expect(row?.bestSeconds).toBeLessThanOrEqual(row!.defaultSeconds!);
    expect(result.bucketSeconds).toEqual([
      { ...BUCKET, seconds: row!.bestSeconds, rowSeconds: 0, attentionSeconds: 0 },
    ]);

    const reopened = TuningDatabase.open(path, CPU_RECORDS);
    const again = await tuneCpu({ ...request, budgetSeconds: 0, database: reopened });
    expect(again.trials).toBe(0);
    expect(again.schedules).toEqual(result.schedules);
    const elsewhere = await tuneCpu({
      ...request,
      target: { ...request.target, threads: 1 },
      budgetSeconds: 0,
      database: reopened,
    });
    expect(elsewhere.reused).toBe(0);
    reopened.close();
  });
});
