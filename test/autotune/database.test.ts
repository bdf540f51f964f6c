/** The tuning database: what it keeps, what it skips, and that hostile files do no harm. */
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CPU_RECORDS } from '../../autotune/cpu/tune.js';
import { CUDA_RECORDS } from '../../autotune/cuda/tune.js';
import { TuningDatabase } from '../../autotune/database.js';
import { DATABASE_VERSION, median } from '../../autotune/records.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import { type Bucket, type CpuSchedule, linkFunction } from '../../ir/plan.js';
import { scoringBucket } from '../../ir/scoring.js';
import { MAX_KEYS } from '../../ir/stepping.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { DEMO } from '../models/support.js';
import { TARGET } from './fixture.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-tuning-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let files = 0;
const fresh = (): string => join(folder, `d${files++}`, 'tuning.jsonl');

const KEY = '0123456789abcdef';
const BUCKET: Bucket = scoringBucket({ tokens: 256, rows: 128, longest: 100 });
const gemm = (mb: number): CpuSchedule => ({ kind: 'gemm', isa: 'avx512', mr: 14, nr: 32, kc: 384, mb, nb: 256 });

/** The path of a database that holds `times` of gemm(mb). */
function filled(times: Readonly<Record<number, number[]>>): string {
  const path = fresh();
  const database = TuningDatabase.open(path, CPU_RECORDS);
  for (const [mb, seconds] of Object.entries(times))
    database.append({ key: KEY, bucket: BUCKET, target: TARGET, schedule: gemm(Number(mb)), seconds });
  database.close();
  return path;
}

describe('median', () => {
  it('is the middle value, or the mean of the middle two', () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
    expect(() => median([])).toThrow();
  });
});

describe('a database', () => {
  it('returns the best by median after it was closed and reopened', () => {
    const database = TuningDatabase.open(
      filled({ 28: [0.003, 0.1, 0.003], 56: [0.002, 0.002, 0.5], 84: [0.0001, 0.4, 0.4] }),
      CPU_RECORDS,
    );
    expect(database.best(KEY, BUCKET, TARGET)).toEqual({ schedule: gemm(56), seconds: 0.002 });
    expect(database.known(KEY, BUCKET, TARGET).size).toBe(3);
    expect(database.skipped).toBe(0);
    database.close();
  });

  it('holds what was measured of steps, which list more keys than they have tokens', () => {
    const checkpoint = describeRandomCheckpoint(DEMO, 1);
    const { plan } = compileModel(checkpoint, cpu, cpuDevice(detectMachine(), 'auto'), {
      cacheTokens: 4096,
      batchTokens: 128,
    });
    const { buckets } = linkFunction(plan, 'step');
    expect(Math.max(...buckets.map(({ extents }) => extents['C']!))).toBe(MAX_KEYS);
    const path = fresh();
    const job = { kernel: 'mix', count: 1, signature: KEY, schedule: gemm(28), flops: 1, bytes: 1, estimateSeconds: 1 };
    const database = TuningDatabase.open(path, CPU_RECORDS);
    for (const bucket of buckets) {
      database.describe({ key: KEY, bucket, target: TARGET, job });
      database.append({ key: KEY, bucket, target: TARGET, schedule: gemm(28), seconds: [1] });
    }
    database.close();
    const again = TuningDatabase.open(path, CPU_RECORDS);
    expect(again.skipped).toBe(0);
    for (const bucket of buckets) expect(again.best(KEY, bucket, TARGET)?.seconds).toBe(1);
    again.close();
  });

  it('answers only for the kernel, bucket and target that were measured', () => {
    const database = TuningDatabase.open(filled({ 28: [1] }), CPU_RECORDS);
    expect(database.best('fedcba9876543210', BUCKET, TARGET)).toBeUndefined();
    expect(database.best(KEY, { ...BUCKET, longest: 101 }, TARGET)).toBeUndefined();
    for (const change of [
      { isa: 'x64/amx' },
      { cpu: 'another' },
      { threads: 3 },
      { compiler: 'cc 2' },
      { abi: 2 },
      { codegen: 'ab' },
    ]) {
      expect(database.best(KEY, BUCKET, { ...TARGET, ...change })).toBeUndefined();
    }
    database.close();
  });

  it('replaces the older measurement of a schedule by the newer one', () => {
    const path = filled({ 28: [1], 56: [2] });
    const database = TuningDatabase.open(path, CPU_RECORDS);
    database.append({ key: KEY, bucket: BUCKET, target: TARGET, schedule: gemm(28), seconds: [3] });
    expect(database.best(KEY, BUCKET, TARGET)?.schedule).toEqual(gemm(56));
    database.close();
    const again = TuningDatabase.open(path, CPU_RECORDS);
    expect(again.best(KEY, BUCKET, TARGET)?.schedule).toEqual(gemm(56));
    again.close();
  });

  it('keeps what a machine reached, and which machines were measured, the latest first', () => {
    const path = filled({ 28: [1] });
    const database = TuningDatabase.open(path, CPU_RECORDS);
    const other = { ...TARGET, threads: 3 };
    const rate = (perSecond: number) => ({ perSecond, source: 'measured' as const });
    database.append({ key: KEY, bucket: BUCKET, target: other, schedule: gemm(28), seconds: [3] });
    database.appendPeaks(other, { arithmetic: rate(1e12), memory: rate(1e10) });
    database.appendPeaks(other, { arithmetic: rate(2e12), memory: rate(1e10) });
    expect(() => database.appendPeaks(other, { arithmetic: rate(0), memory: rate(1) })).toThrow('Invalid measurement');
    database.close();
    const again = TuningDatabase.openExisting(path, CPU_RECORDS)!;
    expect(again.skipped).toBe(0);
    expect(again.targets).toEqual([other, TARGET]);
    expect(again.peaks(other)?.arithmetic).toEqual(rate(2e12));
    expect(again.peaks(TARGET)).toBeUndefined();
    again.close();
    expect(TuningDatabase.openExisting(join(folder, 'none.jsonl'), CPU_RECORDS)).toBeUndefined();
    expect(TuningDatabase.openExisting(folder, CPU_RECORDS)).toBeUndefined();
  });

  it('keeps failures, and never returns one as the best', () => {
    const path = fresh();
    const database = TuningDatabase.open(path, CPU_RECORDS);
    database.append({
      key: KEY,
      bucket: BUCKET,
      target: TARGET,
      schedule: gemm(28),
      seconds: [],
      failure: 'its result differs',
    });
    expect(database.best(KEY, BUCKET, TARGET)).toBeUndefined();
    database.close();
    const again = TuningDatabase.open(path, CPU_RECORDS);
    expect([...again.known(KEY, BUCKET, TARGET).values()]).toEqual([{ schedule: gemm(28), seconds: Infinity }]);
    again.close();
  });

  it('writes one whole line per record, flushed as it is appended', () => {
    const path = fresh();
    const database = TuningDatabase.open(path, CPU_RECORDS);
    for (let i = 1; i <= 3; i++) {
      database.append({ key: KEY, bucket: BUCKET, target: TARGET, schedule: gemm(28 * i), seconds: [i] }, new Date(0));
      const lines = readFileSync(path, 'utf8').split('\n');
      expect(lines).toHaveLength(i + 1);
      expect(JSON.parse(lines[i - 1]!)).toEqual({
        version: DATABASE_VERSION,
        key: KEY,
        bucket: BUCKET,
        target: TARGET,
        schedule: gemm(28 * i),
        seconds: [i],
        timestamp: '1970-01-01T00:00:00.000Z',
      });
    }
    database.close();
  });

  it('lets two writers append to one file', () => {
    const path = fresh();
    const [a, b] = [TuningDatabase.open(path, CPU_RECORDS), TuningDatabase.open(path, CPU_RECORDS)];
    for (let i = 1; i <= 20; i++)
      (i % 2 === 0 ? a : b).append({ key: KEY, bucket: BUCKET, target: TARGET, schedule: gemm(14 * i), seconds: [i] });
    a.close();
    b.close();
    const again = TuningDatabase.open(path, CPU_RECORDS);
    expect(again.known(KEY, BUCKET, TARGET).size).toBe(20);
    expect(again.skipped).toBe(0);
    again.close();
  });
});

describe('finals', () => {
  const cuda = { gpu: 'GPU/132', arch: 'sm_90a', driver: 13_000, compiler: 'nvrtc 13.0', codegen: 'beef' };
  const loop = (threads: number): CudaSchedule => ({ kind: 'loop', threads });

  it('are kept whole, the newest per place, separate from times of bursts', () => {
    const path = fresh();
    const database = TuningDatabase.open(path, CUDA_RECORDS);
    const place = { key: KEY, bucket: BUCKET, target: cuda };
    database.append({ ...place, schedule: loop(32), seconds: [1] });
    database.appendFinal({ ...place, final: [{ schedule: loop(32), seconds: 3 }], marginSeconds: 0 });
    database.appendFinal({
      ...place,
      final: [
        { schedule: loop(64), seconds: 2 },
        { schedule: loop(96), seconds: 1 },
      ],
      marginSeconds: 0.5,
    });
    database.close();
    const again = TuningDatabase.open(path, CUDA_RECORDS);
    expect(again.final(KEY, BUCKET, cuda)).toEqual({
      entries: [
        { schedule: loop(64), seconds: 2 },
        { schedule: loop(96), seconds: 1 },
      ],
      marginSeconds: 0.5,
    });
    expect([...again.known(KEY, BUCKET, cuda).values()]).toEqual([{ schedule: loop(32), seconds: 1 }]);
    expect(again.final(KEY, BUCKET, { ...cuda, driver: 12_080 })).toBeUndefined();
    expect(again.final(KEY, { ...BUCKET, extents: { ...BUCKET.extents, R: 1 } }, cuda)).toBeUndefined();
    again.close();
  });

  it('are accepted only in the form they are written in', () => {
    const path = fresh();
    const good = {
      version: DATABASE_VERSION,
      key: KEY,
      bucket: BUCKET,
      cuda,
      final: [{ schedule: loop(32), seconds: 1 }],
      marginSeconds: 0,
      timestamp: '2026-01-01T00:00:00.000Z',
    };
    const bad: unknown[] = [
      { ...good, final: [] },
      { ...good, final: Array(17).fill(good.final[0]) },
      { ...good, marginSeconds: -1 },
      { ...good, marginSeconds: 1e9 },
      { ...good, final: [{ schedule: loop(32), seconds: 0 }] },
      { ...good, final: [{ schedule: loop(32), seconds: 1, more: 1 }] },
      { ...good, seconds: [1] },
      { ...good, final: [{ schedule: { kind: 'loop', threads: 0.5 }, seconds: 1 }] },
    ];
    mkdirSync(join(path, '..'), { recursive: true });
    writeFileSync(path, [...bad, good].map((line) => `${JSON.stringify(line)}\n`).join(''));
    const database = TuningDatabase.open(path, CUDA_RECORDS);
    expect(database.skipped).toBe(bad.length);
    expect(database.final(KEY, BUCKET, cuda)?.entries).toHaveLength(1);
    database.close();
  });
});

describe('a damaged file', () => {
  it('loses only the line that was being written, wherever it was cut', () => {
    const path = filled({ 28: [1], 56: [2] });
    const whole = readFileSync(path);
    const first = whole.indexOf('\n') + 1;
    for (let cut = first + 1; cut < whole.length - 1; cut += 7) {
      writeFileSync(path, whole.subarray(0, cut));
      const database = TuningDatabase.open(path, CPU_RECORDS);
      expect(database.known(KEY, BUCKET, TARGET).size).toBe(1);
      expect(database.skipped).toBe(1);
      database.append({ key: KEY, bucket: BUCKET, target: TARGET, schedule: gemm(84), seconds: [0.5] });
      database.close();
      const again = TuningDatabase.open(path, CPU_RECORDS);
      expect(again.known(KEY, BUCKET, TARGET).size).toBe(2);
      expect(again.best(KEY, BUCKET, TARGET)?.schedule).toEqual(gemm(84));
      expect(again.skipped).toBe(1);
      again.close();
    }
  });

  it('keeps a last line that lacks only its line break', () => {
    const path = filled({ 28: [1], 56: [2] });
    writeFileSync(path, readFileSync(path, 'utf8').trimEnd());
    const database = TuningDatabase.open(path, CPU_RECORDS);
    database.append({ key: KEY, bucket: BUCKET, target: TARGET, schedule: gemm(84), seconds: [0.5] });
    database.close();
    const again = TuningDatabase.open(path, CPU_RECORDS);
    expect(again.known(KEY, BUCKET, TARGET).size).toBe(3);
    expect(again.skipped).toBe(0);
    again.close();
  });

  it('counts foreign and hostile lines and uses none of them', () => {
    const path = filled({ 28: [1] });
    const good = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
    const bad: unknown[] = [
      null,
      7,
      'text',
      [],
      {},
      { ...good, version: 99 },
      { ...good, extra: 1 },
      { ...good, key: '../../etc' },
      { ...good, key: 'x'.repeat(100) },
      { ...good, seconds: [-1] },
      { ...good, seconds: [0] },
      { ...good, seconds: [1e300] },
      { ...good, seconds: ['1'] },
      { ...good, seconds: [] },
      { ...good, seconds: Array(1001).fill(1) },
      { ...good, failure: 'but it has times' },
      { ...good, bucket: scoringBucket({ tokens: 1e12, rows: 1, longest: 1 }) },
      { ...good, schedule: { ...gemm(28), mb: 1e9 } },
      { ...good, schedule: { ...gemm(28), mb: 1.5 } },
      { ...good, schedule: { ...gemm(28), isa: 'quantum' } },
      { ...good, schedule: { ...gemm(28), kind: 'loop' } },
      { ...good, target: { ...TARGET, threads: 0 } },
      { ...good, timestamp: 'yesterday' },
    ];
    appendFileSync(path, bad.map((line) => `${JSON.stringify(line)}\n`).join(''));
    appendFileSync(
      path,
      `not json\n{"version":\n\u0000\u0001\n${'{"a":'.repeat(5000)}\n${'x'.repeat(100_000)}\n__proto__\n`,
    );
    const database = TuningDatabase.open(path, CPU_RECORDS);
    expect(database.skipped).toBe(bad.length + 6);
    expect([...database.known(KEY, BUCKET, TARGET).values()]).toEqual([{ schedule: gemm(28), seconds: 1 }]);
    database.close();
  });

  it('refuses to write what it could not read', () => {
    const path = fresh();
    const database = TuningDatabase.open(path, CPU_RECORDS);
    const record = { key: KEY, bucket: BUCKET, target: TARGET, schedule: gemm(28) };
    expect(() => database.append({ ...record, seconds: [NaN] })).toThrow();
    expect(() => database.append({ ...record, seconds: [] })).toThrow();
    expect(statSync(path).size).toBe(0);
    database.close();
  });

  it('reports a path that is not a file', () => {
    const place = join(folder, 'isFolder');
    mkdirSync(place);
    expect(() => TuningDatabase.open(place, CPU_RECORDS)).toThrow(/tuning database .*isFolder cannot be used/);
    writeFileSync(join(folder, 'plain'), '');
    expect(() => TuningDatabase.open(join(folder, 'plain', 'below.jsonl'), CPU_RECORDS)).toThrow(/cannot be used/);
    expect(existsSync(join(folder, 'plain', 'below.jsonl'))).toBe(false);
  });
});
