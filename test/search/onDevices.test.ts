/**
 * Whole searches over an engine whose devices are made up, and whose tokens and scores depend on every token of a path:
 * one result, however many problems run at once, wherever memory is, whatever is preempted, lost or drawn too early.
 */
import { describe, expect, it } from 'vitest';
import type { StepLimits } from '../../engine/device.js';
import type { Discarded } from '../../engine/discard.js';
import { Engine } from '../../engine/engine.js';
import { MemoryBudget } from '../../engine/memory.js';
import { RLHFLOW } from '../../models/heads/layout.js';
import { type Ask, askOf, type ChatTurn, type SearchTexts } from '../../search/asking.js';
import { searchProblem } from '../../search/methods/searchProblem.js';
import type { JudgeCounts } from '../../search/models/needed.js';
import { EngineJudge } from '../../search/models/judge.js';
import { EngineWriter } from '../../search/models/writer.js';
import type { SearchOptions } from '../../search/options.js';
import type { Problem } from '../../search/path.js';
import type { ProblemResult } from '../../search/result.js';
import { ProblemSchedule } from '../../search/schedule.js';
import { casesHere, isThorough } from '../support/thorough.js';
import { PATH_VOCAB, pathModel, randomNumbers } from '../support/pathModel.js';

const MAX_LENGTH = 600;
const BEGIN = 0x100;
const EOS = 3;
const STOP = String.fromCharCode(BEGIN + 7);
const PLUS = 90;
const MINUS = 91;

const textOf = (token: number): string => (token === EOS ? '' : String.fromCharCode(BEGIN + token));
const tokenOf = (character: string): number => {
  if (character === '+') return PLUS;
  if (character === '-') return MINUS;
  return Math.abs(character.charCodeAt(0) - BEGIN) % PATH_VOCAB;
};
const encode = (text: string): readonly number[] => Array.from(text, tokenOf);

/** A template of its own characters. */
const chatText = (turns: readonly ChatTurn[], opens: boolean): string => {
  const [begin, middle, end] = [92, 93, 94].map(textOf);
  const written = turns.map(({ role, content }) => `${begin}${textOf(role.length)}${middle}${content}${end}`);
  return written.join('') + (opens ? `${begin}${textOf(9)}${middle}` : '');
};

const texts: SearchTexts = {
  encodeWritten: (text) => Promise.resolve(encode(text)),
  writeTurns: (turns, opens) => Promise.resolve(encode(chatText(turns, opens))),
  hasTemplate: true,
};

const PROBLEMS: readonly Problem[] = Array.from({ length: isThorough ? 12 : 4 }, (_, i) => ({
  id: String(i),
  // Two are equal.
  problem: `problem ${i % (isThorough ? 11 : 3)} `.repeat(1 + (i % 3)),
}));

interface Run {
  readonly options?: Partial<SearchOptions>;
  readonly most?: number;
  readonly replicas?: number;
  /** Pages of both models together, and how they are divided. */
  readonly pages?: number;
  readonly split?: readonly [number, number];
  readonly limits?: Partial<StepLimits>;
  /** Steps in which the first device ends. */
  readonly lostAt?: ReadonlySet<number>;
  readonly order?: (problems: readonly Problem[]) => readonly Problem[];
  /** How long steps take. */
  readonly seed?: number;
}

interface Searched {
  readonly results: string;
  readonly preemptions: number;
  readonly evictions: number;
  readonly recomputed: number;
  readonly peak: number;
  readonly judged: JudgeCounts;
}

/** Pages that hold two or three problems. */
const LITTLE = 100;

const SEARCH: SearchOptions = {
  ...{ method: 'beam', n: 8, width: 4, iterations: 6, temperature: 0.8, seed: 5, stepStop: STOP, maxStepTokens: 30 },
  system: 'none',
};

function modelsOf(ask: Ask, options: SearchOptions, engine?: Engine) {
  const discardOf = (model: string) => engine && ((text: Discarded) => engine.discard(text, model));
  const writer = new EngineWriter(
    {
      discard: discardOf('writer'),
      ...{ ask, model: 'writer', texts, vocabSize: PATH_VOCAB, maxLength: MAX_LENGTH, bos: undefined },
      ...{ eosTokens: new Set([EOS]), ownEos: EOS },
      detokenizer: {
        stream: () => ({ push: textOf, end: () => '' }),
        bytesOf: (token) => Buffer.from(textOf(token)),
      },
    },
    options,
  );
  const judge = new EngineJudge(
    {
      discard: discardOf('judge'),
      ...{ ask, model: 'judge', scoring: { kind: 'verdicts', verdicts: [PLUS, MINUS] }, maxLength: MAX_LENGTH },
      writer: {
        ...{ layout: RLHFLOW, bos: undefined, pad: undefined, verdicts: [PLUS, MINUS], hasTemplate: true },
        encodeWritten: texts.encodeWritten,
        writeTurns: (_, turns) => {
          const text = chatText(turns, false);
          return Promise.resolve({ text, tokens: encode(text) });
        },
      },
    },
    options,
  );
  return { writer, judge };
}

/** Results by the id of their problem. */
const sorted = (results: ReadonlyMap<string, ProblemResult>): string =>
  JSON.stringify([...results].sort(([a], [b]) => Number(a) - Number(b)));

/** One request at a time, each on devices that have never computed anything. */
async function naive(given: Partial<SearchOptions>): Promise<string> {
  const options = { ...SEARCH, ...given };
  let last: Promise<void> = Promise.resolve();
  const ask: Ask = (request) => {
    const engine = new Engine();
    engine.load('writer', { replicas: [pathModel({ maxLength: MAX_LENGTH })] });
    engine.load('judge', { replicas: [pathModel({ maxLength: MAX_LENGTH, seed: 1 })] });
    const before = last;
    let release = (): void => undefined;
    last = new Promise<void>((resolve) => (release = resolve));
    const handle = before.then(() => engine.submit({ ...request, priority: 0, affinity: 0 }));
    return {
      cancel: () => void handle.then((each) => each.cancel()),
      async *[Symbol.asyncIterator]() {
        try {
          yield* await handle;
        } finally {
          release();
        }
      },
    };
  };
  const models = modelsOf(ask, options);
  const results = new Map<string, ProblemResult>();
  for (const problem of PROBLEMS) results.set(problem.id, await searchProblem(problem, { ...models, options }));
  return sorted(results);
}

async function searched(run: Run): Promise<Searched> {
  const { most, replicas = 1, pages = 4000, split, limits, lostAt, order = (all) => all, seed = 1 } = run;
  const options = { ...SEARCH, ...run.options };
  const random = randomNumbers(seed);
  const turns = (): number => 1 + Math.floor(3 * random());
  const made = Array.from({ length: replicas }, (_, i) => {
    const budget = new MemoryBudget({
      bytes: 1000 * pages,
      now: () => performance.now() / 20,
      after: (seconds, go) => void setTimeout(go, 20 * seconds),
      ...(split === undefined ? {} : { split }),
    });
    const shared = { cacheTokens: 16 * pages, maxLength: MAX_LENGTH, turns, limits: { rows: 64, ...limits } };
    const memory = { mappedPages: 4, piecePages: 4, pieceBytes: 4000, budget };
    const lost = i === 0 ? { lostAt: lostAt ?? new Set<number>() } : {};
    return {
      writer: { ...pathModel({ ...shared, ...lost }), ...memory },
      judge: { ...pathModel({ ...shared, seed: 1 }), ...memory },
    };
  });
  for (const { writer, judge } of made) {
    await writer.resize(4);
    await judge.resize(4);
  }
  const engine = new Engine();
  engine.load('writer', { replicas: made.map(({ writer }) => writer) });
  engine.load('judge', { replicas: made.map(({ judge }) => judge) });
  const schedule = new ProblemSchedule({ options, lanes: replicas, most });
  const models = modelsOf(askOf(engine), options, engine);
  const writer = schedule.watch(models.writer);
  const results = new Map<string, ProblemResult>();
  const problems = order(PROBLEMS);
  await schedule.run(
    problems,
    (problem) => searchProblem(problem, { writer, judge: models.judge, options }),
    (result, index) => void results.set(problems[index]!.id, result),
  );
  const counts = [engine.countsOf('writer'), engine.countsOf('judge')] as const;
  await engine.close();
  return {
    results: sorted(results),
    preemptions: counts[0].preemptions + counts[1].preemptions,
    evictions: counts[0].evictions + counts[1].evictions,
    recomputed: counts[1].computedTokens,
    peak: schedule.peak,
    judged: models.judge.counts,
  };
}

const shuffled = (problems: readonly Problem[]): readonly Problem[] =>
  problems.map((_, i) => problems[(7 * i) % problems.length]!);

const RUNS: readonly (readonly [name: string, run: Run])[] = [
  ['all at once', {}],
  ['one at a time', { most: 1 }],
  ['four at a time, shuffled', { most: 4, order: shuffled }],
  ['on two replicas', { replicas: 2, most: 6 }],
  ['on three replicas, one of which ends twice', { replicas: 3, lostAt: new Set([9, 30]) }],
  ['with steps that are planned ahead', { limits: { keptRows: 16 } }],
  ['of a pipeline', { limits: { groups: 2 } }],
  ['of few tokens and rows a step', { limits: { tokens: 24, rows: 12 } }],
  ['with children that are drawn before scores are there', { options: { speculate: 'on' } }],
  [
    'the same with look-ahead, on little memory',
    {
      ...{ options: { speculate: 'on' }, limits: { keptRows: 16 }, pages: LITTLE },
    },
  ],
  ['on little memory', { pages: LITTLE }],
  ...[10, 30, 50, 70, 90].map((share): readonly [string, Run] => [
    `with ${share} % of the memory for the generator`,
    { pages: 480, split: [share, 100 - share] },
  ]),
];

describe('a search on made-up devices', () => {
  const reference = naive({});

  it.each(casesHere(RUNS, 4))('%s gives what the naive reference gives', async (_, run) => {
    for (let seed = 1; seed <= (isThorough ? 6 : 1); seed++)
      expect((await searched({ ...run, seed })).results).toBe(await reference);
  });

  it('is preempted, and computes again, where memory is short', async () => {
    const little = await searched({ pages: LITTLE });
    expect(little.preemptions).toBeGreaterThan(0);
    expect(little.evictions).toBeGreaterThan(0);
    expect(little.results).toBe(await reference);
  });

  it('computes nothing twice for its scores', async () => {
    const { judged } = await searched({ options: { stepStop: undefined, stepTokens: 12 } });
    const { askedTokens, foundTokens, neededTokens } = judged;
    expect((askedTokens - foundTokens) / neededTokens).toBeLessThanOrEqual(1.02);
  });

  const others = [
    { method: 'dvts' },
    { method: 'rebase' },
    { method: 'best-of-n' },
    { method: 'beam', every: 2 },
    { method: 'beam', lookahead: 1 },
    { method: 'beam', filterDuplicates: true, sortCompleted: true },
  ] as const satisfies readonly Partial<SearchOptions>[];
  it.each(isThorough ? others : [])('%o gives what the naive reference gives', async (options) => {
    const expected = await naive(options);
    for (const run of [{ pages: LITTLE }, { replicas: 2, limits: { keptRows: 16 } }])
      expect((await searched({ ...run, options })).results).toBe(expected);
  });
});
