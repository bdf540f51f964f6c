/** How searches end: aborts, models that fail, paths that fail, options that do not fit; and what is thrown away. */
import { describe, expect, it } from 'vitest';
import { drawSeed } from '../../search/draws.js';
import { searchProblem, type Searching } from '../../search/methods/searchProblem.js';
import type { SearchOptions } from '../../search/options.js';
import type { Problem, Step } from '../../search/path.js';
import { PathFailed, type PathJudge, type StepAsk, type StepWriter } from '../../search/ports.js';
import { delays, type Habits, MadeUpJudge, MadeUpWriter } from './madeUpModels.js';

const PROBLEM: Problem = { id: '7', problem: 'What is $1 + 1$?' };
const BEAM: SearchOptions = { method: 'beam', n: 8, width: 2, iterations: 6, seed: 3, speculate: 'on' };
const METHODS = ['beam', 'dvts', 'rebase', 'best-of-n', 'weighted', 'majority'] as const;

const search = (options: SearchOptions, habits: Habits = {}, more: Partial<Searching> = {}) =>
  searchProblem(PROBLEM, { writer: new MadeUpWriter(habits), judge: new MadeUpJudge(habits), options, ...more });

const step = (text: string, end: Step['end'] = 'step'): Step => ({ text, tokens: [1, 2], end });

describe('a search that is aborted', () => {
  it.each(METHODS)('%s: rejects with the reason, and leaves nothing behind', async (method) => {
    for (const asks of [1, 5, 9]) {
      const controller = new AbortController();
      const writer = new MadeUpWriter({}, delays(asks, 3));
      const judge = new MadeUpJudge({}, delays(asks, 3));
      const write = writer.write.bind(writer);
      writer.write = (ask) => {
        if (writer.asks.length + 1 === asks) setImmediate(() => controller.abort(new Error('enough')));
        return write(ask);
      };
      const found = searchProblem(PROBLEM, {
        writer,
        judge,
        options: { ...BEAM, method, n: 12 },
        signal: controller.signal,
      });
      await expect(found).rejects.toThrow('enough');
      await expect.poll(() => writer.live + judge.live).toBe(0);
    }
  });

  it('asks for nothing where that was before', async () => {
    const writer = new MadeUpWriter();
    await expect(search(BEAM, {}, { writer, signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow(
      'enough',
    );
    expect(writer.asks).toEqual([]);
  });

  it('shares its signal with any number of others, without a warning', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    const controller = new AbortController();
    try {
      const writer: StepWriter = {
        write: ({ signal }) =>
          new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
      };
      const all = Array.from({ length: 20 }, () => search(BEAM, {}, { writer, signal: controller.signal }));
      await new Promise((resolve) => setImmediate(resolve));
      controller.abort(new Error('enough'));
      for (const each of await Promise.allSettled(all)) expect(each.status).toBe('rejected');
      await new Promise((resolve) => setImmediate(resolve));
      expect(warnings).toEqual([]);
    } finally {
      process.off('warning', onWarning);
    }
  });
});

describe('a model that fails', () => {
  it.each(METHODS)('%s: ends the search, and the other asks', async (method) => {
    const asks: StepAsk[] = [];
    const writer: StepWriter = {
      write: (ask) => {
        asks.push(ask);
        if (asks.length === 3) return Promise.reject(new Error('the device is lost'));
        return new Promise((_, reject) => ask.signal.addEventListener('abort', () => reject(ask.signal.reason)));
      },
    };
    await expect(search({ ...BEAM, method }, {}, { writer })).rejects.toThrow('the device is lost');
    expect(asks.filter(({ signal }) => signal.aborted).length).toBeGreaterThanOrEqual(asks.length - 1);
  });
});

describe('steps whose parents are not scored yet', () => {
  it('are drawn, aborted where they are not needed, and change nothing', async () => {
    const expected = await search({ ...BEAM, speculate: 'off' });
    const writer = new MadeUpWriter({}, delays(1));
    const judge = new MadeUpJudge({}, delays(2, 9));
    expect(await search(BEAM, {}, { writer, judge })).toEqual(expected);
    const early = writer.asks.filter(({ isSpeculative }) => isSpeculative);
    expect(early.length).toBeGreaterThan(10);
    expect(early.filter(({ signal }) => signal.aborted).length).toBeGreaterThan(0);
    // What was needed had been drawn once.
    const names = (asks: readonly StepAsk[]) => new Set(asks.map((ask) => `${ask.iteration} ${ask.candidate}`));
    const used = writer.asks.filter(({ signal }) => !signal.aborted);
    expect(names(used).size).toBe(used.length);
    expect(used.length).toBe(expected.drawnSteps);
  });

  it('are drawn before any score is there, and aborted where all paths end', async () => {
    // Scores come once a step has been drawn early; texts end in the second iteration.
    let drawEarly = (): void => {};
    const isEarly = new Promise<void>((resolve) => (drawEarly = resolve));
    const asks: StepAsk[] = [];
    const writer: StepWriter = {
      write: async (ask) => {
        asks.push(ask);
        if (ask.isSpeculative) drawEarly();
        return step(`${ask.candidate}. `, ask.iteration === 1 ? 'eos' : 'step');
      },
    };
    const judge: PathJudge = {
      kind: 'process',
      score: (path) => isEarly.then(() => Array.from({ length: path.depth }, () => 0.5)),
    };
    const { tree, candidates } = await search({ ...BEAM, every: 1 }, {}, { writer, judge });
    expect(Math.max(...tree.map(({ iteration }) => iteration))).toBe(1);
    expect(candidates.length).toBe(BEAM.n);
    expect(asks.length).toBe(tree.length);
  });

  it('are aborted where all paths end without them', async () => {
    const asks: StepAsk[] = [];
    // The first text goes on until its draw is not needed; scores wait until it has begun.
    let begin = (): void => {};
    const hasBegun = new Promise<void>((resolve) => (begin = resolve));
    const writer: StepWriter = {
      write: (ask) => {
        asks.push(ask);
        if (!ask.isSpeculative) return Promise.resolve(step(`${ask.candidate}`, ask.candidate < 5 ? 'step' : 'eos'));
        begin();
        return new Promise((_, reject) => ask.signal.addEventListener('abort', () => reject(ask.signal.reason)));
      },
    };
    const judge: PathJudge = {
      kind: 'process',
      score: () => hasBegun.then(() => Promise.reject(new PathFailed('lost'))),
    };
    await search(BEAM, {}, { writer, judge });
    const early = asks.filter(({ isSpeculative }) => isSpeculative);
    expect(early.length).toBeGreaterThan(0);
    expect(early.every(({ signal }) => signal.aborted)).toBe(true);
  });

  it('are drawn only while there is time to spare, unless they are asked for', async () => {
    const countEarly = async (options: Partial<SearchOptions>, hasSpareTime?: () => boolean): Promise<number> => {
      const writer = new MadeUpWriter({}, delays(1));
      await search({ ...BEAM, ...options }, {}, { writer, judge: new MadeUpJudge({}, delays(2, 9)), hasSpareTime });
      return writer.asks.filter(({ isSpeculative }) => isSpeculative).length;
    };
    expect(await countEarly({ speculate: 'auto' })).toBe(0);
    expect(await countEarly({ speculate: 'auto' }, () => false)).toBe(0);
    expect(await countEarly({ speculate: 'auto' }, () => true)).toBeGreaterThan(0);
    expect(await countEarly({ speculate: 'off' }, () => true)).toBe(0);
  });
});

describe('draws', () => {
  it('have 53 bits of seed, problem, iteration and candidate', () => {
    const seeds = new Set<number>();
    for (const seed of [0, 1, -1])
      for (const problem of ['a', 'b', ''])
        for (const iteration of [0, 1, 10])
          for (const candidate of [0, 1, 11]) seeds.add(drawSeed(seed, problem, iteration, candidate));
    expect(seeds.size).toBe(81);
    expect([...seeds].every((seed) => Number.isSafeInteger(seed) && seed >= 0)).toBe(true);
    expect(Math.max(...seeds)).toBeGreaterThan(2 ** 52);
    // sha256sum of "1\n2\n3\nx" begins with these 7 bytes.
    expect(drawSeed(1, 'x', 2, 3)).toBe(Number(0x2260f6e008d390n >> 3n));
  });

  it('are those of the problem alone: equal problems side by side get equal results', async () => {
    const others = ['x', 'y', PROBLEM.problem, 'z', PROBLEM.problem];
    const alone = await search(BEAM);
    const results = await Promise.all(
      others.map((problem, index) =>
        searchProblem(
          { id: String(index), problem },
          { writer: new MadeUpWriter({}, delays(index)), judge: new MadeUpJudge({}, delays(9 - index)), options: BEAM },
        ),
      ),
    );
    expect(results[2]).toEqual(alone);
    expect(results[4]).toEqual(alone);
    expect(results[0]).not.toEqual(alone);
  });

  it('are the most likely tokens at temperature 0', async () => {
    const writer = new MadeUpWriter();
    await search({ ...BEAM, temperature: 0 }, {}, { writer });
    expect(writer.asks.every(({ seed }) => seed === undefined)).toBe(true);
  });
});

describe('what goes wrong is said in a line', () => {
  const writing = (write: (ask: StepAsk) => Step | Error): StepWriter => ({
    write: async (ask) => {
      const written = write(ask);
      if (written instanceof Error) throw written;
      return written;
    },
  });
  const judging = (score: (text: string) => number): PathJudge => ({
    kind: 'process',
    score: async (path) => Array.from({ length: path.depth }, () => score(path.text)),
  });

  it.each(METHODS)('%s: a problem that is longer than the context', async (method) => {
    const writer = writing(() => new PathFailed('a prompt of 9000 tokens; the context has 4096'));
    const { tree, candidates, picked, notes } = await search({ ...BEAM, method }, {}, { writer });
    expect(tree.every(({ fate, error }) => fate === 'failed' && error?.includes('9000'))).toBe(true);
    expect([candidates, picked]).toEqual([[], null]);
    expect(notes).toEqual([
      '8 paths failed: a prompt of 9000 tokens; the context has 4096',
      'no path completed: there is no answer',
    ]);
  });

  it('a score that is not a number ends its path, and no other', async () => {
    const writer = writing(({ path, candidate }) => step(`${candidate % 3}.`, path.depth === 2 ? 'eos' : 'step'));
    const judge = judging((text) => (text.startsWith('1') ? NaN : 0.5));
    const { tree, notes, candidates } = await search({ ...BEAM, n: 6 }, {}, { writer, judge });
    const failed = tree.filter(({ fate }) => fate === 'failed');
    expect(failed.map(({ text, iteration }) => [text, iteration])).toEqual([
      ['1.', 0],
      ['1.', 0],
    ]);
    expect(notes).toEqual(['2 paths failed: the score of step 1 is NaN']);
    expect(candidates.length).toBe(6);
  });

  it('a step that never ends', async () => {
    const writer = writing(({ candidate }) => step('and so on', candidate === 0 ? 'length' : 'eos'));
    const { tree, notes, candidates } = await search({ ...BEAM, n: 2, maxStepTokens: 99 }, {}, { writer });
    expect(tree.map(({ fate }) => fate)).toEqual(['unfinished', 'completed']);
    expect(candidates.map(({ step: index }) => index)).toEqual([1]);
    expect(notes).toEqual(['1 path did not end within 99 tokens of a step']);
  });

  it('no path completed: one that is not finished is the answer', async () => {
    const writer = writing(({ path, candidate }) => step(`${path.depth}:${candidate} `));
    const { candidates, picked, notes, tree } = await search({ ...BEAM, n: 4, iterations: 3 }, {}, { writer });
    expect(candidates.map(({ isCompleted }) => isCompleted)).toEqual([false, false, false, false]);
    expect(candidates[picked!]!.aggregate).toBe(Math.max(...candidates.map(({ aggregate }) => aggregate)));
    expect(notes).toEqual(['no path completed: beam answers with one that is not finished']);
    expect(tree.slice(-4).map(({ fate }) => fate)).toEqual(Array.from({ length: 4 }, () => 'unfinished'));
  });

  it('paths that could not be extended are the answer where nothing else is', async () => {
    const writer = writing(({ path, candidate }) =>
      path.depth === 2 ? new PathFailed('the context is full') : step(`${candidate} `),
    );
    for (const method of ['beam', 'dvts', 'rebase'] as const) {
      const { candidates, picked } = await search({ ...BEAM, method }, {}, { writer });
      expect(picked).not.toBeNull();
      expect(candidates.every(({ text, isCompleted }) => text.split(' ').length === 3 && !isCompleted)).toBe(true);
    }
  });
});

describe('options that do not fit are refused', () => {
  const outcome: PathJudge = { kind: 'outcome', score: async () => [1] };
  it.each<[string, SearchOptions, Partial<Searching>]>([
    ['not a multiple of 4', { method: 'dvts', n: 6 }, {}],
    ['beam needs a verifier', { method: 'beam' }, { judge: undefined }],
    ['judges whole answers and cannot guide rebase', { method: 'rebase' }, { judge: outcome }],
    ['have no bound', { method: 'weighted', earlyStop: true }, { judge: outcome }],
    ['no vote that could be settled early', { method: 'beam', earlyStop: true }, {}],
    ['draws whole texts', { method: 'majority', lookahead: 2 }, {}],
    ['duplicates are filtered', { method: 'dvts', filterDuplicates: true }, {}],
    ['search-and-learn has no rebase', { method: 'rebase', compat: 'sal' }, {}],
    ['not both', { method: 'beam', stepStop: '\n', stepTokens: 5 }, {}],
  ])('%s', async (message, options, more) => {
    await expect(search(options, {}, more)).rejects.toThrow(message);
  });

  it('an outcome model scores whole answers', async () => {
    const writer = new MadeUpWriter({ ends: 1 });
    const judge: PathJudge = { kind: 'outcome', score: async (path) => [-path.text.length] };
    const { candidates, picked } = await search({ method: 'best-of-n', n: 4 }, {}, { writer, judge });
    expect(candidates.map(({ scores }) => scores.length)).toEqual([1, 1, 1, 1]);
    expect(picked).toBe(0);
  });
});
