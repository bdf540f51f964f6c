/** How many problems run at once, and where. Results never depend on it. */
import { describe, expect, it } from 'vitest';
import type { MemoryRoom } from '../../engine/replicaMemory.js';
import type { SearchOptions } from '../../search/options.js';
import { extend, type Path, type Problem, rootOf } from '../../search/path.js';
import type { StepWriter } from '../../search/ports.js';
import { ProblemSchedule, type ScheduleOptions } from '../../search/schedule.js';

const OPTIONS: SearchOptions = { method: 'beam', n: 4, width: 2, iterations: 8, stepTokens: 50 };

const problemsOf = (count: number): readonly Problem[] =>
  Array.from({ length: count }, (_, i) => ({ id: String(i), problem: `${i}` }));

/** A room of so many tokens, of 1,000 and 4,000 bytes a token of the two models, which share it. */
const roomOf = (tokens: number): MemoryRoom => ({
  ...{ tokens, tokenBytes: 1000, deviceBytes: 5000 * tokens },
  keep: () => undefined,
});
const judgeRoomOf = (tokens: number): MemoryRoom => ({ ...roomOf(tokens), tokenBytes: 4000 });
const rooms = (...tokens: readonly number[]): NonNullable<ScheduleOptions['rooms']> => {
  const own = { writer: tokens.map(roomOf), judge: tokens.map(judgeRoomOf) };
  return () => own;
};

/** Lets everybody who can go on do so. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

interface Ran {
  readonly texts: readonly string[];
  /** Most that ran at once, also of each lane; tokens of all paths that are extended or drawn, at most. */
  readonly atOnce: number;
  readonly ofLane: readonly number[];
  readonly peakTokens: number;
  readonly schedule: ProblemSchedule;
}

interface Given extends Partial<ScheduleOptions> {
  readonly depthOf?: (index: number) => number;
  readonly tokensOf?: (problem: Problem, iteration: number) => number;
  readonly order?: readonly number[];
}

/** Searches that keep two of four paths, over steps that are named by what they depend on. */
async function ran(count: number, { depthOf = () => 8, tokensOf = () => 50, order, ...given }: Given): Promise<Ran> {
  const options = given.options ?? OPTIONS;
  const schedule = new ProblemSchedule({ options, ...given });
  const live = new Map<Problem, number>();
  const running = new Map<Problem, number>();
  let [atOnce, peakTokens] = [0, 0];
  const ofLane: number[] = [];
  const writer: StepWriter = schedule.watch({
    write: async ({ path: { problem }, iteration, candidate }) => {
      live.set(problem, (live.get(problem) ?? 0) + tokensOf(problem, iteration));
      peakTokens = Math.max(
        peakTokens,
        [...live.values()].reduce((sum, each) => sum + each, 0),
      );
      for (let i = 0; i < 1 + ((iteration * 7 + candidate * 3) % 4); i++) await turn();
      const tokens = Array.from({ length: tokensOf(problem, iteration) }, () => 1);
      return { text: `${problem.id}.${iteration}.${candidate} `, tokens, end: 'step' };
    },
  });
  const search = async (problem: Problem, index: number): Promise<string> => {
    const lane = problem.lane!;
    running.set(problem, lane);
    atOnce = Math.max(atOnce, running.size);
    ofLane[lane] = Math.max(ofLane[lane] ?? 0, [...running.values()].filter((each) => each === lane).length);
    let paths: readonly Path[] = [0, 1, 2, 3].map(() => rootOf(problem));
    const { signal } = new AbortController();
    for (let iteration = 0; iteration < depthOf(index); iteration++) {
      const steps = await Promise.all(
        paths.map((path, candidate) =>
          writer.write({
            ...{ path, ahead: [], iteration, candidate, seed: 1, toEnd: false, isSpeculative: false, signal },
          }),
        ),
      );
      const kept = paths.flatMap((path, i) => (i % 2 === 0 ? [extend(path, steps[i]!)] : []));
      paths = kept.flatMap((path) => [path, path]);
      // What is left of it: both chains.
      live.set(
        problem,
        kept.reduce((sum, { depth }) => sum + depth * tokensOf(problem, iteration), 0),
      );
    }
    running.delete(problem);
    live.delete(problem);
    return paths[0]!.text;
  };
  const texts: string[] = [];
  const all = problemsOf(count);
  const places = order ?? all.map((_, i) => i);
  await schedule.run(
    places.map((i) => all[i]!),
    search,
    (text, index) => void (texts[places[index]!] = text),
  );
  return { texts, atOnce, ofLane, peakTokens, schedule };
}

describe('the schedule of problems', () => {
  it('begins the next problem as one ends, so many at once', async () => {
    const { texts, atOnce } = await ran(20, { most: 3, depthOf: (i) => 1 + (i % 5) });
    expect(atOnce).toBe(3);
    expect(texts.map((text) => Number(text.split('.')[0]))).toEqual(Array.from({ length: 20 }, (_, i) => i));
  });

  it('runs as many as both models have memory for', async () => {
    const all = await ran(24, {});
    expect(all.atOnce).toBe(24);
    // A problem has 128 tokens of a prompt, 7 steps of 2 paths and 4 candidates: 1,060 tokens of the writer at last.
    for (const [tokens, most] of [
      [1300, 1],
      [2800, 2],
      [13_000, 11],
    ] as const) {
      const some = await ran(24, { rooms: rooms(tokens) });
      expect(some.atOnce).toBeGreaterThanOrEqual(Math.max(1, most - 2));
      // Those that begin late hold little while others end.
      expect(some.atOnce).toBeLessThanOrEqual(2 * most);
      expect(some.peakTokens).toBeLessThanOrEqual(tokens);
      expect(some.texts).toEqual(all.texts);
    }
  });

  it('learns that problems end early, and runs more of them', async () => {
    const all = await ran(100, { rooms: rooms(6000) });
    const early = await ran(100, { rooms: rooms(6000), depthOf: () => 2 });
    expect(early.atOnce).toBeGreaterThan(all.atOnce);
  });

  it('holds the problems that came last where steps are longer than expected', async () => {
    const tokensOf = (): number => 150;
    const all = await ran(12, { tokensOf });
    const held = await ran(12, { tokensOf, rooms: rooms(5000) });
    expect(held.schedule.holds).toBeGreaterThan(0);
    expect(held.texts).toEqual(all.texts);
  });

  it('has a problem run where there is too little memory for any', async () => {
    const { texts, atOnce } = await ran(5, { rooms: rooms(100) });
    expect([texts.length, atOnce]).toEqual([5, 1]);
  });

  it('keeps each problem in a lane, and lanes equally busy', async () => {
    const all = await ran(40, {});
    const { ofLane, texts } = await ran(40, { lanes: 4, most: 12, depthOf: (i) => 1 + (i % 8) });
    expect(ofLane).toEqual([3, 3, 3, 3]);
    expect(texts.length).toBe(all.texts.length);
    const limited = await ran(40, { lanes: 2, rooms: rooms(2800, 2800) });
    expect(limited.ofLane).toEqual([limited.atOnce / 2, limited.atOnce / 2]);
    expect(limited.atOnce).toBeLessThanOrEqual(8);
    expect(limited.texts).toEqual(all.texts);
  });

  it('gives the same results in any order', async () => {
    const all = await ran(15, {});
    const order = Array.from({ length: 15 }, (_, i) => (i * 7) % 15);
    expect((await ran(15, { order, most: 4, rooms: rooms(5000) })).texts).toEqual(all.texts);
  });

  it('has time to spare while its last problems run, where few paths are cheap', async () => {
    const spare = async (cheapPaths: number | undefined, lanes: number): Promise<readonly boolean[]> => {
      const n = OPTIONS.n ?? 16;
      const given = cheapPaths === undefined ? {} : { cheapPaths: cheapPaths * n };
      const schedule = new ProblemSchedule({ options: OPTIONS, most: 3, lanes, ...given });
      const seen: boolean[] = [];
      await schedule.run(
        problemsOf(5),
        async (_, index) => {
          for (let i = 0; i < 3 * index + 1; i++) await turn();
          seen.push(schedule.hasSpareTime);
        },
        () => undefined,
      );
      return seen;
    };
    // Two problems wait when the first ends, one when the second does; then 3, 2 and 1 are running.
    expect(await spare(undefined, 1)).toEqual([false, false, false, false, false]);
    expect(await spare(2, 1)).toEqual([false, false, false, true, true]);
    expect(await spare(2, 2)).toEqual([false, false, true, true, true]);
  });

  it('begins no other problem behind an error, and waits for those that run', async () => {
    const schedule = new ProblemSchedule({ options: OPTIONS, most: 2 });
    const [begun, ended]: [number[], number[]] = [[], []];
    const run = schedule.run(
      problemsOf(9),
      async (_, index) => {
        begun.push(index);
        for (let i = 0; i < 3 * index + 1; i++) await turn();
        if (index === 2) throw new Error('the third');
        return index;
      },
      (index) => void ended.push(index),
    );
    await expect(run).rejects.toThrow('the third');
    expect(begun).toEqual([0, 1, 2, 3]);
    expect(ended).toEqual([0, 1, 3]);
  });

  it('waits for results to be kept before another begins', async () => {
    const schedule = new ProblemSchedule({ options: OPTIONS, most: 1 });
    const said: string[] = [];
    await schedule.run(
      problemsOf(3),
      (_, index) => {
        said.push(`begin ${index}`);
        return Promise.resolve(index);
      },
      async (index) => {
        await turn();
        said.push(`kept ${index}`);
      },
    );
    expect(said).toEqual(['begin 0', 'kept 0', 'begin 1', 'kept 1', 'begin 2', 'kept 2']);
  });

  it('ends by a signal, also what waits for memory', async () => {
    const abort = new AbortController();
    const { signal } = abort;
    // Steps turn out to be 40 times as long as expected.
    const schedule = new ProblemSchedule({ options: OPTIONS, rooms: rooms(13_000) });
    const writer = schedule.watch({
      write: async () => {
        await turn();
        return { text: 'x', tokens: Array.from({ length: 2000 }, () => 1), end: 'step' };
      },
    });
    const run = schedule.run(
      problemsOf(8),
      async (problem) => {
        let path = rootOf(problem);
        for (let iteration = 0; ; iteration++) {
          if (schedule.holds > 2) abort.abort(new Error('enough'));
          const asked = {
            path,
            ahead: [],
            iteration,
            candidate: 0,
            seed: 1,
            toEnd: false,
            isSpeculative: false,
            signal,
          };
          path = extend(path, await writer.write(asked));
          signal.throwIfAborted();
        }
      },
      () => undefined,
      signal,
    );
    await expect(run).rejects.toThrow('enough');
  });
});
