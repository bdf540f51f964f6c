/**
 * Runs compared: the figures of the results files, and no difference between batches. Of a small model; in test:slow of
 * the demonstration model, with another instruction set.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Comparison } from '../../evaluate/compare/compareRuns.js';
import { isThorough } from '../support/thorough.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import {
  CAPACITY,
  failure,
  filesOf,
  isBuilt,
  type Outcome,
  ROOT,
  success,
  temporaryFolder,
  tilewright,
} from './support.js';

const QUESTIONS = 60;

/** The same comparison, of files that were named in another way. */
const pathsOf =
  ({ a, b }: Comparison) =>
  (of: Comparison): Comparison => ({ ...of, a: { ...of.a, path: a.path }, b: { ...of.b, path: b.path } });

describe.skipIf(!isBuilt)('compared runs', () => {
  const [model, task, data] = isThorough
    ? [join(ROOT, 'models', 'demo'), 'hellaswag', join(ROOT, 'examples', 'everyday.jsonl')]
    : [writeCheckpoint(), 'multiple_choice', writeData(questions(QUESTIONS))];
  const out = temporaryFolder();
  const folder = (name: string): string => join(out, name);
  const run = (name: string, ...more: string[]): Promise<Outcome> =>
    tilewright([
      ...['run', model, '--task', task, '--data', data, '--threads', '1', '--limit', String(QUESTIONS)],
      ...['--out', folder(name), ...more],
    ]);
  const compare = (...args: string[]): Promise<Outcome> => tilewright(['compare', ...args]);
  const comparison = async (a: string, b: string): Promise<Comparison> =>
    JSON.parse(success(await compare(a, b, '--json')).stdout) as Comparison;
  let table = '';

  beforeAll(async () => {
    // Kernels of a capacity that other tests compile too.
    table = success(await run('large', ...(isThorough ? [] : CAPACITY))).stdout;
    success(await run('small', '--sharing', 'context', ...(isThorough ? ['--batch-tokens', '256'] : CAPACITY)));
    if (isThorough) success(await run('portable', '--isa', 'portable'));
  });

  test('with other batches answer the same, to the bit', async () => {
    const { tasks, summary } = await comparison(folder('large'), folder('small'));
    expect(tasks[0]).toMatchObject({
      ...{ task, isEqual: true, questions: { common: QUESTIONS, onlyA: 0, onlyB: 0, otherPrompt: 0 } },
      likelihoods: { notFinite: 0, meanAbsolute: 0, mean: 0, worst: { difference: 0 } },
      choices: { questions: QUESTIONS, changed: [] },
    });
    const { count, equal } = tasks[0]!.likelihoods!;
    expect(count).toBeGreaterThan(2 * QUESTIONS);
    expect(equal).toBe(count);
    for (const { difference, flips } of tasks[0]!.metrics)
      expect([difference, flips]).toEqual([0, { rightToWrong: 0, wrongToRight: 0 }]);
    expect(summary).toBe(`B and A answer the same, to the bit, in all ${QUESTIONS} questions`);
  });

  test('have the figures of their results files, to the digit shown', async () => {
    const { results } = JSON.parse(readFileSync(filesOf(folder('large'), 'results')[0]!, 'utf8')) as {
      results: Record<string, Record<string, number>>;
    };
    const { tasks } = await comparison(folder('large'), folder('small'));
    const { stdout } = success(await compare(folder('large'), folder('small')));
    for (const { metric, a } of tasks[0]!.metrics) {
      expect(a).toBe(results[task]![`${metric},none`]);
      const shown = new RegExp(`\\|${metric} *\\|↑ *\\| *([\\d.]+)\\|`).exec(table)![1]!;
      expect(stdout).toMatch(new RegExp(`^  ${metric} +${shown} `, 'm'));
    }
  });

  test.skipIf(!isThorough)('with another instruction set differ in the last bits, and nothing else', async () => {
    const { tasks, summary } = await comparison(folder('large'), folder('portable'));
    const { likelihoods, choices } = tasks[0]!;
    expect(likelihoods!.equal).toBeLessThan(likelihoods!.count);
    expect(likelihoods!.worst!.difference).toBeGreaterThan(0);
    expect(likelihoods!.worst!.difference).toBeLessThan(0.01);
    expect(choices!.changed).toEqual([]);
    expect(summary).toMatch(/: no difference within the error$/);
  });

  test('by the run itself, with earlier results or a second pass, are written beside the results', async () => {
    const capacity = isThorough ? [] : CAPACITY;
    const { stdout } = success(await run('later', '--compare-with', folder('large'), ...capacity));
    const path = /^comparison: (.*)$/m.exec(stdout)![1]!;
    const written = JSON.parse(readFileSync(path, 'utf8')) as Comparison;
    expect(written).toEqual(await comparison(folder('large'), folder('later')).then(pathsOf(written)));
    expect(stdout.trimEnd().split('\n').at(-1)).toBe(written.summary);
    // Where a CPU has AMX, a run multiplies in bf16 unless it is told otherwise.
    const twice = ['--precision', 'f32', '--compare-with', 'f32', '--json', '--resume', ...capacity];
    const printed = JSON.parse(success(await run('twice', ...twice)).stdout) as { comparison: Comparison };
    expect(printed.comparison.a.file).toMatch(/twice\/compared-with-f32\/.*results_/);
    expect(printed.comparison.tasks[0]).toMatchObject({ isEqual: true, questions: { common: QUESTIONS } });
  });

  test('that cannot be compared are refused before anything is computed', async () => {
    const refused = async (...more: string[]): Promise<string> => failure(await run('none', ...more)).error;
    expect(await refused('--compare-with', 'f16', '--target', 'cpu')).toMatch(/--compare-with f16: .* is for GPUs/);
    expect(await refused('--compare-with', '16bit')).toMatch(/there is nothing to compare/);
    expect(await refused('--compare-with', join(out, 'absent'))).toMatch(/absent: there is no such folder/);
    expect(await refused('--compare-with', temporaryFolder())).toMatch(/no results_\*\.json in it/);
    expect(await refused('--compare-with', 'f32', '--shard', '1/2')).toMatch(/a shard has a part of the questions/);
    expect(filesOf(folder('none'), 'results')).toEqual([]);
  });
});
