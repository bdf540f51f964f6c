/** `tilewright search` on fakes: flags in, answers out. */
import { describe, expect, it } from 'vitest';
import { SET_NAMES } from '../../cli/search.js';
import { AGGREGATE_NAMES, METHOD_NAMES } from '../../cli/searchFlags.js';
import { PROBLEM_SETS } from '../../commands/searchProblems.js';
import type { ModelWork, SearchedProblem, SearchRequest, SearchSummary } from '../../commands/searchRequest.js';
import type { WithTargetChoice } from '../../driver/precision.js';
import { AGGREGATES, METHODS } from '../../search/options.js';
import type { ProblemResult } from '../../search/result.js';
import { fakeIo, type Outcome, runCli } from './fakeIo.js';

const WORK: ModelWork = {
  model: 'm',
  calls: 1,
  computedTokens: 1000,
  foundTokens: 32,
  preemptions: 0,
  evictions: 0,
  peakPages: 2,
  pages: 4,
};
const SUMMARY: SearchSummary = {
  task: 'p',
  problems: 3,
  resumed: 1,
  failed: 0,
  seconds: 2,
  generator: WORK,
  verifier: { ...WORK, preemptions: 2 },
  samplesSha256: 'ab12',
  table: '',
  resultsPath: 'out/m/results.json',
  samplesPath: 'out/m/samples.jsonl',
};

const result = (text: string, notes: readonly string[] = []): ProblemResult => ({
  tree: [
    {
      parent: null,
      iteration: 0,
      text,
      tokens: 2,
      end: 'eos',
      scores: 1,
      last: 0.5,
      aggregate: 0.5,
      fate: 'completed',
    },
  ],
  candidates: [{ text, step: 0, isCompleted: true, scores: [0.5], aggregate: 0.5, tokens: 2 }],
  picked: 0,
  drawnSteps: 1,
  drawnTokens: 2,
  notes,
});

const searched = (index: number, of: { readonly text: string } | { readonly error: string }): SearchedProblem => ({
  index,
  problem: { id: `id${index}`, problem: `P${index}`, answer: '4' },
  ...('error' in of ? of : { result: result(of.text) }),
});

async function run(
  argv: readonly string[],
  all: readonly SearchedProblem[] = [],
  value: SearchSummary | undefined = SUMMARY,
): Promise<Outcome & { readonly request: WithTargetChoice<SearchRequest> | undefined }> {
  let request: WithTargetChoice<SearchRequest> | undefined;
  const outcome = await runCli(['search', ...argv], {
    search: (asked, ui, onSearched = () => undefined) => {
      request = asked;
      ui.phase('search');
      for (const each of all) onSearched(each);
      return Promise.resolve(value);
    },
  });
  return { ...outcome, request };
}

const ASKED = ['m', '--verifier', 'v', '--problems', 'p.jsonl'];

describe('search', () => {
  it('hands over what is asked', async () => {
    const { request, status, stderr } = await run([
      ...['m', '--verifier', 'v', '--verifier-kind', 'rlhflow', '--verifier-precision', 'f32', '--problems', 'p.jsonl'],
      ...['--method', 'dvts', '--n', '8', '--width', '2', '--iterations', '5', '--temperature', '0.7', '--seed', '3'],
      ...['--step-stop', '\\n', '--aggregate', 'min', '--filter-duplicates', '--compat', 'sal', '--system', 'none'],
      ...['--out', 'o', '--resume', '--memory-split', '0.3', '--at-once', '7', '--limit', '2', '--threads', '3'],
      ...['--parallel', 'dp=2', '--precision', 'f32'],
    ]);
    const { signal, ...asked } = request!;
    expect([status, stderr, signal?.aborted]).toEqual([0, expect.stringContaining('problems/h'), false]);
    expect(asked).toEqual({
      model: 'm',
      verifier: { model: 'v', language: 'rlhflow', precision: 'f32' },
      problems: { kind: 'file', path: 'p.jsonl' },
      options: {
        method: 'dvts',
        n: 8,
        width: 2,
        iterations: 5,
        temperature: 0.7,
        seed: 3,
        stepStop: '\n',
        aggregate: 'min',
        filterDuplicates: true,
        compat: 'sal',
        system: 'none',
      },
      output: 'o',
      resume: true,
      resumeCommand: expect.stringMatching(/^tilewright search m .*--resume/) as string,
      memorySplit: 0.3,
      atOnce: 7,
      limit: 2,
      threads: 3,
      parallel: { replicas: 2, stages: 1 },
      precision: 'f32',
      init: { kind: 'checkpoint' },
    });
  });

  it('knows every method, aggregate and set that there is', () => {
    expect(METHOD_NAMES).toEqual(METHODS);
    expect(AGGREGATE_NAMES).toEqual(AGGREGATES);
    expect(SET_NAMES).toEqual(PROBLEM_SETS);
  });

  it('takes memory that moves, and majority without a verifier', async () => {
    const { request } = await run(['m', '--task', 'gsm8k', '--method', 'majority', '--memory-split', 'auto']);
    expect(request).toMatchObject({ problems: { kind: 'set', name: 'gsm8k' }, options: { method: 'majority' } });
    expect([request?.memorySplit, request?.verifier]).toEqual([undefined, undefined]);
  });

  it.each([
    [['m', '--verifier', 'v'], 'there are no problems'],
    [['m', '--problems', 'p'], '--method beam needs a verifier'],
    [['m', '--problems', 'p', '--method', 'majority', '--verifier-kind', 'rlhflow'], '--verifier-kind: there is no'],
    [['m', '--problems', 'p', '--method', 'majority', '--memory-split', '.3'], '--memory-split: there is no verifier'],
    [[...ASKED, '--task', 'gsm8k'], '--problems and --task both say'],
    [[...ASKED, '--data-root', 'd'], '--data-root: a file of problems has no need of it'],
    [[...ASKED, '--method', 'bean'], "argument 'bean' is invalid"],
    [[...ASKED, '--n', '0'], '--n 0: expected a whole number from 1 to 4096'],
    [[...ASKED, '--n', 'x'], '--n x: expected a whole number from 1 to 4096'],
    [[...ASKED, '--temperature', '-1'], '--temperature -1: expected a number from 0'],
    [[...ASKED, '--step-stop', ''], '--step-stop ""'],
    [[...ASKED, '--memory-split', '1.3'], '--memory-split 1.3: expected auto, or a number between 0 and 1'],
    [[...ASKED, '--memory-split', '0'], '--memory-split 0: expected auto'],
    [[...ASKED, '--at-once', '0'], '--at-once 0: expected a whole number'],
    [[...ASKED, '--resume'], '--resume needs the folder of the search that it continues'],
    [[...ASKED, '--adapter', 'a', '--adapter', 'b'], '--adapter: the model has one adapter'],
    [[...ASKED, '--model-name', ''], '--model-name is empty'],
  ])('refuses %j before it opens anything', async (argv, message) => {
    const { status, stderr } = await runCli(['search', ...argv]);
    expect([status, stderr]).toEqual([2, expect.stringContaining(message)]);
  });

  it('prints answers in the order of the problems, whatever order they end in', async () => {
    const long = `${'x '.repeat(200)}\n\nThe answer is 4.`;
    const all = [searched(2, { text: 'c' }), searched(0, { text: long }), searched(1, { error: 'too long' })];
    const { stdout, stderr, status } = await run(ASKED, all);
    expect(status).toBe(1);
    const lines = stdout.trimEnd().split('\n');
    expect(lines.map((line) => line.slice(0, 4))).toEqual(['id0:', 'id1:', 'id2:']);
    expect(lines[0]).toMatch(/^id0: … .*The answer is 4\.$/);
    expect(lines.slice(1)).toEqual(['id1: failed', 'id2: c']);
    expect(stderr).toContain('problem id1: too long');
    expect(stderr).toContain('3 problems, 1 from the journal, in 2.00 s: 3,600 problems/h');
    expect(stderr).toContain('1,000 tokens computed');
    expect(stderr).toContain('computed again 2 times for lack of memory');
    expect(stderr).toContain('samples: SHA-256 ab12');
  });

  it('prints lines of JSON and nothing else', async () => {
    const { stdout, stderr, status } = await run(
      [...ASKED, '--json'],
      [searched(1, { text: 'b' }), searched(0, { text: 'a' })],
    );
    expect([status, stderr]).toEqual([0, '']);
    const lines = stdout.trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      expect.objectContaining({ id: 'id0', problem: 'P0', answer: '4', picked: 'a', drawn_tokens: 2, notes: [] }),
      expect.objectContaining({ id: 'id1', picked: 'b', candidates: result('b').candidates }),
    ]);
  });

  it('makes texts harmless on a terminal', async () => {
    const { stdout } = await run(ASKED, [searched(0, { text: 'a\x1b[2Jb' })]);
    expect(stdout).toBe('id0: a·[2Jb\n');
  });

  it('says how to go on when it is stopped', async () => {
    const io = fakeIo();
    const { status, stderr } = await runCli(
      ['search', ...ASKED, '--out', 'o'],
      {
        search: (_, ui) => {
          ui.phase('search');
          io.send('SIGINT');
          return Promise.resolve(undefined);
        },
      },
      io,
    );
    expect([status, stderr]).toEqual([130, expect.stringContaining('--out o --resume')]);
  });
});
