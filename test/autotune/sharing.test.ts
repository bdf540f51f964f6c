/** What searches share: measurements of equal launches between buckets and functions, and time between buckets. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CPU_RECORDS, type CpuTuneOptions, type CpuTuningTarget, tuneCpu } from '../../autotune/cpu/tune.js';
import { TuningDatabase } from '../../autotune/database.js';
import { measuredPlace, type MeasureRequest } from '../../autotune/measurement.js';
import { computationHash, kernelSignature } from '../../codegen/signature.js';
import type { Bucket, CpuSchedule } from '../../ir/plan.js';
import { scoringBucket, tokensIn } from '../../ir/scoring.js';
import { CAPACITY, FACTS, kernelAt, llamaModule, MACHINE, stepBucket, stepModule, TARGET } from './fixture.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-sharing-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let files = 0;
const open = (): TuningDatabase<CpuSchedule, CpuTuningTarget> =>
  TuningDatabase.open(join(folder, `${files++}.jsonl`), CPU_RECORDS);

const score = llamaModule();
const step = stepModule();
const STEP_CAPACITY = stepBucket(256, 256);
const EQUAL = ['prepare', 'embed', 'layers.0.attention.qkv', 'layers.0.attention.o', 'layers.0.ffn.gate_up'];

interface Asked {
  readonly kernel: string;
  readonly bucket: Bucket;
}

/** Searches on a clock that a measurement advances by a second. Every kernel is faster under smaller schedules. */
async function tune(
  database: TuningDatabase<CpuSchedule, CpuTuningTarget>,
  options: Pick<CpuTuneOptions, 'module' | 'buckets' | 'capacity'> & Partial<CpuTuneOptions>,
) {
  let clock = 0;
  const asked: Asked[] = [];
  const result = await tuneCpu({
    facts: FACTS,
    machine: MACHINE,
    database,
    target: TARGET,
    budgetSeconds: 1e9,
    now: () => clock,
    measure: async function* ({ kernel, bucket, schedules }: MeasureRequest<CpuSchedule>) {
      for (const schedule of schedules) {
        clock++;
        asked.push({ kernel: kernel.path, bucket });
        await Promise.resolve();
        const size = Object.values(schedule).reduce<number>((sum, v) => sum + (typeof v === 'number' ? v : 0), 0);
        yield { schedule, seconds: [1e-6 * tokensIn(bucket) * (1 + size / 1e3)] };
      }
    },
    ...options,
  });
  return { result, asked };
}

const scoring = {
  module: score,
  buckets: [scoringBucket({ tokens: 64, rows: 64, longest: 64 })],
  capacity: CAPACITY.extents,
};
const stepping = (...buckets: readonly Bucket[]) => ({ module: step, buckets, capacity: STEP_CAPACITY.extents });

describe('the hash of a computation', () => {
  const hashes = (end: string): readonly string[] => [
    computationHash(kernelAt(score, end), score, CAPACITY.extents),
    computationHash(kernelAt(step, end), step, STEP_CAPACITY.extents),
  ];

  it.each(EQUAL)('is the same for %s of score and step, whose texts differ', (end) => {
    const [a, b] = hashes(end);
    expect(a).toBe(b);
    expect(kernelSignature(kernelAt(score, end), score, CAPACITY.extents)).toBe(a);
    expect(kernelSignature(kernelAt(step, end), step, STEP_CAPACITY.extents)).not.toBe(a);
  });

  it('differs where other things are computed', () => {
    const [trees, paths] = hashes('0.attention.mix');
    expect(trees).not.toBe(paths);
    expect(new Set(EQUAL.map((end) => hashes(end)[0])).size).toBe(EQUAL.length);
  });
});

describe('the place of a measurement', () => {
  const long = { ...stepBucket(64, 200), run: 16 };

  it('is what one launch depends on: extents that it touches, and paths for attention', () => {
    expect(measuredPlace(kernelAt(step, '0.ffn.down'), step, long)).toEqual({ extents: { T: 64 }, longest: 1 });
    expect(measuredPlace(kernelAt(step, '0.attention.mix'), step, long)).toEqual(long);
    const head = measuredPlace(kernelAt(step, 'head'), step, { ...long, extents: { T: 64, C: 4096, R: 3 } });
    expect(head.extents).toEqual({ R: 3 });
  });

  it('is the same for score and step, and tells apart paths that only go on', () => {
    const end = '0.attention.o';
    expect(measuredPlace(kernelAt(step, end), step, long)).toEqual(
      measuredPlace(kernelAt(score, end), score, scoring.buckets[0]!),
    );
    const database = open();
    const records = database.recordsFor(TARGET);
    const schedule: CpuSchedule = { kind: 'attention', isa: 'avx2', queries: 16, keys: 64 };
    records.append('0123456789abcdef', long, schedule, [1]);
    expect([...records.known('0123456789abcdef', long)]).toHaveLength(1);
    expect([...records.known('0123456789abcdef', stepBucket(64, 200))]).toEqual([]);
    expect([...records.known('0123456789abcdef', { ...long, run: 8 })]).toEqual([]);
    database.close();
  });
});

describe('records', () => {
  it('of score serve step, which measures what it alone has', async () => {
    const database = open();
    const first = await tune(database, scoring);
    const bucket = stepBucket(64, 200);
    const { result } = await tune(database, { ...stepping(bucket), budgetSeconds: 0 });
    const known = result.rows.filter(({ bestSeconds }) => bestSeconds !== undefined);
    expect(known.map(({ kernel }) => kernel)).toEqual(expect.arrayContaining(EQUAL));
    for (const row of known) {
      const own = first.result.rows.find(({ kernel }) => kernel === row.kernel)!;
      expect(row.schedule).toEqual(own.schedule);
      expect(row.reused).toBeGreaterThan(0);
      expect(row.bestSeconds).toBe(own.bestSeconds);
    }
    const { asked } = await tune(database, stepping(bucket));
    const counts = (path: string): number => asked.filter(({ kernel }) => kernel === path).length;
    for (const path of EQUAL) expect(counts(path), path).toBe(0);
    expect(counts('layers.0.attention.mix')).toBeGreaterThan(1);
    database.close();
  });

  it('of one bucket serve another whose launch is the same, in the same search', async () => {
    const database = open();
    const { result, asked } = await tune(database, stepping(stepBucket(64, 200), stepBucket(64, 200, 16)));
    const places = (path: string): number =>
      new Set(asked.filter(({ kernel }) => kernel === path).map(({ bucket }) => bucket.run)).size;
    expect(places('layers.0.attention.mix')).toBe(2);
    const rows = result.rows.filter(({ kernel }) => kernel === 'layers.0.ffn.down');
    expect(rows.map(({ bestSeconds }) => bestSeconds)).toEqual([rows[0]!.bestSeconds, rows[0]!.bestSeconds]);
    expect(rows[0]!.schedule).toEqual(rows[1]!.schedule);
    const seen = asked.filter(({ kernel }) => kernel === 'layers.0.ffn.down').length;
    expect(rows.map(({ trials, reused }) => trials + reused)).toEqual([seen, seen]);
    database.close();
  });
});

describe('time', () => {
  /** Measurements of each bucket within a short budget. */
  const spent = async (isEven: boolean): Promise<readonly number[]> => {
    const buckets = [stepBucket(1, 16), stepBucket(256, 256)];
    const database = open();
    // A round for every kernel comes first, whatever the shares are.
    const { asked } = await tune(database, { ...stepping(...buckets), isEven, budgetSeconds: 220 });
    database.close();
    return buckets.map((bucket) => asked.filter((each) => tokensIn(each.bucket) === tokensIn(bucket)).length);
  };

  it('goes where calls take long, or evenly to all sizes of calls', async () => {
    const [few, many] = await spent(false);
    const [fewEven, manyEven] = await spent(true);
    expect(few! + many!).toBe(220);
    expect(fewEven! + manyEven!).toBe(220);
    expect(fewEven!).toBeGreaterThan(few!);
  });
});

it('the cost of a step counts the kernels of each bucket, whoever measured them', async () => {
  const database = open();
  const { result } = await tune(database, stepping(stepBucket(64, 200), stepBucket(128, 200, 16)));
  expect(result.bucketSeconds.map(({ extents, run }) => [extents['T'], run])).toEqual([
    [64, undefined],
    [128, 16],
  ]);
  for (const [i, tokens] of [64, 128].entries()) {
    const own = result.rows.filter(({ bucket }) => tokensIn(bucket) === tokens);
    const total = own.reduce((sum, { count, bestSeconds }) => sum + count * bestSeconds!, 0);
    expect(result.bucketSeconds[i]!.seconds).toBeCloseTo(total, 12);
  }
  database.close();
});
