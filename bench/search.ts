/**
 * `npm run bench:search`: search with a generator and a verifier whose weights are made up, which end no text: every
 * path has the full depth. On one GPU, from a bundle whose Node is there once ./tilewright has run, the worst case in
 * about four minutes, and what the memory split, the number of problems and FP8 change, in one call each:
 *
 *   ./tilewright doctor
 *   ./node/node dist/bench/search.js --target cuda --problems test.jsonl --page whole.html --json whole.json
 *   ./node/node dist/bench/search.js --target cuda --problems test.jsonl --studies splits --count 32 --iterations 20 \
 *     --gigabytes 6 --page splits.html
 *   ./node/node dist/bench/search.js --target cuda --problems test.jsonl --studies problems,calls --count 64 \
 *     --iterations 10 --page sizes.html
 *   ./node/node dist/bench/search.js --target cuda --problems test.jsonl --studies fp8 --count 64 --iterations 20
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { readProblems } from '../commands/searchProblems.js';
import { UserError } from '../errors.js';
import type { SearchOptions } from '../search/options.js';
import type { Problem } from '../search/path.js';
import {
  BENCH_TARGETS,
  benchCommand,
  type BenchTarget,
  decimal,
  list,
  oneOf,
  runProgram,
  text,
  whole,
} from './command.js';
import { packageRoot } from './inputs.js';
import { plotPage, type PlotSection } from './linePlot.js';
import { changedPicks, COLUMNS, type NamedRun, type Role, rowOf } from './searchFigures.js';
import { type RunOptions, SearchPair } from './searchPair.js';
import { callsSection, fp8Section, problemsSection, splitsSection, wholeSection } from './searchSections.js';

/** Pairs of shapes, and what a run has where nothing else is said. */
const SHAPES = {
  '4m+25m': {
    models: { generator: 'llama-4m', verifier: 'llama-25m' },
    ...{ count: 6, iterations: 4, stepTokens: 16, gigabytes: 0.1, studies: ['whole', 'splits', 'problems', 'calls'] },
  },
  '1b+8b': {
    models: { generator: 'llama-3.2-1b', verifier: 'llama-8b' },
    ...{ count: 128, iterations: 40, stepTokens: 60, gigabytes: undefined, studies: ['whole'] },
  },
} as const satisfies Readonly<
  Record<
    string,
    {
      readonly models: Readonly<Record<Role, string>>;
      readonly count: number;
      readonly iterations: number;
      readonly stepTokens: number;
      readonly gigabytes: number | undefined;
      readonly studies: readonly Study[];
    }
  >
>;
type Shape = keyof typeof SHAPES;
const SHAPE_NAMES = Object.keys(SHAPES) as Shape[];

const STUDIES = ['whole', 'splits', 'problems', 'calls', 'fp8'] as const;
type Study = (typeof STUDIES)[number];

const SPECULATE = ['auto', 'on', 'off'] as const;
/** Shares of the generator, in percent: from the least to the most that a study of others tried. */
const SHARES: readonly number[] = [8, 10, 15, 20, 25, 30, 35, 40, 50];
const CALLS: readonly number[] = [128, 256, 512, 1024, 2048, 4096, 8192];
/** A run that takes so many times as long as the best one ends there. */
const PATIENCE = 2;
const WARM_UP = { iterations: 2, seconds: 60 } as const;

class Measurement {
  readonly sections: PlotSection[] = [];
  readonly runs: NamedRun[] = [];
  private readonly options: Asked;
  private readonly problems: readonly Problem[];
  private readonly about: string;
  private readonly started = performance.now();

  constructor(options: Asked, problems: readonly Problem[], about: string) {
    this.options = options;
    this.problems = problems;
    this.about = about;
  }

  get secondsLeft(): number {
    return this.options.limit - (performance.now() - this.started) / 1000;
  }

  /** What there is so far: whoever ends the program early has that. */
  write(): void {
    const { json, page } = this.options;
    const { runs, sections, about } = this;
    if (json !== undefined) writeFileSync(json, JSON.stringify({ options: this.options, about, runs: runs.map(bare) }));
    if (page !== undefined) writeFileSync(page, plotPage('Searches', `${about}.`, sections));
  }

  /** The first iterations of all problems: kernels of all sizes are compiled, and addresses used. */
  async warmUp(pair: SearchPair): Promise<void> {
    const search = searchOf({ ...this.options, iterations: Math.min(WARM_UP.iterations, this.options.iterations) });
    const limitSeconds = Math.min(WARM_UP.seconds, this.secondsLeft / 4);
    await pair.run(this.problems, { search, memory: this.memory, limitSeconds });
    console.error(`both models are open and warm, ${this.secondsLeft.toFixed(0)} s are left`);
  }

  private get memory(): number | undefined {
    const { gigabytes } = this.options;
    return gigabytes === undefined ? undefined : Math.round(gigabytes * 1e9);
  }

  /** One run, with a line of it as soon as it ends. */
  private async measure(pair: SearchPair, name: string, at: number, options: Partial<RunOptions>): Promise<NamedRun> {
    const { iterations } = this.options;
    const limitSeconds = Math.max(1, Math.min(this.secondsLeft, options.limitSeconds ?? Infinity));
    const figures = await pair.run(this.problems, {
      ...{ search: searchOf(this.options), memory: this.memory },
      ...options,
      limitSeconds,
      onProgress: (line) => console.error(`${name}: ${line}`),
    });
    console.error(`${rowOf(name, figures, iterations).join(' | ')} (${this.secondsLeft.toFixed(0)} s are left)`);
    const run = { name, at, figures };
    this.runs.push(run);
    this.write();
    return run;
  }

  /** Runs of a study, while there is time. Those that are much slower than the best one are cut short. */
  private async measureAll(
    pair: SearchPair,
    cases: readonly { readonly name: string; readonly at: number; readonly options: Partial<RunOptions> }[],
  ): Promise<readonly NamedRun[]> {
    const runs: NamedRun[] = [];
    let best = Infinity;
    for (const { name, at, options } of cases) {
      if (this.secondsLeft <= 1) {
        console.error(`no time is left for ${name}`);
        continue;
      }
      const run = await this.measure(pair, name, at, { ...options, limitSeconds: PATIENCE * best });
      if (!run.figures.isCut) best = Math.min(best, run.figures.seconds);
      runs.push(run);
    }
    return runs;
  }

  async study(pair: SearchPair, study: Exclude<Study, 'fp8'>): Promise<void> {
    const { iterations, n } = this.options;
    switch (study) {
      case 'whole': {
        const run = await this.measure(pair, 'whole', 0, {});
        this.sections.push(wholeSection(run, iterations));
        return;
      }
      case 'splits': {
        const own = { name: 'by itself', at: NaN, options: {} };
        const fixed = this.options.shares.map((share) => ({
          ...{ name: `${share} : ${100 - share}`, at: share / 100, options: { share: share / 100 } },
        }));
        // The last run shows how much the device has changed.
        const runs = await this.measureAll(pair, [own, ...fixed, { ...own, name: 'by itself, again' }]);
        this.sections.push(splitsSection(runs, iterations));
        return;
      }
      case 'problems': {
        const counts = [1, 2, 4, 8, 16, 32, 64, 128, 256].filter((each) => each <= this.problems.length);
        const cases = counts.reverse().map((atOnce) => ({
          ...{ name: `${atOnce} at once`, at: atOnce * n, options: { atOnce } },
        }));
        this.sections.push(problemsSection(await this.measureAll(pair, cases), iterations));
        return;
      }
      case 'calls': {
        const cases = [...CALLS].reverse().map((callTokens) => ({
          ...{ name: `${callTokens} tokens`, at: callTokens, options: { callTokens } },
        }));
        this.sections.push(callsSection(await this.measureAll(pair, cases), iterations));
        return;
      }
      default:
        study satisfies never;
    }
  }

  /** The same searches with a verifier in 8 bits, opened once the first pair has ended. */
  async fp8(open: (precision: 'auto' | 'fp8' | 'int8') => Promise<SearchPair>, pair: SearchPair): Promise<SearchPair> {
    const kind = this.options.target === 'cuda' ? 'fp8' : 'int8';
    const one = await this.measure(pair, 'verifier as it is', 0, {});
    await pair.close();
    const other = await open(kind);
    try {
      await this.warmUp(other);
      const run = await this.measure(other, `verifier in ${kind}`, 0, {});
      const changed = changedPicks(one.figures.results, run.figures.results);
      this.sections.push(fp8Section([one, run], changed, this.options.iterations, kind));
      return other;
    } catch (error) {
      await other.close();
      throw error;
    }
  }
}

/** Nothing ends a text, and every step has as many tokens. */
const searchOf = ({ method, n, width, iterations, stepTokens, seed, speculate }: Asked): SearchOptions => ({
  ...{ method, n, width, iterations, stepTokens, seed, speculate, temperature: 0.8, ignoreEos: true },
});

/** Options with what the shape says where they say nothing. */
type Asked = Omit<SearchBenchOptions, 'count' | 'iterations' | 'stepTokens' | 'studies' | 'shape'> & {
  readonly count: number;
  readonly iterations: number;
  readonly stepTokens: number;
  readonly studies: readonly Study[];
  readonly shape: Shape;
};

function askedOf(options: SearchBenchOptions): Asked {
  const shape = options.shape ?? (options.target === 'cuda' ? '1b+8b' : '4m+25m');
  const { count, iterations, stepTokens, gigabytes, studies } = SHAPES[shape];
  return {
    ...options,
    shape,
    count: options.count ?? count,
    iterations: options.iterations ?? iterations,
    stepTokens: options.stepTokens ?? stepTokens,
    gigabytes: options.gigabytes ?? gigabytes,
    studies: options.studies ?? studies,
  };
}

const MATH500 = 'data/math500/test.jsonl';

function problemsPath(given: string | undefined): string {
  if (given !== undefined) return given;
  const folders = [join(packageRoot(), '..'), packageRoot(), process.cwd()];
  const found = folders.map((folder) => join(folder, 'shared', MATH500)).find(existsSync);
  if (found !== undefined) return found;
  throw new UserError('there is no file of problems beside the repository', 'give one: --problems FILE');
}

async function main(given: SearchBenchOptions): Promise<void> {
  const options = askedOf(given);
  const { shape, target, threads, count, n, width, iterations, stepTokens, replicas, method } = options;
  const path = problemsPath(options.problems);
  const { problems } = await readProblems({ kind: 'file', path }, count);
  const all = problems.map(({ problem }) => problem);
  const about =
    `${shape}, ${target}${replicas > 1 ? ` × ${replicas}` : ''}: ${method}, n = ${n}, width ${width}, ` +
    `depth ${iterations}, ${stepTokens} tokens a step, ${all.length} problems, made-up weights`;
  console.log(about);
  const open = (verifierPrecision: 'auto' | 'fp8' | 'int8'): Promise<SearchPair> =>
    SearchPair.open({ models: SHAPES[shape].models, target, threads, verifierPrecision, replicas });
  const measurement = new Measurement(options, all, about);
  let pair = await open(options.verifierPrecision);
  try {
    await measurement.warmUp(pair);
    for (const study of STUDIES)
      if (options.studies.includes(study)) {
        if (measurement.secondsLeft <= 1) console.error(`no time is left for ${study}`);
        else if (study === 'fp8') pair = await measurement.fp8(open, pair);
        else await measurement.study(pair, study);
      }
  } finally {
    await pair.close();
    const { runs, sections } = measurement;
    measurement.write();
    for (const { title, about: said } of sections) console.log(`${title}: ${said}`);
    const rows = runs.map(({ name, figures }) => rowOf(name, figures, iterations));
    const lines = [COLUMNS, COLUMNS.map(() => '---:'), ...rows].map((cells) => `| ${cells.join(' | ')} |`);
    console.log(lines.join('\n'));
  }
}

/** Without trees, which are large. */
const bare = ({ name, at, figures: { results, ...figures } }: NamedRun) => ({
  name,
  at,
  ...figures,
  results: results.length,
});

export interface SearchBenchOptions {
  readonly shape?: Shape;
  readonly target: BenchTarget;
  readonly threads: number;
  readonly problems?: string;
  readonly studies?: readonly Study[];
  readonly method: 'beam' | 'dvts' | 'rebase';
  readonly count?: number;
  readonly n: number;
  readonly width: number;
  readonly iterations?: number;
  readonly stepTokens?: number;
  readonly seed: number;
  readonly speculate: (typeof SPECULATE)[number];
  readonly gigabytes?: number | undefined;
  readonly shares: readonly number[];
  readonly verifierPrecision: 'auto' | 'fp8' | 'int8';
  readonly replicas: number;
  readonly limit: number;
  readonly page?: string;
  readonly json?: string;
}

export const searchBenchCommand = (): Command =>
  benchCommand(
    'bench:search',
    'Searches with a generator and a verifier in one engine, both with made-up weights: problems an hour, tokens a ' +
      'second of both models, tokens that the verifier computed for each that it had to, and what the host took. ' +
      'Studies: `whole` runs all problems once, with the pages of each model over time; `splits` compares memory ' +
      'that moves by itself with nine fixed splits; `problems` has fewer and more of them at once; `calls` bounds ' +
      'the tokens of a call; `fp8` runs all with the verifier in 8 bits, too, and counts what it picks otherwise.',
  )
    .option('--shape <name>', 'of both models: 4m+25m (cpu) or 1b+8b (cuda)', oneOf(SHAPE_NAMES))
    .option('--target <name>', 'cpu or cuda', oneOf(BENCH_TARGETS), 'cpu')
    .option('--threads <n>', 'threads of each model on a CPU', whole(1, 1024), 1)
    .option('--problems <file>', 'JSON lines with a problem each (default: MATH-500 beside the repository)', text)
    .option('--studies <list>', STUDIES.join(', '), list(oneOf(STUDIES)))
    .option('--method <name>', 'beam, dvts or rebase', oneOf(['beam', 'dvts', 'rebase']), 'beam')
    .option('--count <n>', 'problems, from the first on (default: 6, or 128)', whole(1, 10_000))
    .option('--n <n>', 'paths of a problem', whole(1, 4096), 16)
    .option('--width <n>', 'continuations of each path that survives', whole(1, 4096), 4)
    .option('--iterations <n>', 'depth (default: 4, or 40)', whole(1, 1024))
    .option('--step-tokens <n>', 'of each step (default: 16, or 60)', whole(1, 65_536))
    .option('--seed <n>', 'of all draws', whole(0, 2 ** 31), 1)
    .option('--speculate <when>', 'whether steps are extended before their scores are there', oneOf(SPECULATE), 'auto')
    .option(
      '--gigabytes <n>',
      'for keys and values of both models (default: 0.1, or what is left)',
      decimal(0.001, 1000),
    )
    .option('--shares <list>', 'of the generator in percent, for `splits`', list(whole(1, 99)), SHARES)
    .option('--verifier-precision <name>', 'auto, fp8 or int8', oneOf(['auto', 'fp8', 'int8']), 'auto')
    .option('--replicas <n>', 'devices, each with both models', whole(1, 64), 1)
    .option('--limit <seconds>', 'after so many what runs is cut, and nothing more begins', whole(5, 100_000), 520)
    .option('--page <file>', 'where plots go, as HTML')
    .option('--json <file>', 'where all figures go');

await runProgram(import.meta.url, searchBenchCommand, main);
