import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { claimModelName, modelFolder, sanitiseModelName } from '../../evaluate/output.js';
import { throughputOf, toJson } from '../../evaluate/results.js';
import { formatTable } from '../../evaluate/table.js';
import { prepareOutput } from '../../system/write.js';
import { reportFileRun, writeFileRun } from '../support/fileRun.js';
import { VOLATILE_FIELDS } from '../support/results.js';
import { questions, record, resultsInput, throughput } from './support/resultsInput.js';

let out = '';
beforeEach(() => {
  out = mkdtempSync(join(tmpdir(), 'tilewright-results-'));
});
afterEach(() => rmSync(out, { recursive: true }));

const sha = (text: string): string => createHash('sha256').update(text).digest('hex');
const input = resultsInput();

describe('results of a file', () => {
  it('writes the two files of the public harness', async () => {
    const { resultsPath, samplesPath, results } = await writeFileRun(prepared(), input);
    expect(readdirSync(join(out, 'some__model__7b')).sort()).toEqual([
      'results_2026-01-31T10-20-34.623000.json',
      'samples_hellaswag_2026-01-31T10-20-34.623000.jsonl',
    ]);
    const written = JSON.parse(readFileSync(resultsPath, 'utf8')) as typeof results;
    expect(written).toEqual(results);
    expect((await reportFileRun(input)).results).toEqual(results);
    expect(written).toMatchObject({
      // By likelihood only question 7 is right; per character (14 and 6) question 0 is right too.
      results: {
        hellaswag: {
          alias: 'hellaswag',
          'acc,none': 0.5,
          'acc_stderr,none': 0.5,
          'acc_norm,none': 1,
          'acc_norm_stderr,none': 0,
        },
      },
      configs: { hellaswag: { task: 'hellaswag', dataset_sha256: 'ab', num_fewshot: 0 } },
      versions: { hellaswag: 1 },
      'n-shot': { hellaswag: 0 },
      higher_is_better: { hellaswag: { acc: true, acc_norm: true } },
      'n-samples': { hellaswag: { original: 10_042, effective: 2 } },
      config: { model: 'tilewright', precision: 'f32' },
      task_hashes: {
        hellaswag: sha(
          questions
            .map(({ doc, context, gold }) => sha(JSON.stringify(doc, null, 2)) + sha(context) + sha(String(gold)))
            .join(''),
        ),
      },
      model_name_sanitized: 'some__model__7b',
      total_evaluation_time_seconds: '4.5',
      throughput: {
        questions: 2,
        tokensComputed: 40,
        tokensWithoutSharing: 60,
        tokensGrouped: 60,
        tokensShared: 60,
        loadSeconds: 1.5,
        scoreSeconds: 2,
        questionsPerSecond: 1,
        tokensPerSecond: 20,
        modelFlops: 1e9,
      },
    });
    expect(Object.keys(written.results['hellaswag'] ?? {})).not.toContain('acc_bytes,none');
    expect(basename(samplesPath)).toContain('samples_hellaswag_');
  });

  it('writes samples by doc_id, in the layout of the public harness', async () => {
    const { samplesPath } = await writeFileRun(prepared(), input);
    const lines = readFileSync(samplesPath, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.map(({ doc_id }) => doc_id)).toEqual([0, 7]);
    const context = 'Tea: A woman fills a kettle. She';
    const doc = { ...record, label: 1, query: context, choices: record.endings, gold: 1 };
    expect(lines[1]).toEqual({
      doc_id: 7,
      doc,
      target: '1',
      arguments: {
        gen_args_0: { arg_0: context, arg_1: ' boils é water.' },
        gen_args_1: { arg_0: context, arg_1: ' flies.' },
      },
      resps: [[['-3.5', 'False']], [['-0.30000000000000004', 'True']]],
      filtered_resps: [
        ['-3.5', 'False'],
        ['-0.30000000000000004', 'True'],
      ],
      filter: 'none',
      metrics: ['acc', 'acc_norm'],
      doc_hash: sha(JSON.stringify(doc, null, 2)),
      prompt_hash: sha(context),
      target_hash: sha('1'),
      acc: 1,
      acc_norm: 1,
      is_greedy: [false, true],
    });
  });

  it('differs between equal runs only in the volatile fields', async () => {
    const first = await writeFileRun(prepared(), input);
    const later = await writeFileRun(prepared(), {
      ...input,
      scores: input.scores.slice().reverse(),
      started: new Date('2027-02-01T00:00:00Z'),
      finished: new Date('2027-02-01T00:01:00Z'),
      throughput: { ...throughput, scoreSeconds: 9, questions: 1 },
    });
    expect(readFileSync(later.samplesPath)).toEqual(readFileSync(first.samplesPath));
    const stable = (path: string): string => {
      const parsed = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
      for (const field of VOLATILE_FIELDS) {
        expect(parsed).toHaveProperty(field);
        delete parsed[field];
      }
      return JSON.stringify(parsed);
    };
    expect(stable(later.resultsPath)).toBe(stable(first.resultsPath));
    expect(readFileSync(later.resultsPath, 'utf8')).not.toBe(readFileSync(first.resultsPath, 'utf8'));
  });

  it('reports a standard error only if there is one', async () => {
    const one = await writeFileRun(prepared(), { ...input, questions: questions.slice(0, 1) });
    expect(one.results.results['hellaswag']).toMatchObject({
      'acc_stderr,none': 'N/A',
      'acc_norm_stderr,none': 'N/A',
    });
  });

  it('writes a question whose own fields overflow a double', async () => {
    const odd = {
      ...questions[0],
      doc: JSON.parse('{"id": 1e999}') as Record<string, unknown>,
    } as (typeof questions)[0];
    const { samplesPath } = await writeFileRun(prepared(), { ...input, questions: [odd] });
    expect(readFileSync(samplesPath, 'utf8')).toContain('"doc":{"id":null}');
  });

  it('never writes NaN, and leaves nothing behind when it fails', async () => {
    const folder = prepared();
    const bad = { ...input, scores: [{ docId: 0, ll: [NaN, -1], greedy: [true, true] }, ...input.scores.slice(0, 1)] };
    await expect(writeFileRun(folder, bad)).rejects.toThrow(/has the log-likelihood NaN/);
    await expect(
      writeFileRun(folder, { ...input, throughput: { ...throughput, modelFlops: Infinity } }),
    ).rejects.toThrow(/"modelFlops" is Infinity/);
    await expect(writeFileRun(folder, { ...input, scores: input.scores.slice(0, 1) })).rejects.toThrow(
      /document 0 has no answer/,
    );
    expect(readdirSync(join(out, 'some__model__7b')).filter((name) => !name.startsWith('samples_'))).toEqual([]);
    expect(() => toJson({ a: [1, -Infinity] })).toThrow(/-Infinity/);
  });

  function prepared(): string {
    prepareOutput(modelFolder(out, input.modelName));
    return out;
  }
});

it('the throughput of a run that scored nothing is zero, not NaN', () => {
  expect(
    throughputOf({
      questions: 0,
      tokensComputed: 0,
      tokensWithoutSharing: 0,
      tokensGrouped: 0,
      tokensShared: 0,
      loadSeconds: 1,
      scoreSeconds: 0,
      modelFlops: 0,
    }),
  ).toMatchObject({ questionsPerSecond: 0, tokensPerSecond: 0 });
});

describe('the output folder', () => {
  it.each([
    ['meta/llama:7b', 'meta__llama__7b'],
    ['/a/b', '__a__b'],
    ['a<>"|?*b', 'a__b'],
    ['..', '__..'],
    ['.', '__.'],
    ['', '__'],
    ['a\\b\0c', 'a__b_c'],
  ])('of model %j is %j', (name, folder) => {
    expect(sanitiseModelName(name)).toBe(folder);
    expect(modelFolder(out, name)).toBe(join(out, folder));
  });
});

it('results name the questions, tokenizer, context and checkpoint of their answers', async () => {
  prepareOutput(modelFolder(out, input.modelName));
  const { results, samplesPath } = await writeFileRun(out, input);
  expect(results['provenance']).toEqual(input.provenance);
  expect(results['max_length']).toBe(2048);
  expect(results['samples_sha256']).toEqual({ hellaswag: sha(readFileSync(samplesPath, 'utf8')) });
});

it('another checkpoint of the same name gets a name of its own', async () => {
  const { checkpoint } = input.provenance;
  prepareOutput(modelFolder(out, input.modelName));
  await writeFileRun(out, input);
  expect(claimModelName(out, input.modelName, checkpoint)).toBe(input.modelName);
  expect(claimModelName(out, input.modelName, 'deadbeef99')).toBe(`${input.modelName}-deadbeef`);
  expect(existsSync(modelFolder(out, `${input.modelName}-deadbeef`))).toBe(true);
});

it('one of two checkpoints that race for a name gets a new one', async () => {
  const claimer = `
    const { claimModelName } = require(${JSON.stringify(join(import.meta.dirname, '../../dist/evaluate/output.js'))});
    process.stdin.once('data', () => {
      process.stdout.write(claimModelName(process.argv[1], 'm', process.argv[2]));
      process.exit();
    });
    process.stdout.write('ready ');`;
  const racers = ['aaaaaaaa11', 'bbbbbbbb22', 'cccccccc33'].map((checkpoint) => {
    const child = spawn(process.execPath, ['-e', claimer, out, checkpoint], { stdio: ['pipe', 'pipe', 'inherit'] });
    return { checkpoint, child, text: text(child.stdout), ready: once(child.stdout, 'readable') };
  });
  await Promise.all(racers.map(({ ready }) => ready));
  for (const { child } of racers) child.stdin.write('go');
  const names = await Promise.all(
    racers.map(async (racer) => [racer.checkpoint, (await racer.text).replace('ready ', '')] as const),
  );
  expect(names.filter(([, name]) => name === 'm')).toHaveLength(1);
  expect(names.filter(([checkpoint, name]) => name === `m-${checkpoint.slice(0, 8)}`)).toHaveLength(2);
  for (const [checkpoint, name] of names) expect(claimModelName(out, 'm', checkpoint)).toBe(name);
});

it('formatTable prints the table of the public harness', async () => {
  prepareOutput(modelFolder(out, input.modelName));
  const { results } = await writeFileRun(out, input);
  expect(`\n${formatTable(results)}\n`).toBe(`
|Tasks    |Version|Filter|n-shot|Metric  |   | Value|   |Stderr|
|---------|------:|------|-----:|--------|---|-----:|---|-----:|
|hellaswag|      1|none  |     0|acc     |↑  |0.5000|±  |0.5000|
|         |       |none  |     0|acc_norm|↑  |1.0000|±  |0.0000|
`);
});
