/** Runs of tasks verified: those left as written agree to the bit, and each kind of tampering is found. */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import type { CheckName } from '../../evaluate/verify/findings.js';
import { casesHere, thorough } from '../support/thorough.js';
import { filesOf, isBuilt, success, temporaryFolder, tilewright } from './support.js';
import {
  DEMO,
  edited,
  failureOf,
  found,
  type Json,
  oneUlp,
  otherChoice,
  PLACE,
  Results,
  verified,
  verify,
} from './tampered.js';

const NOUNS = ['river', 'train', 'teacher', 'garden', 'kettle', 'window', 'violin', 'harbour', 'forest', 'letter'];

const jsonLines = (all: readonly object[]): string => all.map((each) => `${JSON.stringify(each)}\n`).join('');

/** Three tasks of each kind of request, in a group: choices after shots, drawn texts by two filters, whole texts. */
function writeTasks(folder: string): void {
  const questions = NOUNS.map((noun, i) => ({
    q: `The ${noun} was`,
    choices: ['very old.', `near the ${NOUNS[(i + 3) % 10]}.`, 'green and loud.'],
    right: i % 3,
  }));
  const data = (name: string, rows: readonly object[]): string => {
    writeFileSync(join(folder, name), jsonLines(rows));
    return join(folder, name);
  };
  const files = {
    choices: { test: data('test.jsonl', questions), train: data('train.jsonl', questions.slice(4).reverse()) },
    texts: { test: data('texts.jsonl', questions.slice(0, 4)) },
    whole: { test: data('whole.jsonl', questions.slice(0, 3)) },
  };
  const task = (name: keyof typeof files, more: object): void =>
    writeFileSync(
      join(folder, `${name}.yaml`),
      JSON.stringify({
        ...{ task: `${name}_of_tests`, dataset_path: 'json', dataset_kwargs: { data_files: files[name] } },
        ...{ test_split: 'test', doc_to_text: '{{q}}', ...more },
      }),
    );
  task('choices', {
    ...{ output_type: 'multiple_choice', doc_to_choice: '{{choices}}', doc_to_target: '{{right}}' },
    ...{ training_split: 'train', num_fewshot: 2, metric_list: [{ metric: 'acc' }, { metric: 'acc_norm' }] },
  });
  task('texts', {
    ...{ output_type: 'generate_until', doc_to_target: '{{choices[right]}}', repeats: 2 },
    generation_kwargs: { until: ['no such text'], max_gen_toks: 6, do_sample: true, temperature: 0.9 },
    metric_list: [{ metric: 'exact_match' }],
    filter_list: [
      { name: 'first', filter: [{ function: 'take_first' }] },
      { name: 'word', filter: [{ function: 'regex', regex_pattern: '(\\w+)' }, { function: 'take_first' }] },
    ],
  });
  task('whole', { output_type: 'loglikelihood_rolling', doc_to_target: '{{q}} {{choices[0]}}', doc_to_text: '' });
  writeFileSync(
    join(folder, 'group.yaml'),
    JSON.stringify({
      ...{ group: 'tests', task: ['choices_of_tests', 'texts_of_tests', 'whole_of_tests'] },
      aggregate_metric_list: [{ metric: 'acc', weight_by_size: true }],
    }),
  );
}

describe.skipIf(!isBuilt)('a run of tasks', () => {
  const folder = temporaryFolder();
  const out = join(folder, 'results');
  const asked = ['--tasks', 'tests', '--include_path', folder, ...PLACE];
  const run = (name: string, ...more: string[]) =>
    tilewright(['run', DEMO, ...asked, '--out', join(folder, name), ...more]);

  beforeAll(async () => {
    writeTasks(folder);
    success(await run('results'));
  });

  it('agrees to the bit: answers of all kinds, all figures, all fields', async () => {
    const all = await verified(out, '--sample', 'all');
    expect(all).toMatchObject({ status: 0, outcome: 'agrees', differences: [], sample: { documents: 17, of: 17 } });
    expect(all.answers).toMatchObject({
      logLikelihoods: { compared: 33, equal: 33 },
      texts: { compared: 8, equal: 8 },
      choices: { compared: 10, changed: 0 },
    });
    expect(all.verdict).toBe('AGREES: 33 of 33 log-likelihoods and 8 of 8 texts equal to the bit');
  });

  thorough('agrees in a part, and in files alone', async () => {
    const part = await verified(out, '--sample', '5');
    expect(part).toMatchObject({ status: 0, sample: { documents: 5, of: 17, seed: 1 } });
    const none = await verified(out, '--sample', '0');
    expect(none).toMatchObject({ status: 0, sample: { documents: 0, of: 17 }, answers: { documents: 0 } });
    expect(none.verdict).toBe('AGREES: no answer was computed again');
    expect(none.checks.data.compared).toBe(17);
  });

  it('is told in a table, with the next command', async () => {
    const { status, stdout, stderr } = await verify(out, '--sample', '3');
    expect(status, stderr).toBe(0);
    expect(stdout).toMatch(/^AGREES: /m);
    expect(stdout).toMatch(/^next: tilewright verify .* --sample all/m);
    expect(stderr).toMatch(/model: .*demo/);
  });

  type Changed = [string, (of: Results) => void, CheckName, string | RegExp, ...string[]];
  const CHANGED: readonly Changed[] = [
    [
      'a log-likelihood by its last bit, in the sample',
      (of) => of.line('choices_of_tests', 3, (line) => edited(line, (ll) => oneUlp(ll))),
      'answers',
      /^log-likelihood of choice A$/,
      'all',
    ],
    [
      'whether a text is the most likely one',
      (of) => of.line('choices_of_tests', 3, (line) => line.replaceAll('"False"', '"True"')),
      'answers',
      /most likely one$/,
      'all',
    ],
    [
      'a log-likelihood of a whole text',
      (of) =>
        of.line('whole_of_tests', 1, (line) =>
          line
            .replaceAll(/"(-\d+\.\d+)"/g, (_, ll: string) => `"${oneUlp(ll)}"`)
            .replace(/\[-\d+\.\d+/g, (ll) => `[${oneUlp(ll.slice(1))}`),
        ),
      'answers',
      'log-likelihood',
      'all',
    ],
    [
      'a text',
      (of) => of.line('texts_of_tests', 1, (line) => line.replace(/"resps": \[\["/, '$&x')),
      'answers',
      'text',
      'all',
    ],
    [
      'a choice, by a log-likelihood outside of the sample',
      (of) => of.line('choices_of_tests', 2, otherChoice),
      'metrics',
      /^acc/,
      '0',
    ],
    [
      'a metric',
      (of) =>
        of.line('choices_of_tests', 1, (line) =>
          line.replace(/"acc": ([01])\.0/, (_, n) => `"acc": ${1 - Number(n)}.0`),
        ),
      'metrics',
      'acc',
      '0',
    ],
    [
      'a filtered answer',
      (of) => of.line('texts_of_tests', 5, (line) => line.replace(/"filtered_resps": \["/, '$&x')),
      'metrics',
      'filtered_resps',
      '0',
    ],
    [
      'a figure',
      (of) => of.results((all) => (((all['results'] as Json)['choices_of_tests'] as Json)['acc,none'] = 0.9)),
      'metrics',
      'results.choices_of_tests.acc,none',
      '0',
    ],
    [
      'an error',
      (of) =>
        of.results(
          (all) => (((all['results'] as Json)['whole_of_tests'] as Json)['word_perplexity_stderr,none'] = 0.1),
        ),
      'metrics',
      /stderr/,
      '0',
    ],
    [
      'a figure of a group',
      (of) => of.results((all) => (((all['groups'] as Json)['tests'] as Json)['acc,none'] = 0.9)),
      'metrics',
      'groups.tests.acc,none',
      '0',
    ],
    [
      'the number of documents',
      (of) => of.results((all) => (((all['n-samples'] as Json)['choices_of_tests'] as Json)['effective'] = 11)),
      'metrics',
      'n-samples.choices_of_tests.effective',
      '0',
    ],
    [
      'a hash of a task',
      (of) => of.results((all) => ((all['task_hashes'] as Json)['choices_of_tests'] = 'ab')),
      'metrics',
      'task_hashes.choices_of_tests',
      '0',
    ],
    [
      'a hash of a document',
      (of) => of.line('choices_of_tests', 0, (line) => line.replace(/"doc_hash": "./, '"doc_hash": "_')),
      'samples',
      'doc_hash',
      '0',
    ],
    [
      'a hash of a prompt',
      (of) => of.line('choices_of_tests', 0, (line) => line.replace(/"prompt_hash": "./, '"prompt_hash": "_')),
      'samples',
      'prompt_hash',
      '0',
    ],
    [
      'a hash of a target',
      (of) => of.line('choices_of_tests', 0, (line) => line.replace(/"target_hash": "./, '"target_hash": "_')),
      'samples',
      'target_hash',
      '0',
    ],
    [
      'a document',
      (of) => of.line('choices_of_tests', 0, (line) => line.replace('The river', 'A river')),
      'samples',
      'doc',
      '0',
    ],
    ['a line that is gone', (of) => of.lines('choices_of_tests', ([, ...rest]) => rest), 'samples', 'line', '0'],
    [
      'a line twice',
      (of) => of.lines('choices_of_tests', ([first = '', ...rest]) => [first, first, ...rest]),
      'samples',
      /second line/,
      '0',
    ],
    [
      'two lines in each other’s places',
      (of) => of.lines('choices_of_tests', ([a = '', b = '', ...rest]) => [b, a, ...rest]),
      'samples',
      /not in its place/,
      '0',
    ],
    [
      'a line that is no sample',
      (of) => of.lines('whole_of_tests', (all) => [...all, '{"doc_id": 1}']),
      'samples',
      /is no sample/,
      '0',
    ],
    [
      'a line of a document that is not there',
      (of) => of.lines('whole_of_tests', (all) => [...all, all[0]!.replace('"doc_id": 0', '"doc_id": 9')]),
      'samples',
      /does not have/,
      '0',
    ],
    [
      'other spaces',
      (of) => of.line('whole_of_tests', 0, (line) => line.replace('"doc_id": 0', '"doc_id":0')),
      'samples',
      'the text of the line',
      '0',
    ],
    [
      'the number of shots, where tools read it',
      (of) => of.results((all) => ((all['n-shot'] as Json)['choices_of_tests'] = 0)),
      'settings',
      'n-shot.choices_of_tests',
      '0',
    ],
    [
      'the number of shots, in the settings of the task',
      (of) => of.results((all) => (((all['configs'] as Json)['choices_of_tests'] as Json)['num_fewshot'] = 0)),
      'settings',
      'configs.choices_of_tests.num_fewshot',
      '0',
    ],
    [
      'the precision',
      (of) => of.results((all) => ((all['config'] as Json)['model_args'] = `model=${DEMO},precision=bf16`)),
      'settings',
      'config.model_args',
      '0',
    ],
    [
      'the arithmetic',
      (of) => of.results((all) => ((all['config'] as Json)['arithmetic'] = 'bf16')),
      'settings',
      'config.arithmetic',
      '1',
    ],
    [
      'a seed',
      (of) => of.results((all) => ((all['config'] as Json)['torch_seed'] = 5)),
      'settings',
      'config.torch_seed',
      '0',
    ],
    [
      'the checkpoint',
      (of) => of.results((all) => ((all['provenance'] as Json)['checkpoint'] = 'ab')),
      'model',
      'provenance.checkpoint',
      '0',
    ],
  ];
  // In CI every fourth one: each kind of file and of answer has several.
  const some = CHANGED.flatMap((_, i) => (i % 4 === 0 ? [i] : []));
  it.each(casesHere(CHANGED, ...some))('in which was changed: %s', async (_, change, check, what, sample = '0') => {
    const of = new Results(out);
    change(of);
    const result = await verified(of.out, '--sample', sample);
    expect(result).toMatchObject({ status: 3, outcome: 'differs' });
    expect(found(result, check)).toContainEqual(typeof what === 'string' ? what : expect.stringMatching(what));
  });

  thorough('differs where another checkpoint, tokenizer or data file is there', async () => {
    const model = join(temporaryFolder(), 'demo');
    cpSync(DEMO, model, { recursive: true });
    const elsewhere = ['--model', model, '--sample', 'all'];
    expect(await verified(out, ...elsewhere)).toMatchObject({ status: 0, outcome: 'agrees' });
    const weights = join(model, 'model.safetensors');
    const bytes = readFileSync(weights);
    // In no sample of the fingerprint: answers alone tell.
    const at = Math.floor(bytes.length / 2) + 5000;
    bytes.fill(0x3f, at, at + 2);
    writeFileSync(weights, bytes);
    const changed = await verified(out, ...elsewhere);
    expect(changed).toMatchObject({ status: 3, checks: { model: { differing: 0 }, data: { differing: 0 } } });
    expect(changed.answers.logLikelihoods.equal).toBeLessThan(33);
    bytes.fill(0x3f, bytes.length - 8);
    writeFileSync(weights, bytes);
    expect(found(await verified(out, '--model', model, '--sample', '0'), 'model')).toEqual(['provenance.checkpoint']);

    cpSync(DEMO, model, { recursive: true });
    const tokenizer = join(model, 'tokenizer.json');
    writeFileSync(tokenizer, readFileSync(tokenizer, 'utf8').replace('"normalized": false', '"normalized": true'));
    const other = await verified(out, '--model', model, '--sample', '0');
    expect(other).toMatchObject({ status: 3 });
    expect(found(other, 'model')).toEqual(['provenance.tokenizer_sha256']);
  });

  it.each([
    ['a document', 'test.jsonl', 'The kettle was', 'The kettle is', [4]],
    ['an answer', 'test.jsonl', '"right":1}\n', '"right":2}\n', [1]],
    ['an example of other documents', 'train.jsonl', 'The violin was', 'The viola was', undefined],
  ])('differs where the data have another text of %s, in the sample or not', async (_, name, text, by, documents) => {
    const file = join(folder, name);
    const data = readFileSync(file, 'utf8');
    try {
      writeFileSync(file, data.replace(text, by));
      const result = await verified(out, '--sample', '0');
      expect(result).toMatchObject({ status: 3, outcome: 'differs' });
      const where = new Set(result.differences.filter(({ check }) => check === 'data').map(({ doc }) => doc));
      if (documents === undefined) expect(where.size).toBeGreaterThan(0);
      else expect([...where]).toEqual(documents);
    } finally {
      writeFileSync(file, data);
    }
  });

  it.each<[string, (tasks: Json) => void]>([
    ['number of shots', (tasks) => (tasks['num_fewshot'] = 1)],
    ['seed of shots', (tasks) => (tasks['seeds'] = { python: 0, numpy: 1234, torch: 1234, fewshot: 7 })],
    ['instruction', (tasks) => (tasks['system_instruction'] = 'Answer.')],
    ['setting of texts', (tasks) => (tasks['gen_kwargs'] = '{"temperature": 0.5}')],
  ])('differs where the record has another %s', async (_, change) => {
    const of = new Results(out).results((all) =>
      change(((all['provenance'] as Json)['record'] as Json)['tasks'] as Json),
    );
    const result = await verified(of.out, '--sample', '0');
    expect(result).toMatchObject({ status: 3, outcome: 'differs' });
    expect(result.checks.data.differing).toBeGreaterThan(0);
  });

  thorough('agrees in the results of shards, and of a run that was resumed', async () => {
    for (const shard of ['1/2', '2/2']) success(await run('parts', '--shard', shard));
    const merged = join(folder, 'merged');
    success(await tilewright(['merge', join(folder, 'parts'), '--out', merged]));
    expect(await verified(merged, '--sample', 'all')).toMatchObject({ status: 0, sample: { documents: 17 } });
    const { error, hint } = failureOf(await verify(filesOf(join(folder, 'parts'), 'results')[0]!));
    expect(error).toContain('the results of one shard');
    expect(hint).toContain('tilewright merge');
    cpSync(out, join(folder, 'again'), { recursive: true });
    for (const kind of ['results', 'samples'] as const)
      for (const path of filesOf(join(folder, 'again'), kind)) rmSync(path);
    success(await run('again', '--resume'));
    expect(await verified(join(folder, 'again'), '--sample', 'all')).toMatchObject({ status: 0 });
  });

  thorough('agrees where it was asked in other ways: few documents, seeds, shots, other memory', async () => {
    const documents = { choices_of_tests: [1, 7], texts_of_tests: [0, 3], whole_of_tests: [2] };
    const seeds = ['--seed', '3,4,5,6', '--gen_kwargs', 'temperature=1.0', '--num_fewshot', '1'];
    success(await run('few', '--samples', JSON.stringify(documents), ...seeds, '--kv-cache', 'int8'));
    const few = await verified(join(folder, 'few'), '--sample', 'all');
    expect(few).toMatchObject({ status: 0, outcome: 'agrees', sample: { documents: 5, of: 5 } });
    success(await run('one', '--limit', '1', '--sharing', 'none', '--predict_only', '--system_instruction', 'Hm.'));
    expect(await verified(join(folder, 'one'), '--sample', 'all')).toMatchObject({ status: 0, sample: { of: 3 } });
  });

  it('cannot be checked to the bit where another kind of device made it', async () => {
    const of = new Results(out).results((all) => {
      const record = (all['provenance'] as Json)['record'] as Json;
      record['device'] = { target: 'cuda', isa: 'cuda:sm_80', name: 'Some GPU' };
      Object.assign(all['config'] as Json, { device: 'cuda', isa: 'cuda:sm_80', arithmetic: 'bf16' });
    });
    of.line('choices_of_tests', 3, (line) => edited(line, (ll) => String(Number(ll) + 0.001)));
    const result = await verified(of.out, '--sample', 'all', '--target', 'cpu');
    expect(result).toMatchObject({ status: 4, outcome: 'unchecked', devices: { isSameKind: false } });
    expect(result.verdict).toMatch(/^CANNOT BE CHECKED to the bit: made on cuda:sm_80, bf16 \(Some GPU\)/);
    expect(result.answers.logLikelihoods.maxDifference).toBeCloseTo(0.001, 6);
  });

  it('cannot be checked where files are not there, and says which flag names them', async () => {
    const of = (change: (record: Json) => void): Results =>
      new Results(out).results((all) => change((all['provenance'] as Json)['record'] as Json));
    const moved = of((record) => (record['model'] = '/no/such/model'));
    expect(failureOf(await verify(moved.out))).toMatchObject({
      hint: expect.stringContaining('--model DIR') as string,
    });
    const folders = of((record) => ((record['tasks'] as Json)['include_path'] = ['/no/such/folder']));
    expect(failureOf(await verify(folders.out)).hint).toContain('--include-path DIR');
    const without = new Results(out);
    rmSync(filesOf(without.out, 'samples').find((path) => path.includes('whole_of_tests'))!);
    expect(await verified(without.out, '--sample', '0')).toMatchObject({ status: 4, outcome: 'unchecked' });
  });

  it('of an older version is checked by its other fields, and says so', async () => {
    const of = new Results(out).results((all) => delete (all['provenance'] as Json)['record']);
    const result = await verified(of.out, '--sample', 'all', '--include-path', folder);
    expect(result).toMatchObject({ status: 0, outcome: 'agrees' });
    expect(result.notes[0]).toContain('older versions');
  });

  it.each<[string, (record: Json) => void, string]>([
    ['a path with a control character', (record) => (record['model'] = 'models\u001b[2J'), 'record.model'],
    ['another format', (record) => (record['format'] = 9), 'format'],
    ['a number of shots that none is', (record) => ((record['tasks'] as Json)['num_fewshot'] = 1e300), 'num_fewshot'],
    ['an unknown precision', (record) => (record['precision'] = 'f64'), 'precision'],
    ['settings that are no JSON', (record) => ((record['tasks'] as Json)['gen_kwargs'] = '{'), 'gen_kwargs'],
    ['neither a file nor tasks', (record) => delete record['tasks'], 'neither'],
  ])('is refused with %s', async (_, change, named) => {
    const of = new Results(out).results((all) => change((all['provenance'] as Json)['record'] as Json));
    expect(failureOf(await verify(of.out)).error).toContain(named.replace('record.', ''));
  });

  it('is refused where another program wrote it', async () => {
    const of = new Results(out).results((all) => (all['model_source'] = 'hf'));
    expect(failureOf(await verify(of.out)).error).toContain('another program');
  });
});
