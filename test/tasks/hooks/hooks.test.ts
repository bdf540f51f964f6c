/** Functions that take the places of Python's: what those made of the documents in python.json, and what is refused. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { Dict, PyValue } from '../../../python/value.js';
import { readSplit } from '../../../tasks/data/splits.js';
import { TaskLibrary } from '../../../tasks/definition/library.js';
import { tasksBelow } from '../../../tasks/definition/settings.js';
import { Hook } from '../../../tasks/definition/yaml.js';
import { HookProblem, type Ports } from '../../../tasks/hooks/hook.js';
import { portedHook, portedHooks } from '../../../tasks/hooks/registry.js';
import { buildRequests } from '../../../tasks/requests/task.js';
import { expectLinear } from '../../support/growth.js';
import { toPlain, toValue } from '../values.js';

type Row = readonly [
  module: string,
  name: string,
  dataset: string,
  outputType: string,
  document: unknown,
  made: unknown,
];
const ROWS = JSON.parse(readFileSync(new URL('./python.json', import.meta.url), 'utf8')) as readonly Row[];
const SHARED = fileURLToPath(new URL('../../../../shared/', import.meta.url));

function hook<K extends keyof Ports>(path: string, kind: K, dataset: string, outputType: string): Ports[K] {
  const at = path.lastIndexOf('/');
  const python = new Hook(path.slice(at + 1), `/tasks/${path.slice(0, at)}/some.yaml`);
  return portedHook(python, kind, { dataset, outputType }, 'some.yaml:3: key');
}

describe('a function in the place of Python’s', () => {
  it.each(ROWS.map((row, i) => [`${row[0]}.${row[1]}`, i, row] as const))('%s (%i)', (path, _, row) => {
    const [, name, dataset, outputType, document, made] = row;
    const fields = toValue(document) as Dict;
    if (/^(?:process_(?!results)|filter_)/.test(name))
      expect(toPlain(hook(path, 'document', dataset, outputType)(fields) ?? null)).toEqual(made);
    else if (name === 'process_results')
      expect(Object.fromEntries(hook(path, 'results', dataset, outputType)(fields, [-12.5]))).toEqual(made);
    else expect(toPlain(hook(path, 'field', dataset, outputType)(fields))).toEqual(made);
  });

  it('keeps one category of MMLU-Pro', () => {
    const keep = hook('x/mmlu_pro/utils.process_computer_science', 'document', 'TIGER-Lab/MMLU-Pro', 'generate_until');
    const law = new Map<string, PyValue>([['category', 'law']]);
    const science = new Map<string, PyValue>([['category', 'computer science']]);
    expect([keep(law), keep(science)]).toEqual([undefined, science]);
  });

  it.skipIf(!existsSync(join(SHARED, 'golden')))('scores TruthfulQA as the public harness does', async () => {
    const library = new TaskLibrary([join(SHARED, 'data/lm_eval_tasks')]);
    const [task] = tasksBelow(library.resolve('truthfulqa_mc2'));
    const read = readSplit.bind(undefined, join(SHARED, 'data/hub'));
    const built = await buildRequests(task!.settings, read);
    const score = hook('truthfulqa/utils.process_results_mc2', 'results', 'truthfulqa/truthful_qa', 'multiple_choice');
    const lines = gunzipSync(readFileSync(join(SHARED, 'golden/requests/truthfulqa_mc2_0shot.jsonl.gz'))).toString();
    const samples = lines.trim().split('\n');
    expect(samples).toHaveLength(built.length);
    for (const [i, line] of samples.entries()) {
      const golden = JSON.parse(line) as {
        resps: readonly (readonly [number, boolean])[];
        metrics: { none: { acc: number } };
      };
      const values = golden.resps.map(([value]) => value);
      const made = Number(score(built[i]!.document, values).get('acc'));
      expect(Math.abs(made - golden.metrics.none.acc)).toBeLessThan(4e-16);
    }
  });

  it('says which column is missing or strange', () => {
    const run = hook('hellaswag/utils.process_docs', 'document', 'Rowan/hellaswag', 'multiple_choice');
    const row = new Map<string, PyValue>([
      ['ctx_a', 'a'],
      ['ctx_b', 3],
    ]);
    expect(() => run(row)).toThrow(new HookProblem('ctx_b: expected text, found int'));
    row.delete('ctx_b');
    expect(() => run(row)).toThrow('there is no column "ctx_b"; there are ctx_a');
    const race = hook('race/preprocess_race.doc_to_text', 'field', 'EleutherAI/race', 'multiple_choice');
    expect(() => race(new Map([['problems', '[{"question": ']]))).toThrow('problems: no Python literal');
    expect(() => race(new Map([['problems', '[]']]))).toThrow('problems: there are none');
  });

  it('is refused for another folder, data set or key', () => {
    expect(() => hook('mine/utils.process_docs', 'document', 'Rowan/hellaswag', 'multiple_choice')).toThrow(
      'some.yaml:3: key: the Python function utils.process_docs is not supported in mine/',
    );
    expect(() => hook('hellaswag/utils.process_docs', 'document', 'other', 'multiple_choice')).toThrow('not supported');
    expect(() => hook('hellaswag/utils.process_docs', 'field', 'Rowan/hellaswag', 'multiple_choice')).toThrow();
    expect(portedHooks()).toContain('hellaswag/utils.process_docs');
  });

  it('takes time in proportion to the text, whatever it is', () => {
    const run = hook('hellaswag/utils.process_docs', 'document', 'Rowan/hellaswag', 'multiple_choice');
    const row = (text: string): Dict =>
      new Map<string, PyValue>([
        ['ctx_a', text],
        ['ctx_b', ''],
        ['activity_label', ''],
        ['endings', []],
        ['label', '0'],
      ]);
    const page = (text: string): Dict => new Map<string, PyValue>([['page', text]]);
    const detokenize = hook(
      'wikitext/preprocess_wikitext.wikitext_detokenizer',
      'field',
      'EleutherAI/wikitext_document_level',
      'loglikelihood_rolling',
    );
    for (const part of ['[ [x\n', '[', ' '])
      expectLinear((size) => run.bind(undefined, row(part.repeat(size))), 20_000);
    for (const part of ['( ', ' ']) expectLinear((size) => detokenize.bind(undefined, page(part.repeat(size))), 20_000);
  });
});
