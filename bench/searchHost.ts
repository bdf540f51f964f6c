/**
 * `npm run bench:search-host`: a whole search over devices that compute nothing: what the host takes for a token, what
 * the verifier computes of what it needs, and what memory does.
 */
import type { Command } from 'commander';
import { Engine } from '../engine/engine.js';
import { MemoryBudget } from '../engine/memory.js';
import { RLHFLOW } from '../models/heads/layout.js';
import type { SolutionWriter } from '../models/heads/solutionTexts.js';
import { askOf, type ChatTurn, type SearchTexts } from '../search/asking.js';
import { searchProblem } from '../search/methods/searchProblem.js';
import { EngineJudge } from '../search/models/judge.js';
import { EngineWriter } from '../search/models/writer.js';
import type { SearchOptions } from '../search/options.js';
import type { Problem } from '../search/path.js';
import type { PathJudge } from '../search/ports.js';
import { ProblemSchedule } from '../search/schedule.js';
import { benchCommand, decimal, runProgram, whole } from './command.js';
import { FakeDevice, fakeModel, pagesOf } from './fakeDevices.js';
import { LARGE, randomOf, SMALL } from './memorySimulation.js';

export interface SearchHostOptions {
  readonly problems: number;
  readonly n: number;
  readonly width: number;
  readonly depth: number;
  readonly stepTokens: number;
  readonly gigabytes: number;
  readonly speed: number;
  readonly replicas: number;
  readonly most?: number;
  /** Share of the generator, in percent. Default: memory moves by itself. */
  readonly split?: number;
  readonly speculate?: boolean;
}

/** Tokens are words of four letters, so that any text is encoded as it was drawn. */
const WORD = 4;
const FIRST = 1000;
const WORDS = 20_000;
const EXTRA = ['+', '-'];

const wordOf = (token: number): string => (token - FIRST).toString(26).padStart(WORD, '0');

/** What a template writes around a turn, a token each. */
const MARKS = ['<begin>', '<system>', '<user>', '<assistant>', '<out>', '<gap>', '<end>'];

const encode = (text: string): readonly number[] =>
  text.split(/(<[a-z]+>)/).flatMap((part) => {
    const mark = MARKS.indexOf(part);
    return mark < 0 ? encodeWords(part) : [10 + mark];
  });

function encodeWords(text: string): readonly number[] {
  const extra = EXTRA.indexOf(text);
  if (extra >= 0) return [extra];
  const tokens: number[] = [];
  for (let at = 0; at < text.length; at += WORD) {
    const word = Number.parseInt(text.slice(at, at + WORD), 26);
    tokens.push(FIRST + (Number.isNaN(word) ? text.charCodeAt(at) % WORDS : word % WORDS));
  }
  return tokens;
}

const turnText = ({ role, content }: ChatTurn): string => `<begin><${role}><out><gap>${content}<end>`;
const chatText = (turns: readonly ChatTurn[], opens: boolean): string =>
  turns.map(turnText).join('') + (opens ? '<begin><assistant><out><gap>' : '');

const texts: SearchTexts = {
  encodeWritten: (text) => Promise.resolve(encode(text)),
  writeTurns: (turns, opens) => Promise.resolve(encode(chatText(turns, opens))),
  hasTemplate: true,
};

const writerOf = (): SolutionWriter => ({
  layout: RLHFLOW,
  bos: undefined,
  pad: undefined,
  verdicts: [0, 1],
  encodeWritten: texts.encodeWritten,
  hasTemplate: true,
  writeTurns: (_, turns) => {
    const text = chatText(turns, false);
    return Promise.resolve({ text, tokens: encode(text) });
  },
});

const problemsOf = (count: number): readonly Problem[] => {
  const random = randomOf(11);
  return Array.from({ length: count }, (_, i) => ({
    id: String(i),
    problem: Array.from({ length: 40 + Math.floor(120 * random()) }, () =>
      wordOf(FIRST + Math.floor(WORDS * random())),
    ).join(''),
  }));
};

export interface SearchHostFigures {
  readonly drawnTokens: number;
  readonly drawnSteps: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly deviceSeconds: number;
  readonly writer: { readonly steps: number; readonly tokens: number };
  readonly judge: { readonly steps: number; readonly tokens: number; readonly needed: number };
  readonly evictions: number;
  readonly preemptions: number;
  readonly peakProblems: number;
  readonly holds: number;
}

export async function searchHost(options: SearchHostOptions): Promise<SearchHostFigures> {
  const { problems, n, width, depth, stepTokens, gigabytes, speed, replicas, most, split, speculate } = options;
  const bytes = gigabytes * 1e9;
  const engine = new Engine();
  const maxLength = 8192;
  const made = Array.from({ length: replicas }, () => {
    const device = new FakeDevice(speed === 0 ? Infinity : speed);
    const budget = new MemoryBudget({ bytes, ...(split === undefined ? {} : { split: [split, 100 - split] }) });
    const shared = { device, budget, maxLength, draws: { first: FIRST, count: WORDS } };
    return {
      device,
      small: fakeModel({ ...shared, cost: SMALL, maxPages: pagesOf(SMALL, bytes) }),
      large: fakeModel({ ...shared, cost: LARGE, maxPages: pagesOf(LARGE, bytes) }),
    };
  });
  engine.load('writer', { replicas: made.map(({ small }) => small.model) });
  engine.load('judge', { replicas: made.map(({ large }) => large.model) });
  const search: SearchOptions = {
    ...{ method: 'beam', n, width, iterations: depth, temperature: 0.8, seed: 1, stepTokens, ignoreEos: true },
    speculate: speculate === true ? 'on' : 'off',
  };
  const ask = askOf(engine);
  const schedule = new ProblemSchedule({
    options: search,
    lanes: replicas,
    most,
    rooms: () => ({ writer: engine.roomsOf('writer'), judge: engine.roomsOf('judge') }),
  });
  const writer = schedule.watch(
    new EngineWriter(
      {
        discard: (text) => engine.discard(text, 'writer'),
        ...{ ask, model: 'writer', texts, vocabSize: FIRST + WORDS, maxLength, bos: undefined },
        ...{ eosTokens: new Set<number>(), ownEos: undefined },
        detokenizer: {
          stream: () => ({ push: wordOf, end: () => '' }),
          bytesOf: (token) => Buffer.from(wordOf(token)),
        },
      },
      search,
    ),
  );
  const engineJudge = new EngineJudge(
    {
      ...{ ask, model: 'judge', scoring: { kind: 'verdicts', verdicts: [0, 1] }, writer: writerOf(), maxLength },
      discard: (text) => engine.discard(text, 'judge'),
    },
    search,
  );
  /** Tokens behind what the parent of each path has: its step, and the turn around it. */
  let needed = 0;
  const judge: PathJudge = {
    kind: engineJudge.kind,
    score: (path, ahead, signal) => {
      needed += path.step!.tokens.length + 11;
      return engineJudge.score(path, ahead, signal);
    },
    prepare: (path) => engineJudge.prepare(path),
    drop: (path, siblings) => engineJudge.drop(path, siblings),
  };
  let [drawnTokens, drawnSteps] = [0, 0];
  const begun = performance.now();
  const cpu = process.cpuUsage();
  await schedule.run(
    problemsOf(problems),
    (problem) => searchProblem(problem, { writer, judge, options: search }),
    (result) => {
      drawnTokens += result.drawnTokens;
      drawnSteps += result.drawnSteps;
    },
  );
  const { user, system } = process.cpuUsage(cpu);
  const seconds = (performance.now() - begun) / 1000;
  const sum = (of: (each: (typeof made)[number]) => number): number => made.reduce((all, each) => all + of(each), 0);
  const [own, judged] = [engine.countsOf('writer'), engine.countsOf('judge')];
  await engine.close();
  return {
    ...{ drawnTokens, drawnSteps, seconds, cpuSeconds: (user + system) / 1e6 },
    deviceSeconds: sum(({ device }) => device.busySeconds) / replicas,
    writer: { steps: sum(({ small }) => small.counts.steps), tokens: sum(({ small }) => small.counts.tokens) },
    judge: { steps: sum(({ large }) => large.counts.steps), tokens: sum(({ large }) => large.counts.tokens), needed },
    evictions: own.evictions + judged.evictions,
    preemptions: own.preemptions + judged.preemptions,
    peakProblems: schedule.peak,
    holds: schedule.holds,
  };
}

async function main(options: SearchHostOptions): Promise<void> {
  const found = await searchHost(options);
  const { drawnTokens, drawnSteps, seconds, cpuSeconds, deviceSeconds, writer, judge } = found;
  const perHour = (taken: number): string => ((3600 * options.problems) / taken).toFixed(0);
  console.log(
    `${options.problems} problems, ${drawnSteps} steps, ${drawnTokens} tokens: ${seconds.toFixed(1)} s, of which ` +
      `the devices compute ${deviceSeconds.toFixed(1)} s (${perHour(deviceSeconds)} problems/h if nothing waits, ` +
      `${perHour(seconds * Math.max(1, options.speed))} as it is)`,
  );
  console.log(`host: ${((1e6 * cpuSeconds) / drawnTokens).toFixed(2)} µs a token`);
  console.log(
    `generator: ${writer.steps} calls, ${writer.tokens} tokens, ${(writer.tokens / drawnTokens).toFixed(3)} × drawn; ` +
      `verifier: ${judge.steps} calls, ${judge.tokens} tokens, ${(judge.tokens / judge.needed).toFixed(3)} × needed`,
  );
  console.log(
    `${found.peakProblems} problems at once, ${found.holds} waits for memory, ${found.evictions} evictions, ` +
      `${found.preemptions} preemptions`,
  );
}

export const searchHostCommand = (): Command =>
  benchCommand(
    'bench:search-host',
    'A beam search over a generator and a verifier of 1B and 8B shapes that compute nothing and take the time of one ' +
      'H100: microseconds of the host for a token, tokens of the verifier computed and needed, evictions.',
  )
    .option('--problems <n>', 'problems', whole(1, 100_000), 128)
    .option('--n <n>', 'paths of a problem', whole(1, 4096), 16)
    .option('--width <n>', 'children of each path', whole(1, 4096), 4)
    .option('--depth <n>', 'steps of a path', whole(1, 1000), 40)
    .option('--step-tokens <n>', 'tokens of a step', whole(1, 4096), 60)
    .option('--gigabytes <n>', 'memory for keys and values', decimal(0.3, 1000), 58)
    .option('--speed <n>', 'how many times as fast as an H100 devices are; 0: they take no time', decimal(0, 1000), 1)
    .option('--replicas <n>', 'devices, each with both models', whole(1, 64), 1)
    .option('--most <n>', 'problems at once; default: as many as there is memory for', whole(1, 100_000))
    .option('--split <percent>', 'share of the generator; default: memory moves by itself', decimal(1, 99))
    .option('--speculate', 'extends steps while their scores are pending');

await runProgram(import.meta.url, searchHostCommand, main);
