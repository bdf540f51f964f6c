/** Which bucket a call runs in while some are not ready yet, on a runner that only takes notes. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SCORE } from '../../ir/function.js';
import { Executor } from '../../runtime/executor.js';
import type { RuntimeFunction } from '../../runtime/runtimePlan.js';
import type { Readiness, StageAnswer, StageCall, StageRunner } from '../../runtime/stageRunner.js';
import { planOf } from '../support/scoring.js';
import { tinyPlan } from './tinyPlan.js';

const SMALL = 0;
const LARGE = 1;

/** Buckets become ready by `finish`, and then whoever waits for them goes on. */
class Buckets implements Readiness {
  failure: Error | undefined;
  readonly asked: number[] = [];
  private readonly ready = new Set<number>();
  private readonly waiting = new Map<number, { resolve(): void; reject(error: Error): void }[]>();

  isReady(_: RuntimeFunction, bucket: number): boolean {
    return this.ready.has(bucket);
  }

  prepare(_: RuntimeFunction, bucket: number): Promise<void> {
    this.asked.push(bucket);
    if (this.ready.has(bucket)) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.waiting.set(bucket, [...(this.waiting.get(bucket) ?? []), { resolve, reject }]);
    });
  }

  finish(bucket: number, error?: Error): void {
    if (error === undefined) this.ready.add(bucket);
    for (const { resolve, reject } of this.waiting.get(bucket) ?? [])
      if (error === undefined) resolve();
      else reject(error);
  }

  stop(): void {
    for (const { reject } of [...this.waiting.values()].flat()) reject(new Error('stopped'));
  }
}

class Notes implements StageRunner {
  readonly inFlight = 2;
  readonly tokens = 0;
  readonly pieces = { tokens: 64, bytes: 0 };
  readonly readiness = new Buckets();
  readonly calls: { readonly bucket: number; readonly kind: StageCall['kind']; readonly tokens: number }[] = [];
  /** What the next calls give as log-probability. */
  value = -1;

  run({ bucket, kind, extents }: StageCall): Promise<StageAnswer> {
    this.calls.push({ bucket, kind, tokens: extents['T']! });
    const rows = extents['R']!;
    return Promise.resolve({
      outputs: [new Float32Array(rows).fill(this.value).buffer, new Int32Array(rows).buffer],
      spans: [],
      launchNanoseconds: [],
    });
  }

  resize(tokens: number): Promise<number> {
    return Promise.resolve(tokens);
  }

  writeSlots(): Promise<void> {
    return Promise.resolve();
  }

  stop(): void {}

  release(): Promise<void> {
    return Promise.resolve();
  }
}

let runner: Notes;
let executor: Executor;
beforeEach(() => {
  runner = new Notes();
  executor = new Executor({ plan: planOf(tinyPlan()), runner, memory: undefined });
});
afterEach(() => executor.close());

const inputs = (tokens: number) => ({
  tokens: new Int32Array(tokens),
  position: Int32Array.from({ length: tokens }, (_, i) => i),
  subtreeEnd: new Int32Array(tokens).fill(tokens),
  row: Int32Array.of(tokens - 1),
  target: Int32Array.of(1),
});
const call = (tokens: number): Promise<unknown> => executor.call(SCORE, inputs(tokens));
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const ran = () => runner.calls.map(({ bucket, tokens }) => [bucket, tokens]);

describe('a call', () => {
  it('runs in the smallest bucket that is ready and holds it', async () => {
    runner.readiness.finish(LARGE);
    await call(5);
    runner.readiness.finish(SMALL);
    await call(6);
    await call(17);
    expect(ran()).toEqual([
      [LARGE, 5],
      [SMALL, 6],
      [LARGE, 17],
    ]);
    expect(runner.readiness.asked).toEqual([]);
  });

  it('starts in the turn in which it is made where nothing has to be waited for', async () => {
    runner.readiness.finish(SMALL);
    const made = call(3);
    expect(runner.calls).toHaveLength(1);
    await made;
  });

  it('waits for the best bucket alone where none is ready', async () => {
    runner.readiness.finish(SMALL);
    const made = call(17);
    await settled();
    expect(runner.calls).toEqual([]);
    expect(runner.readiness.asked).toEqual([LARGE]);
    runner.readiness.finish(LARGE);
    await made;
    expect(ran()).toEqual([[LARGE, 17]]);
  });

  it('does not overtake one that waits', async () => {
    runner.readiness.finish(SMALL);
    const made = [17, 3, 2, 18].map(call);
    await settled();
    expect(runner.calls).toEqual([]);
    runner.readiness.finish(LARGE);
    await Promise.all(made);
    expect(ran()).toEqual([
      [LARGE, 17],
      [SMALL, 3],
      [SMALL, 2],
      [LARGE, 18],
    ]);
  });

  it('rejects with what its bucket failed of; later ones go on', async () => {
    runner.readiness.finish(SMALL);
    const made = call(17);
    const later = call(2);
    await settled();
    runner.readiness.finish(LARGE, new Error('no such instruction'));
    await expect(made).rejects.toThrow('no such instruction');
    await later;
    expect(ran()).toEqual([[SMALL, 2]]);
  });

  it('rejects with a failure that nobody waited for', async () => {
    runner.readiness.finish(LARGE);
    await call(4);
    runner.readiness.failure = new Error('does not compile');
    await expect(call(4)).rejects.toThrow('does not compile');
    await expect(executor.profile(SCORE, inputs(3))).rejects.toThrow('does not compile');
    expect(runner.calls).toHaveLength(1);
  });

  it('rejects where the executor is closed before its bucket is ready', async () => {
    const made = call(4);
    const refused = expect(made).rejects.toThrow('stopped');
    await settled();
    await executor.close();
    await refused;
    expect(runner.calls).toEqual([]);
  });
});

describe('measurements', () => {
  it.each(['profile', 'diagnose'] as const)('%s waits for the bucket that is best for the call', async (kind) => {
    runner.readiness.finish(LARGE);
    const made = executor[kind](SCORE, inputs(3));
    await settled();
    expect(runner.calls).toEqual([]);
    runner.readiness.finish(SMALL);
    const result = await made;
    expect(ran()).toEqual([[SMALL, 3]]);
    if (kind === 'profile') expect(result).toMatchObject({ bucket: { extents: { T: 16 } } });
  });

  it('prepare() waits for every bucket', async () => {
    let isDone = false;
    const made = executor.prepare().then(() => (isDone = true));
    runner.readiness.finish(LARGE);
    await settled();
    expect(isDone).toBe(false);
    runner.readiness.finish(SMALL);
    await made;
  });

  it('a value that is not finite is searched for in the bucket in which it arose', async () => {
    runner.readiness.finish(LARGE);
    runner.value = NaN;
    const made = call(3);
    await expect(made).rejects.toThrow('NaN or infinite');
    expect(runner.calls.map(({ bucket, kind }) => [bucket, kind])).toEqual([
      [LARGE, 'run'],
      [LARGE, 'search'],
    ]);
  });
});
