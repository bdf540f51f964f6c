/**
 * What search-and-learn did with made-up models, step by step: all traces that lie in the shared folder. What
 * each field means is in the README beside them.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { searchProblem } from '../../search/methods/searchProblem.js';
import { answersOf, passAt } from '../../search/answers/figures.js';
import type { SearchOptions } from '../../search/options.js';
import type { Problem, StepEnd } from '../../search/path.js';
import { maxStepTokensOf } from '../../search/plan.js';
import type { ProblemResult, TreeStep } from '../../search/result.js';
import { Calls, type MadeUpLlm, type MadeUpPrm, SalJudge, SalWriter } from './salModels.js';

const FOLDER = fileURLToPath(new URL('../../../shared/golden/search', import.meta.url));

interface Beam {
  readonly parent?: number | null;
  readonly step: string;
  readonly ahead?: string;
  readonly stop: string | number;
  readonly scores: number;
  readonly last: number;
  readonly agg: number;
  readonly fate?: string;
}

interface SalResult {
  readonly completions: readonly string[];
  readonly scores: readonly (readonly number[])[];
  readonly aggs: readonly number[];
  readonly pred: string;
  readonly completion_tokens: number | readonly number[];
  readonly completed_at?: readonly (readonly [number, number])[];
  readonly answers: readonly string[];
  readonly last_scores: readonly number[];
  readonly at: Readonly<Record<string, { naive: string; weighted: string; maj: string }>>;
  readonly pass: Readonly<Record<string, number>>;
}

interface Run {
  readonly problems: readonly number[];
  readonly ties?: string;
  readonly finish?: readonly (readonly string[])[];
  readonly iterations?: readonly {
    readonly iteration: number;
    readonly to_end: boolean;
    readonly beams?: readonly Beam[];
    readonly trees?: readonly {
      readonly tree: number;
      readonly candidates: readonly Beam[];
      readonly best: number;
      readonly ends: readonly string[];
    }[];
  }[];
  readonly drawn: { readonly samples: number; readonly tokens: number; readonly greedy_samples: number };
  readonly error: string | null;
  readonly results?: readonly SalResult[];
}

interface Trace {
  readonly config: {
    readonly approach: 'best_of_n' | 'beam_search' | 'dvts';
    readonly n: number;
    readonly beam_width: number;
    readonly num_iterations: number;
    readonly lookahead: number;
    readonly temperature: number;
    readonly max_tokens: number;
    readonly agg_strategy: 'last' | 'min' | 'prod';
    readonly filter_duplicates: boolean;
    readonly sort_completed: boolean;
  };
  readonly llm: MadeUpLlm;
  readonly prm: MadeUpPrm;
  readonly problems: readonly { readonly problem: string; readonly answer: string }[];
  readonly runs: readonly Run[];
}

const METHODS = { best_of_n: 'best-of-n', beam_search: 'beam', dvts: 'dvts' } as const;

function optionsOf({ config }: Trace): SearchOptions {
  const isSampled = config.approach === 'best_of_n';
  return {
    method: METHODS[config.approach],
    n: config.n,
    width: config.beam_width,
    iterations: config.num_iterations,
    temperature: config.temperature,
    maxStepTokens: config.max_tokens,
    aggregate: config.agg_strategy,
    ...(isSampled ? {} : { lookahead: config.lookahead }),
    // Its other methods ignore both.
    ...(config.approach === 'beam_search' && {
      filterDuplicates: config.filter_duplicates,
      sortCompleted: config.sort_completed,
    }),
    compat: 'sal',
    speculate: 'off',
  };
}

const stopOf = (end: StepEnd): string | number =>
  end === 'step' ? '\n\n' : end === 'other-eos' ? 128008 : 'end of text';

/** Steps of an iteration, with their indices in the tree. */
const layer = (tree: readonly TreeStep[], iteration: number): readonly (readonly [number, TreeStep])[] =>
  [...tree.entries()].filter(([, step]) => step.iteration === iteration);

const shown = (step: TreeStep) => ({
  step: step.text,
  ...(step.ahead === undefined || step.ahead === '' ? {} : { ahead: step.ahead }),
  stop: stopOf(step.end),
  scores: step.scores,
  last: step.last,
  agg: step.aggregate,
});

const expected = ({ step, ahead, stop, scores, last, agg }: Beam) => ({
  step,
  ...(ahead === undefined || ahead === '' ? {} : { ahead }),
  stop,
  scores,
  last,
  agg,
});

async function searchRun(trace: Trace, run: Run): Promise<readonly ProblemResult[]> {
  const calls = new Calls();
  const results: ProblemResult[] = [];
  let greedy = 0;
  // One after the other, so that equal prompts of a call are counted in the order of problems.
  for (const index of run.problems) {
    const problem: Problem = { id: String(index), ...trace.problems[index]! };
    const options = optionsOf(trace);
    const writer = new SalWriter(trace.llm, maxStepTokensOf(options), calls);
    results.push(await searchProblem(problem, { writer, judge: new SalJudge(trace.prm), options }));
    greedy += writer.greedySamples;
  }
  const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
  expect({
    samples: sum(results.map(({ drawnSteps }) => drawnSteps)),
    tokens: sum(results.map(({ drawnTokens }) => drawnTokens)),
    greedy_samples: greedy,
  }).toEqual(run.drawn);
  return results;
}

function compareBeams(run: Run, { tree }: ProblemResult): void {
  const hasTies = run.ties !== undefined;
  let before: readonly (readonly [number, TreeStep])[] = [];
  for (const { iteration, to_end, beams } of run.iterations!) {
    const steps = layer(tree, iteration);
    expect(steps.map(([, step]) => shown(step))).toEqual(beams!.map((beam) => expected(beam)));
    for (const [place, [, step]] of steps.entries()) {
      const beam = beams![place]!;
      if (hasTies) continue;
      expect(step.parent).toBe(beam.parent === null ? null : before[beam.parent!]![0]);
      const fate = to_end && beam.fate !== 'completed' && beam.fate !== 'duplicate' ? 'unfinished' : beam.fate;
      if (beam.fate !== 'duplicate' || !to_end) expect(step.fate).toBe(fate);
    }
    before = steps;
  }
  expect(tree.length).toBe(run.iterations!.reduce((sum, { beams }) => sum + beams!.length, 0));
}

function compareTrees(trace: Trace, run: Run, results: readonly ProblemResult[]): void {
  const subtrees = trace.config.n / trace.config.beam_width;
  for (const [at, { tree }] of results.entries())
    for (const [index, { iteration, trees }] of run.iterations!.entries()) {
      const own = trees!.filter(({ tree: number }) => Math.floor(number / subtrees) === at);
      const steps = layer(tree, iteration);
      expect(steps.map(([, step]) => [step.subtree! + at * subtrees, shown(step)])).toEqual(
        own.flatMap(({ tree: number, candidates }) => candidates.map((beam) => [number, expected(beam)])),
      );
      for (const { tree: number, best, ends } of own) {
        const candidates = steps.filter(([, { subtree }]) => subtree! + at * subtrees === number);
        const chosen = candidates.filter(([, { fate }]) => fate !== 'pruned');
        expect(chosen).toEqual([candidates[best]]);
        const goesOn = tree.some(({ parent }) => parent === chosen[0]![0]);
        expect(goesOn).toBe(ends.length === 0 && index < run.iterations!.length - 1);
      }
    }
}

/** Its DVTS groups results by the text of the problem: equal problems get the candidates of each other. */
function candidatesOf(
  trace: Trace,
  run: Run,
  results: readonly ProblemResult[],
  at: number,
): ProblemResult['candidates'] {
  const text = (index: number): string => trace.problems[run.problems[index]!]!.problem;
  if (trace.config.approach !== 'dvts') return results[at]!.candidates;
  return results.flatMap(({ candidates }, index) => (text(index) === text(at) ? candidates : []));
}

function compareVotes(result: SalResult, candidates: ProblemResult['candidates'], gold: string): void {
  const sizes = Object.keys(result.at).map(Number);
  const isRight = (_: string, answer: string): boolean => answer === gold;
  const { answers, right, votes } = answersOf({ candidates }, sizes.at(-1)!, isRight, true);
  expect(answers).toEqual(result.answers);
  expect(candidates.map(({ scores }) => scores.at(-1))).toEqual(result.last_scores);
  const box = (index: number | null): string => `\\boxed{${answers[index!]}}`;
  const at = votes.map(({ size, naive, weighted, majority }) => [
    String(size),
    { naive: box(naive), weighted: box(weighted), maj: box(majority) },
  ]);
  expect(Object.fromEntries(at)).toEqual(result.at);
  for (const [k, share] of Object.entries(result.pass))
    expect(passAt(answers.length, right!.filter(Boolean).length, Number(k))).toBeCloseTo(share, 12);
}

function compareResult(trace: Trace, run: Run, result: SalResult, results: readonly ProblemResult[], at: number): void {
  const candidates = candidatesOf(trace, run, results, at);
  const own = results[at]!;
  expect(candidates.map(({ text }) => text)).toEqual(result.completions);
  expect(candidates.map(({ scores }) => scores)).toEqual(result.scores);
  expect(candidates.map(({ aggregate }) => aggregate)).toEqual(result.aggs);
  if (candidates === own.candidates) expect(own.candidates[own.picked!]!.text).toBe(result.pred);
  if (Array.isArray(result.completion_tokens) && trace.config.approach === 'best_of_n')
    expect(candidates.map(({ tokens }) => tokens)).toEqual(result.completion_tokens);
  compareVotes(result, candidates, trace.problems[run.problems[at]!]!.answer);
  if (result.completed_at !== undefined) {
    const places = candidates.map(({ step }) => {
      const { iteration } = own.tree[step]!;
      return [iteration, layer(own.tree, iteration).findIndex(([index]) => index === step)];
    });
    expect(places).toEqual(result.completed_at);
  }
}

const names = existsSync(FOLDER) ? readdirSync(FOLDER).filter((name) => name.endsWith('.json')) : [];

describe.skipIf(!existsSync(FOLDER))('traces of search-and-learn', () => {
  it('has some', () => expect(names.length).toBeGreaterThanOrEqual(49));

  it.each(names)('%s', async (name) => {
    const trace = JSON.parse(readFileSync(join(FOLDER, name), 'utf8')) as Trace;
    for (const run of trace.runs) {
      const results = await searchRun(trace, run);
      if (trace.config.approach === 'beam_search') compareBeams(run, results[0]!);
      if (trace.config.approach === 'dvts') compareTrees(trace, run, results);
      if (run.finish !== undefined)
        expect(results.map(({ tree }) => tree.map(({ end }) => (end === 'length' ? 'length' : 'stop')))).toEqual(
          run.finish,
        );
      if (run.error !== null) {
        expect(results[0]!.candidates).toEqual([]);
        expect(results[0]!.picked).toBeNull();
        expect(results[0]!.notes).toContain('no path completed: there is no answer');
      } else for (const [at, result] of run.results!.entries()) compareResult(trace, run, result, results, at);
    }
  });
});
