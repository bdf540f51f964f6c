import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DevicePool } from '../../../driver/devices/pool.js';
import { ProcessEnded } from '../../../driver/devices/protocol.js';
import type { Replica } from '../../../driver/executor.js';
import type { Ui } from '../../../driver/requests.js';
import { UserError } from '../../../errors.js';
import { evaluate } from '../../../evaluate/evaluate.js';
import type { MicroBatch } from '../../../evaluate/scorer.js';
import type { CallArrays, CallResult } from '../../../runtime/call.js';
import { scoreBatch } from '../../evaluate/support/fakeScorer.js';
import { bareQuestion, randomQuestions } from '../../evaluate/support/questions.js';
import { scoreWith } from '../../support/scoring.js';

type Scored = Awaited<ReturnType<typeof scoreWith>>;

// Time goes on to the next timer when nothing else is left to do: what takes 30 ms takes longer than what takes 1 ms.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }).setTimerTickMode('nextTimerAsync');
});
afterEach(() => {
  vi.useRealTimers();
});

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

interface Life {
  /** Rejects if the model cannot be loaded. */
  readonly open?: () => Promise<void>;
  /**
   * Called before the process answers the micro-batch with this number. `die`: the process ends; `never`: no answer.
   */
  readonly at?: (index: number, batch: MicroBatch) => 'die' | 'dieLater' | 'never' | Error | undefined;
  readonly ms?: number;
}

/** A replica whose successive processes behave as `lives` says; the last entry is repeated. */
class FakeReplica implements Replica {
  readonly capacity = { score: { T: 4096, R: 4096 } };
  readonly epoch = 0;
  readonly inFlight: number;
  readonly batches: MicroBatch[] = [];
  maxInFlight = 0;
  isClosed = false;
  private readonly lives: readonly Life[];
  private readonly onEnd: (how: string) => void;
  private life = -1;
  private asked = 0;
  private present: Promise<void> = Promise.resolve();
  private readonly open = new Set<(error: unknown) => void>();

  constructor(lives: readonly Life[], onEnd: (how: string) => void, inFlight = 2) {
    [this.lives, this.onEnd, this.inFlight] = [lives, onEnd, inFlight];
    this.begin();
  }

  opened(): Promise<void> {
    return this.present;
  }

  async call(_name: string, inputs: CallArrays): Promise<CallResult> {
    const batch = inputs as unknown as MicroBatch;
    this.batches.push(batch);
    const { at, ms = 1 } = this.now();
    const fault = at?.(this.asked++, batch);
    let fail: (error: unknown) => void = () => undefined;
    const ended = new Promise<never>((_, reject) => {
      fail = reject;
    });
    this.open.add(fail);
    this.maxInFlight = Math.max(this.maxInFlight, this.open.size);
    try {
      if (fault === 'die') this.end();
      if (fault === 'dieLater') setTimeout(() => this.end(), 5);
      if (fault === 'die' || fault === 'dieLater' || fault === 'never') return await ended;
      await Promise.race([wait(ms), ended]);
      if (fault !== undefined) throw fault;
      return { outputs: { ...scoreBatch(batch) }, spans: [{ device: 0, kind: 'compute', begin: 1, end: 2 }] };
    } finally {
      this.open.delete(fail);
    }
  }

  profile(): Promise<{ readonly launches: readonly [] }> {
    return Promise.resolve({ launches: [] });
  }

  close(): Promise<void> {
    this.isClosed = true;
    return Promise.resolve();
  }

  /** Ends its process, whatever it is working on. */
  end(): void {
    for (const fail of [...this.open]) fail(new ProcessEnded('SIGKILL'));
    this.begin();
    this.onEnd('SIGKILL');
  }

  private now(): Life {
    return this.lives[Math.min(this.life, this.lives.length - 1)] ?? {};
  }

  private begin(): void {
    this.life++;
    this.asked = 0;
    this.present = this.now().open?.() ?? Promise.resolve();
    this.present.catch(() => undefined);
  }
}

interface World {
  readonly pool: DevicePool;
  readonly replicas: readonly FakeReplica[];
  readonly warnings: string[];
}

function world(lives: readonly (readonly Life[])[], stages = 1, patience = 5000): World {
  const warnings: string[] = [];
  const none = (): void => undefined;
  const ui: Ui = {
    phase: none,
    step: none,
    run: none,
    table: none,
    note: none,
    detail: none,
    warn: (line) => warnings.push(line),
  };
  const replicas: FakeReplica[] = [];
  const pool = DevicePool.begin(
    {
      count: lives.length,
      stages,
      patience,
      nameOf: (index) => `device ${index}`,
      begin: (index, onEnd) => (replicas[index] = new FakeReplica(lives[index]!, onEnd, 2 * stages)),
    },
    ui,
  );
  return { pool, replicas, warnings };
}

/** One tree of `tokens` tokens, unlike any other. */
const batch = (first: number, tokens = 3): MicroBatch => ({
  tokens: Int32Array.from({ length: tokens }, (_, i) => first + i),
  position: Int32Array.from({ length: tokens }, (_, i) => i),
  subtreeEnd: new Int32Array(tokens).fill(tokens),
  row: Int32Array.of(tokens - 1),
  target: Int32Array.of(first),
});
const batches = (count: number): MicroBatch[] => Array.from({ length: count }, (_, i) => batch(100 * i, 3 + (i % 5)));
const answersOf = (scored: readonly Scored[]): number[][] => scored.map(({ logProb }) => [...logProb]);
const expected = (asked: readonly MicroBatch[]): number[][] => answersOf(asked.map(scoreBatch));

/** Scores all micro-batches, with as many in flight as the pool allows. */
async function scoreAll(pool: DevicePool, asked: readonly MicroBatch[]): Promise<Scored[]> {
  const results: Scored[] = [];
  let next = 0;
  let running = 0;
  return new Promise((resolve, reject) => {
    const fill = (): void => {
      if (next === asked.length && running === 0) resolve(results);
      while (running < pool.inFlight && next < asked.length) {
        const at = next++;
        running++;
        scoreWith(pool, asked[at]!).then((scored) => {
          results[at] = scored;
          running--;
          fill();
        }, reject);
      }
    };
    fill();
  });
}

describe('replicas of a pool', () => {
  it('share micro-batches, each at its own rate, and number devices over all replicas', async () => {
    const { pool, replicas, warnings } = world([[{}], [{}], [{}]], 2);
    await pool.opened();
    await wait(1);
    expect(pool.capacity).toEqual({ score: { T: 4096, R: 4096 } });
    expect([pool.inFlight, pool.replicas, pool.devices]).toEqual([12, 3, 6]);
    const asked = batches(60);
    const scored = await scoreAll(pool, asked);
    expect(answersOf(scored)).toEqual(expected(asked));
    for (const { batches: own, maxInFlight } of replicas) {
      expect(own.length).toBeGreaterThan(10);
      expect(maxInFlight).toBe(4);
    }
    expect([...new Set(scored.flatMap(({ spans }) => spans!.map(({ device }) => device)))].sort()).toEqual([0, 2, 4]);
    await pool.close();
    expect(replicas.map(({ isClosed }) => isClosed)).toEqual([true, true, true]);
    await expect(scoreWith(pool, batch(0))).rejects.toThrow('closed');
    expect(warnings).toEqual([]);
  });

  it('give a waiting micro-batch to the replica with the least to do', async () => {
    const { pool, replicas } = world([[{ ms: 30 }], [{ ms: 1 }]]);
    await pool.opened();
    await wait(1);
    await scoreAll(pool, batches(30));
    expect(replicas[1]!.batches.length).toBeGreaterThan(20);
    await pool.close();
  });

  it('start when the first is ready; the others join', async () => {
    let release: () => void = () => undefined;
    const { pool, replicas } = world([
      [
        {
          open: () =>
            new Promise((resolve) => {
              release = resolve;
            }),
        },
      ],
      [{}],
    ]);
    await pool.opened();
    expect([pool.inFlight, pool.devices]).toEqual([4, 2]);
    const asked = batches(40);
    const all = scoreAll(pool, asked);
    await wait(5);
    expect(replicas[0]!.batches).toHaveLength(0);
    const before = replicas[1]!.batches.length;
    release();
    await wait(0);
    // At once, not only when the others have finished something.
    expect(replicas[0]!.batches).toHaveLength(2);
    expect(replicas[1]!.batches.length - before).toBeLessThan(4);
    expect(answersOf(await all)).toEqual(expected(asked));
    expect(replicas[0]!.batches.length).toBeGreaterThan(5);
    await pool.close();
  });

  it('continue without one that cannot load the model, and report it once', async () => {
    const outOfMemory = new UserError('This plan needs 90 GiB of device memory\nweights …', 'use another');
    const { pool, replicas, warnings } = world([[{}], [{ open: () => Promise.reject(outOfMemory) }], [{}]]);
    await pool.opened();
    await wait(1);
    expect([pool.devices, pool.inFlight]).toEqual([2, 4]);
    const asked = batches(20);
    expect(answersOf(await scoreAll(pool, asked))).toEqual(expected(asked));
    expect(warnings).toEqual([
      'device 1 is left out, the run goes on with 2 of 3: This plan needs 90 GiB of device memory',
    ]);
    expect(replicas[1]!.isClosed).toBe(true);
    await pool.close();
  });

  it('fail if none can load the model, with the first error', async () => {
    const refuse = (what: string): Life => ({ open: () => Promise.reject(new UserError(what, 'hint')) });
    const { pool, warnings } = world([[refuse('first')], [refuse('second')]]);
    await expect(pool.opened()).rejects.toMatchObject({ name: 'UserError', message: 'first', hint: 'hint' });
    expect(warnings).toHaveLength(1);
    await pool.close();
  });

  it('repeat what a dead process was asked, and accept its successor', async () => {
    const { pool, replicas, warnings } = world([[{}], [{ at: (index) => (index === 3 ? 'die' : undefined) }, {}]]);
    await pool.opened();
    const asked = batches(60);
    expect(answersOf(await scoreAll(pool, asked))).toEqual(expected(asked));
    expect(replicas[1]!.batches.length).toBeGreaterThan(10);
    expect(warnings).toEqual([]);
    await pool.close();
  });

  it('repeat what another does not answer once they are idle, and ignore its late answer', async () => {
    const { pool, replicas, warnings } = world(
      [[{}], [{ at: (index) => (index >= 3 ? 'never' : undefined) }], [{}]],
      1,
      30,
    );
    await pool.opened();
    const asked = batches(40);
    const begin = performance.now();
    expect(answersOf(await scoreAll(pool, asked))).toEqual(expected(asked));
    expect(performance.now() - begin).toBeGreaterThan(30);
    expect(warnings).toHaveLength(2);
    expect(warnings[0]).toMatch(/^device 1 has not answered for \d+ s: device [02] computes the same$/);
    // It ends at last, without effect: everything it was asked has been answered.
    const before = replicas.flatMap(({ batches: own }) => own).length;
    replicas[1]!.end();
    await wait(5);
    expect(replicas.flatMap(({ batches: own }) => own)).toHaveLength(before);
    await pool.close();
  });

  it('ask at most one other replica, and again when both have ended', async () => {
    const { pool, replicas } = world([[{ at: () => 'never' }, {}], [{ at: () => 'never' }, {}], [{}]], 1, 10);
    await pool.opened();
    await wait(1);
    const answer = scoreWith(pool, batch(3));
    await wait(250);
    const asked = replicas.filter(({ batches: own }) => own.length > 0);
    expect(asked).toHaveLength(2);
    for (const replica of asked) replica.end();
    expect(answersOf([await answer])).toEqual(expected([batch(3)]));
    await pool.close();
  });

  it('continue without one that cannot be replaced', async () => {
    const { pool, warnings } = world([
      [{ at: (index) => (index === 2 ? 'die' : undefined) }, { open: () => Promise.reject(new Error('no device')) }],
      [{}],
      [{}],
    ]);
    await pool.opened();
    const asked = batches(60);
    expect(answersOf(await scoreAll(pool, asked))).toEqual(expected(asked));
    expect(warnings).toEqual(['device 0 is left out, the run goes on with 2 of 3: no device']);
    await pool.close();
  });

  it('fail the remaining micro-batches, queued or running, when the last replica ends', async () => {
    const last: readonly Life[] = [
      { at: (index) => (index === 2 ? 'die' : undefined) },
      { open: () => Promise.reject(new UserError('the device is gone', 'look at nvidia-smi')) },
    ];
    const { pool } = world([last, last]);
    await pool.opened();
    const settled = await Promise.allSettled(batches(20).map((each) => scoreWith(pool, each)));
    expect(settled.filter(({ status }) => status === 'fulfilled').length).toBeLessThan(10);
    for (const each of settled)
      if (each.status === 'rejected')
        expect(each.reason).toMatchObject({ message: 'the device is gone', hint: 'look at nvidia-smi' });
    await expect(scoreWith(pool, batch(0))).rejects.toThrow('the device is gone');
    await pool.close();
  });

  it('reject a micro-batch that ends one process after another, but not its neighbours', async () => {
    const fatal = batch(77_700);
    const lives: Life[] = [{ at: (_, asked) => (asked.tokens === fatal.tokens ? 'dieLater' : undefined) }];
    const { pool, replicas } = world([lives, lives, lives]);
    await pool.opened();
    await wait(1);
    const asked = batches(30);
    const failure = scoreWith(pool, fatal).catch((error: unknown) => error);
    expect(answersOf(await scoreAll(pool, asked))).toEqual(expected(asked));
    expect(await failure).toBeInstanceOf(UserError);
    expect(String(await failure)).toContain('a call of score with 3 tokens ended the device process 3 times: SIGKILL');
    expect(replicas.flatMap(({ batches: own }) => own.filter(({ tokens }) => tokens === fatal.tokens))).toHaveLength(3);
    await pool.close();
  });

  it('let the last one try what was running when all others died', async () => {
    const dies: Life[] = [{ at: (index) => (index === 0 ? 'die' : undefined) }, {}];
    const { pool, replicas } = world([dies, dies, dies, [{}]]);
    await pool.opened();
    await wait(1);
    expect(answersOf([await scoreWith(pool, batch(5))])).toEqual(expected([batch(5)]));
    expect(replicas.map(({ batches: own }) => own.length)).toEqual([1, 1, 1, 1]);
    await pool.close();
  });

  it('do not blame a micro-batch that was only queued in processes that ended', async () => {
    // Each process ends at its second micro-batch. At the third end, neither has been the one running three times.
    const dies: Life = { at: (index) => (index === 1 ? 'die' : undefined), ms: 20 };
    const { pool } = world([[dies, dies, dies, {}]]);
    await pool.opened();
    const asked = batches(6);
    expect(answersOf(await scoreAll(pool, asked))).toEqual(expected(asked));
    await pool.close();
  });

  it('retry on the same replica if there is no other', async () => {
    const { pool, replicas } = world([
      [{ at: (index) => (index === 0 ? 'die' : undefined) }, {}],
      [{ open: () => Promise.reject(new Error('none')) }],
    ]);
    await pool.opened();
    expect(answersOf([await scoreWith(pool, batch(5))])).toEqual(expected([batch(5)]));
    expect(replicas[0]!.batches).toHaveLength(2);
    await pool.close();
  });

  it('report an invalid micro-batch, and ask no other replica', async () => {
    const nan = Object.assign(new Error('bad'), { name: 'NonFiniteError', where: 'layers.1.ffn.down', rows: [0] });
    const { pool, replicas } = world([[{ at: () => nan }], [{ at: () => nan }]]);
    await pool.opened();
    await expect(scoreWith(pool, batch(1))).rejects.toBe(nan);
    expect(replicas.flatMap(({ batches: own }) => own)).toHaveLength(1);
    await pool.close();
  });

  it('leave no caller waiting when they are closed', async () => {
    const { pool } = world([[{ at: () => 'never' }]]);
    await pool.opened();
    const asked = batches(5).map((each) => scoreWith(pool, each).catch((error: unknown) => String(error)));
    await pool.close();
    expect(await Promise.all(asked.slice(2))).toEqual(Array(3).fill('Error: this executor was closed'));
  });

  it("give one replica's answers, whichever dies at whatever time (random questions and faults)", async () => {
    await fc.assert(
      fc.asyncProperty(
        randomQuestions(),
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.tuple(fc.integer({ min: 0, max: 2 }), fc.integer({ min: 0, max: 6 })), { maxLength: 4 }),
        async (tokenized, count, faults) => {
          // A replica may die several times, once per process; the first replica never does.
          const lives = Array.from({ length: count }, (_, index): Life[] => [
            ...(index === 0
              ? []
              : faults
                  .filter(([who]) => who === index % 3)
                  .map(([, when]): Life => ({ ms: 0, at: (i) => (i === when ? 'die' : undefined) }))),
            { ms: 0 },
          ]);
          const { pool } = world(lives);
          await pool.opened();
          const scorer = {
            maxTokens: 200,
            maxRows: 200,
            maxLength: 256,
            cost: (tokens: number) => 1 + tokens,
            score: (each: MicroBatch) => scoreWith(pool, each),
            get inFlight() {
              return pool.inFlight;
            },
            get replicas() {
              return pool.replicas;
            },
            get devices() {
              return pool.devices;
            },
          };
          const questions = { questions: tokenized.map(bareQuestion), tokenized, sharing: 'tree' as const };
          const alone = {
            ...scorer,
            inFlight: 1,
            replicas: 1,
            devices: 1,
            score: (each: MicroBatch) => Promise.resolve(scoreBatch(each)),
          };
          const { scores } = await evaluate({ ...questions, scorer });
          expect(scores).toEqual((await evaluate({ ...questions, scorer: alone })).scores);
          await pool.close();
        },
      ),
      { numRuns: 60 },
    );
  });
});
