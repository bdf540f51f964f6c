import { gzipSync } from 'node:zlib';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { stepMs } from '../../route/simulate/callTimes.js';
import { baseline, BASELINES, PolicyDispatcher } from '../../route/simulate/dispatchers.js';
import { Events } from '../../route/simulate/events.js';
import { type Arrival, type FleetConfig, simulateFleet } from '../../route/simulate/fleet.js';
import { capacityOf, figuresOf, percentile } from '../../route/simulate/measure.js';
import { simulate } from '../../route/simulate/simulate.js';
import { readTrace, type TraceRow } from '../../route/simulate/trace.js';
import { DEFAULT_WORKLOAD, makeWorkload } from '../../route/simulate/workload.js';
import { Random } from '../../route/simulate/random.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-trace-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const replica = {
  callTimes: {
    points: [
      { tokens: 1, ms: 10 },
      { tokens: 101, ms: 20 },
    ],
  },
  ...{ stepTokens: 400, besideTokens: 200, maxRunning: 8, slots: 2, loadMs: 50, adapterStepMs: 0, overheadMs: 0 },
};
const config: FleetConfig = { replicas: 1, replica, reportMs: 1000 };
const first = (): { name: string; choose: () => number } => ({ name: 'first', choose: () => 0 });
const at = (arrivalMs: number, prompt: number, generated: number, adapter = -1): Arrival => ({
  ...{ arrivalMs, prompt, generated, adapter, session: 0 },
});

/** A trace that is made up: 10 minutes, mean lengths of 500 and 100 tokens. */
const rows = (count: number): TraceRow[] => {
  const random = new Random(5);
  return Array.from({ length: count }, (_, i) => ({
    atMs: (i * 600_000) / count,
    prompt: 1 + Math.floor(random.exponential(500)),
    generated: 1 + Math.floor(random.exponential(100)),
  }));
};

describe('a simulated replica', () => {
  const times = (arrivals: readonly Arrival[], more: Partial<typeof replica> = {}): number[][] =>
    simulateFleet({ ...config, replica: { ...replica, ...more } }, arrivals, first).requests.map((each) => [
      each.firstMs,
      each.endMs,
    ]);

  it('takes what the table says for steps of one text', () => {
    // A step with 101 tokens of a prompt, then four steps with one token.
    expect(times([at(0, 101, 5)])).toEqual([[20, 60]]);
    expect(stepMs(replica.callTimes, 201)).toBe(30);
  });

  it('lets a prompt ride with a text, at the next boundary', () => {
    // The second one comes in the step from 20 to 30: its prompt is computed from 30 on, beside a token of the first.
    const [a, b] = times([at(0, 101, 5), at(25, 20, 2)]);
    expect(b![0]).toBeCloseTo(30 + 12);
    expect(b![1]).toBeCloseTo(30 + 12 + 10.1);
    expect(a![1]).toBeCloseTo(30 + 12 + 10.1 + 10);
  });

  it('divides long prompts, so that texts go on', () => {
    const [a, b] = times([at(0, 1, 100), at(5, 1000, 1)]);
    // 400 tokens alone would take 50 ms; beside a text a step takes a quarter of what waits, and 25 tokens at least.
    expect(b![0]).toBeGreaterThan(100);
    expect(a![1]).toBeLessThan(2000);
  });

  it('makes who has no slot wait, and nobody behind', () => {
    const run = simulateFleet(config, [at(0, 10, 50, 0), at(0, 10, 50, 1), at(1, 10, 2, 2), at(2, 10, 2, 0)], first);
    const [, , third, fourth] = run.requests;
    expect(fourth!.endMs).toBeLessThan(third!.firstMs);
    expect(run.requests.map(({ wasHit }) => wasHit)).toEqual([false, false, false, true]);
    expect(run.loads).toBe(3);
    expect(third!.firstMs).toBeGreaterThan(Math.min(run.requests[0]!.endMs, run.requests[1]!.endMs) + replica.loadMs);
  });

  it('is slower while others of its machine compute, from that moment on', () => {
    const slower = replica.callTimes.points.map(({ tokens, ms }) => ({ tokens, ms: 2 * ms }));
    const shared = { ...config, replicas: 2, replica: { ...replica, sharedTimes: [{ points: slower }] } };
    const ends = (arrivals: readonly Arrival[]): number[] =>
      simulateFleet(shared, arrivals, () => ({ name: 'turns', choose: ({ id }) => id % 2 })).requests.map(
        ({ endMs }) => endMs,
      );
    // Half of the first one's 20 ms is over when the second comes; of the second's, half is left when it ends.
    expect(ends([at(0, 101, 1), at(10, 101, 1)])).toEqual([30, 40]);
    expect(ends([at(0, 101, 1), at(20, 101, 1)])).toEqual([20, 40]);
    // Eleven steps of 10 ms, of which 40 ms of the clock pass beside the other one.
    expect(ends([at(0, 1, 11), at(20, 101, 1)])).toEqual([130, 60]);
  });

  it('loads one adapter after the other', () => {
    const [a, b] = times([at(0, 1, 1, 0), at(0, 1, 1, 1)]);
    expect([a![0], b![0]]).toEqual([60, 110]);
  });
});

describe('events', () => {
  it('come in order of time, then of arrival', () => {
    const events = new Events<number>();
    const random = new Random(2);
    const added = Array.from({ length: 300 }, (_, i) => ({ time: random.below(40), i }));
    for (const { time, i } of added) events.add(time, i);
    const taken: number[] = [];
    while (events.size > 0) taken.push(events.take()!);
    expect(taken).toEqual([...added].sort((a, b) => a.time - b.time || a.i - b.i).map(({ i }) => i));
    expect(events.take()).toBeUndefined();
  });
});

describe('a simulated fleet', () => {
  const fleet: FleetConfig = { ...config, replicas: 4, replica: { ...replica, slots: 6, maxRunning: 16 } };
  const trace = rows(400);
  const arrivals = makeWorkload(trace, {
    ...DEFAULT_WORKLOAD,
    ...{ seed: 3, rate: 0.7 * capacityOf(trace, fleet), durationMs: 120_000, adapters: 24, moveMs: 40_000 },
  });
  const policy = (epsilon = 0.25) =>
    simulateFleet(fleet, arrivals, (replicas) => new PolicyDispatcher(replicas, fleet.replica, { epsilon }));

  it('answers each request once, whoever decides, and tells policies apart', () => {
    const hits = new Map<string, number>();
    for (const kind of BASELINES) {
      const run = simulateFleet(fleet, arrivals, (replicas) =>
        baseline(kind, replicas, { epsilon: 0.25, points: 64, seed: 1 }),
      );
      expect(run.requests.every(({ arrivalMs, firstMs, endMs }) => firstMs > arrivalMs && endMs >= firstMs)).toBe(true);
      expect(run.replicaOf.every((each) => each >= 0)).toBe(true);
      hits.set(kind, figuresOf(run).hits);
    }
    const ours = figuresOf(policy());
    expect(ours.hits).toBeGreaterThan(hits.get('bounded ring')!);
    expect(ours.hits).toBeGreaterThan(hits.get('least loaded')! + 0.2);
    expect(ours.balance).toBeLessThan(1.5);
  });

  it('does the same again', () => {
    const [a, b] = [policy(), policy()];
    expect(b.replicaOf).toEqual(a.replicaOf);
    expect(figuresOf(b)).toEqual(figuresOf(a));
    expect(makeWorkload(trace, { ...DEFAULT_WORKLOAD, seed: 4, rate: 2 })).toEqual(
      makeWorkload(trace, { ...DEFAULT_WORKLOAD, seed: 4, rate: 2 }),
    );
  });

  it('is simulated from measured times', () => {
    const result = simulate({
      ...{ replicas: 2, callTimes: replica.callTimes.points, stepTokens: 400, besideTokens: 200, maxRunning: 16 },
      arrivals: trace.slice(0, 60).map(({ atMs, prompt, generated }) => ({ atMs: atMs / 10, prompt, generated })),
    });
    expect(result.requests).toBe(60);
    expect(result.tokensPerSecond).toBeGreaterThan(0);
    expect(result.ttftP99).toBeGreaterThanOrEqual(result.ttftP50);
  });
});

describe('a workload', () => {
  const options = { ...DEFAULT_WORKLOAD, rate: 20, durationMs: 300_000, adapters: 50, moved: 5, moveMs: 100_000 };
  const drawn = makeWorkload(rows(500), options);

  it('has the rate that is asked for, in order, and sessions of one adapter', () => {
    expect(drawn.length / 300).toBeGreaterThan(18);
    expect(drawn.length / 300).toBeLessThan(22);
    expect(drawn.every(({ arrivalMs }, i) => i === 0 || arrivalMs >= drawn[i - 1]!.arrivalMs)).toBe(true);
    const adapters = new Map<number, Set<number>>();
    for (const { session, adapter } of drawn) adapters.set(session, (adapters.get(session) ?? new Set()).add(adapter));
    expect([...adapters.values()].every(({ size }) => size === 1)).toBe(true);
    expect(drawn.length / adapters.size).toBeGreaterThan(3);
  });

  it('has few popular adapters, which change', () => {
    const hottest = (from: number, to: number): number => {
      const counts = new Array<number>(50).fill(0);
      for (const each of drawn) if (each.arrivalMs >= from && each.arrivalMs < to) counts[each.adapter]!++;
      return counts.indexOf(Math.max(...counts));
    };
    expect(hottest(0, 100_000)).not.toBe(hottest(200_000, 300_000));
    const plain = makeWorkload(rows(500), { ...options, plainShare: 0.5 }).filter(({ adapter }) => adapter < 0).length;
    expect(plain / drawn.length).toBeGreaterThan(0.3);
    expect(plain / drawn.length).toBeLessThan(0.7);
  });

  it('has percentiles', () => {
    expect([percentile([3, 1, 2, 4], 0.5), percentile([3, 1, 2, 4], 0.99), percentile([], 0.5)]).toEqual([2, 4, 0]);
  });
});

describe('a trace', () => {
  const write = (name: string, text: string | Buffer): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const head = 'TIMESTAMP,ContextTokens,GeneratedTokens\n';

  it('is read as it is published, packed or not, in order of time', () => {
    const text = `${head}2023-11-16 18:15:50.9951690,396,109\r\n2023-11-16 18:15:46.6805900,374,44\n\n`;
    const expected = [
      { atMs: 0, prompt: 374, generated: 44 },
      { atMs: expect.closeTo(4314.58, 1) as number, prompt: 396, generated: 109 },
    ];
    expect(readTrace(write('a.csv', text))).toEqual(expected);
    expect(readTrace(write('a.csv.gz', gzipSync(text)))).toEqual(expected);
    // Other columns, seconds, and requests without an answer.
    expect(readTrace(write('b.csv', 'x,GeneratedTokens,TIMESTAMP,ContextTokens\n,5,1.5,7\n,0,1,7\n'))).toEqual([
      { atMs: 0, prompt: 7, generated: 5 },
    ]);
  });

  it.each([
    ['empty', '', /no requests/],
    ['noColumn', 'TIMESTAMP,ContextTokens\n1,2\n', /names no column GeneratedTokens/],
    ['noTime', `${head}yesterday,1,1\n`, /line 2: "yesterday" is no time/],
    ['noNumber', `${head}1,1e3,1\n`, /no number of tokens/],
    ['negative', `${head}1,-1,1\n`, /no number of tokens/],
    ['missing', `${head}1\n`, /no number of tokens/],
    ['huge', `${head}1,99999999,1\n`, /no number of tokens from 0 to/],
    ['longLine', `${head}${'9'.repeat(100_000)},1,1\n`, /is no time/],
    ['rows', `${head}${'1,1,1\n'.repeat(20)}`, /more than 10 requests/],
    ['bytes', `${head}${'1,1,1\n'.repeat(400)}`, /more than the limit/],
    ['cut.gz', gzipSync(`${head}1,1,1\n`).subarray(0, 30), /not a whole gzip file/],
    ['bomb.gz', gzipSync(Buffer.alloc(1 << 22, '1')), /more than 65536 bytes when unpacked|more than the limit/],
  ])('is refused in words: %s', (name, text, message) => {
    const limits = { fileBytes: 2000, textBytes: 65_536, rows: 10 };
    const wide = name === 'longLine' || name === 'bomb.gz' ? { ...limits, fileBytes: 1 << 20 } : limits;
    expect(() => readTrace(write(name, text), wide)).toThrow(message);
    expect(() => readTrace(join(folder, 'nothing'))).toThrow(/no such file/);
  });
});
