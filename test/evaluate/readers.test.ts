/**
 * What the readers of the public harness take from its files. They are Python, and not here: each field that they
 * access is a line of a table that says who reads it and where. docs/results.md says how they were run.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { modelFolder } from '../../evaluate/output.js';
import { prepareOutput } from '../../system/write.js';
import { writeFileRun } from '../support/fileRun.js';
import { resultsInput } from './support/resultsInput.js';

type Kind = 'text' | 'number' | 'list' | 'object';
/** Who reads it, the path of the field (TASK: each task; N: each element), and its kind. */
type Field = readonly [reader: string, path: string, kind: Kind];

const RESULTS: readonly Field[] = [
  ['zeno_visualize.py, main: a part of the model name', 'config.model_args', 'text'],
  ['zeno_visualize.py, tasks_for_model: its keys are the tasks', 'configs', 'object'],
  ['zeno_visualize.py, main: metrics that are means are shown', 'configs.TASK.metric_list.N.metric', 'text'],
  ['zeno_visualize.py, main', 'configs.TASK.metric_list.N.aggregation', 'text'],
  ['zeno_visualize.py, generate_dataset: what responses are', 'configs.TASK.output_type', 'text'],
  ['wandb_logger.py, post_init: its keys are the tasks', 'results', 'object'],
  ['wandb_logger.py, _log_results_as_table', 'versions.TASK', 'number'],
  ['wandb_logger.py, _log_results_as_table', 'n-shot.TASK', 'number'],
  ['wandb_logger.py, _log_results_as_table: value', 'results.TASK.acc,none', 'number'],
  ['wandb_logger.py, _log_results_as_table: error, a number or "N/A"', 'results.TASK.acc_norm,none', 'number'],
  ['wandb_logger.py, _get_config: the run as it was asked for', 'config', 'object'],
];

const SAMPLES: readonly Field[] = [
  ['zeno_visualize.py and wandb_logger.py: identity of a row', 'doc_id', 'number'],
  ['zeno_visualize.py and wandb_logger.py: label of a row', 'target', 'text'],
  ['zeno_visualize.py, generate_dataset: the context', 'arguments.gen_args_0.arg_0', 'text'],
  ['evaluation_tracker.py, save_results_samples: the continuation', 'arguments.gen_args_1.arg_1', 'text'],
  ['evaluation_tracker.py, save_results_samples: leaves are text', 'resps.N.N.N', 'text'],
  ['zeno_visualize.py, generate_system_df: log-likelihoods', 'filtered_resps.N.N', 'text'],
  ['zeno_visualize.py and wandb_logger.py: a column for each metric', 'acc', 'number'],
  ['zeno_visualize.py and wandb_logger.py: a column for each metric', 'acc_norm', 'number'],
];

const kindOf = (value: unknown): string =>
  Array.isArray(value) ? 'list' : typeof value === 'string' ? 'text' : typeof value;

/** Every value that a path leads to. */
function valuesAt(value: unknown, [step, ...rest]: readonly string[]): unknown[] {
  if (step === undefined) return [value];
  if (typeof value !== 'object' || value === null) return [undefined];
  const next = step === 'N' || step === 'TASK' ? Object.values(value) : [new Map(Object.entries(value)).get(step)];
  return next.flatMap((each) => valuesAt(each, rest));
}

interface Line {
  readonly arguments: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly filtered_resps: readonly (readonly [string, string])[];
  readonly acc: number;
  readonly target: string;
}

let out = '';
let results: unknown;
let samples: readonly Line[] = [];
beforeAll(async () => {
  out = mkdtempSync(join(tmpdir(), 'tilewright-readers-'));
  const input = resultsInput();
  prepareOutput(modelFolder(out, input.modelName));
  const { resultsPath, samplesPath } = await writeFileRun(out, input);
  results = JSON.parse(readFileSync(resultsPath, 'utf8'));
  const lines = readFileSync(samplesPath, 'utf8').trimEnd().split('\n');
  samples = lines.map((line) => JSON.parse(line) as Line);
});
afterAll(() => {
  rmSync(out, { recursive: true, force: true });
});

describe("readers of the public harness's files", () => {
  it.each(RESULTS)('%s: %s of the results is a %s', (_reader, path, kind) => {
    const found = valuesAt(results, path.split('.'));
    expect(found.length).toBeGreaterThan(0);
    for (const value of found) expect(kindOf(value)).toBe(kind);
  });

  it.each(SAMPLES)('%s: %s of a sample is a %s', (_reader, path, kind) => {
    for (const sample of samples) {
      const found = valuesAt(sample, path.split('.'));
      expect(found.length).toBeGreaterThan(0);
      for (const value of found) expect(kindOf(value)).toBe(kind);
    }
  });

  it('find in the form of memory, made as docs/results.md says, the answer that the sample was scored by', () => {
    for (const { arguments: requests, filtered_resps: responses, acc, target } of samples) {
      // wandb_logger.py, _generate_dataset: arguments[0][0] is the context, arguments[i][1] a choice.
      const pairs = Object.values(requests).map((request) => Object.values(request));
      expect(new Set(pairs.map(([context]) => context)).size).toBe(1);
      expect(pairs).toHaveLength(responses.length);
      // The prediction is the argmax of numbers, which texts would order as words.
      const numbers = responses.map(([logLikelihood]) => Number(logLikelihood));
      expect(numbers.indexOf(Math.max(...numbers)) === Number(target)).toBe(acc === 1);
    }
  });
});
