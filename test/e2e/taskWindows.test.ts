/** Runs of tasks in windows of documents: the same samples whatever the window, and what is finished is kept. */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { writeCheckpoint } from './smallModel.js';
import { CAPACITY, failure, filesOf, isBuilt, success, temporaryFolder, tilewright, type Outcome } from './support.js';

/** A task of questions, or of texts to write, with its data. */
function writeTask(folder: string, name: string, rows: readonly object[], isText = false): void {
  const file = join(folder, `${name}.jsonl`);
  writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const asked = isText
    ? ['output_type: generate_until', 'generation_kwargs: { max_gen_toks: 4, until: ["\\n"] }']
    : [
        'output_type: multiple_choice',
        'doc_to_choice: ["yes", "no", "never"]',
        'num_fewshot: 1',
        'fewshot_split: test',
      ];
  const keys = [
    ...[`task: ${name}`, 'dataset_path: json', `dataset_kwargs: { data_files: { test: ${JSON.stringify(file)} } }`],
    ...['test_split: test', 'doc_to_text: "{{text}}\\nAnswer:"', 'doc_to_target: answer', ...asked],
  ];
  writeFileSync(join(folder, `${name}.yaml`), `${keys.join('\n')}\n`);
}

const row = (i: number, word: string): object => ({ text: `Is ${word} ${i * 7} more?`, answer: i % 3 });

describe.skipIf(!isBuilt)('tasks in windows', () => {
  const model = writeCheckpoint();
  const tasks = join(temporaryFolder(), 'tasks');
  const run = (out: string, window: number | undefined, ...more: string[]): Promise<Outcome> =>
    tilewright(
      [
        ...['run', model, '--tasks', 'first,texts,second', '--include-path', tasks, '--threads', '2', ...CAPACITY],
        ...['--cache-tokens', '512', '--out', out, ...more],
      ],
      window === undefined ? {} : { env: { TILEWRIGHT_WINDOW: String(window) } },
    );
  /** By task. */
  const samplesOf = (out: string): Record<string, string> =>
    Object.fromEntries(
      filesOf(out, 'samples').map((path) => [/samples_([a-z]+)_/.exec(path)![1]!, readFileSync(path, 'utf8')]),
    );
  const resultsOf = (out: string): Record<string, Record<string, unknown>> =>
    JSON.parse(readFileSync(filesOf(out, 'results').at(-1)!, 'utf8')) as Record<string, Record<string, unknown>>;
  let whole = '';

  beforeAll(async () => {
    mkdirSync(tasks);
    writeTask(
      tasks,
      'first',
      Array.from({ length: 7 }, (_, i) => row(i, 'this')),
    );
    writeTask(
      tasks,
      'second',
      Array.from({ length: 6 }, (_, i) => row(i, 'that')),
    );
    writeTask(
      tasks,
      'texts',
      Array.from({ length: 3 }, (_, i) => ({ text: `Write ${i}`, answer: '1' })),
      true,
    );
    whole = temporaryFolder();
    success(await run(whole, undefined));
  });

  test.each([[[]], [['--devices', '2']], [['--prefixes', 'repeat']]])(
    'have the same samples and figures, with %j',
    async (flags) => {
      const out = temporaryFolder();
      const { stderr, stdout } = success(await run(out, 4, ...flags));
      expect(samplesOf(out)).toEqual(samplesOf(whole));
      const [own, expected] = [resultsOf(out), resultsOf(whole)];
      for (const block of ['results', 'n-samples', 'task_hashes', 'configs', 'versions'])
        expect(own[block], block).toEqual(expected[block]);
      // Figures come when a task is finished, those of the last window in the table.
      expect(stderr).toMatch(/first: acc [\d.]+ ± [\d.]+, .*; 7 documents/);
      expect(stdout).toContain('second');
      expect(readdirSync(join(out, readdirSync(out)[0]!)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
    },
  );

  test('take --max-tokens for the size of micro-batches only where nobody can mean the length of texts', async () => {
    const asked = async (names: string): Promise<Outcome> =>
      tilewright(['run', model, '--tasks', names, '--include_path', tasks, '--max_tokens', '96']);
    const { error, hint } = failure(await asked('first,texts'));
    expect(error).toContain('--max-tokens: these tasks generate texts');
    expect(hint).toContain('--batch-tokens 96; the length of texts: --gen_kwargs max_gen_toks=96');
    const { stderr } = success(await asked('first'));
    expect(stderr).toContain('--max-tokens is taken for --batch-tokens, the size of a micro-batch');
  });

  test('are merged from shards, to the byte', async () => {
    const [parts, out] = [temporaryFolder(), temporaryFolder()];
    for (const shard of ['1/2', '2/2']) {
      const { error } = failure(await tilewright(['merge', parts, '--out', out]));
      expect(error).toMatch(shard === '1/2' ? /contains no results of shards/ : /shard 2 of 2 has no results yet/);
      success(await run(parts, 4, '--shard', shard));
    }
    const { stdout } = success(await tilewright(['merge', parts, '--out', out]));
    expect(stdout).toContain('16 questions of 2 shards');
    expect(samplesOf(out)).toEqual(samplesOf(whole));
    const [own, expected] = [resultsOf(out), resultsOf(whole)];
    for (const block of ['results', 'n-samples', 'task_hashes', 'configs', 'versions', 'n-shot', 'group_subtasks'])
      expect(own[block], block).toEqual(expected[block]);
    expect(Object.keys(own).slice(0, 3)).toEqual(['results', 'n-samples', 'n-shot']);

    const [damaged] = filesOf(join(parts, 'small', 'shard-1-of-2'), 'samples');
    writeFileSync(damaged!, readFileSync(damaged!, 'utf8').replace('more', 'less'));
    expect(failure(await tilewright(['merge', parts, '--out', out])).error).toMatch(/does not hold the samples/);
  });

  test('that only write texts are merged from shards', async () => {
    const [parts, out] = [temporaryFolder(), temporaryFolder()];
    for (const shard of ['1/2', '2/2']) success(await run(parts, undefined, '--tasks', 'texts', '--shard', shard));
    success(await tilewright(['merge', parts, '--out', out]));
    expect(samplesOf(out)).toEqual({ texts: samplesOf(whole)['texts'] });

    const [samples] = filesOf(out, 'samples');
    rmSync(samples!);
    mkdirSync(samples!);
    const { error, hint } = failure(await tilewright(['merge', parts, '--out', out]));
    expect(error).toMatch(/samples_texts_.*: it is a folder/);
    expect(hint).toBe('Free some space, or give another --out, and merge again');
  });

  test('keep what is finished when a later one cannot be read, and go on with it', async () => {
    const out = temporaryFolder();
    const file = join(tasks, 'second.jsonl');
    const good = readFileSync(file, 'utf8');
    writeFileSync(file, `${good}{"text": 1\n`);
    const { error } = failure(await run(out, 4));
    expect(error).toMatch(/second\.jsonl:7: not valid JSON/);
    expect(Object.keys(samplesOf(out))).toContain('first');
    expect(samplesOf(out)['first']).toBe(samplesOf(whole)['first']);
    const kept = resultsOf(out);
    expect(kept['results']!['first']).toEqual(resultsOf(whole)['results']!['first']);
    expect(kept['unfinished']).toContain('second');

    writeFileSync(file, good);
    const { stderr } = success(await run(out, 4, '--resume'));
    expect(stderr).toMatch(/4 questions taken over/);
    const last = resultsOf(out);
    expect(last['unfinished']).toBeUndefined();
    expect(last['results']).toEqual(resultsOf(whole)['results']);
    expect(existsSync(out)).toBe(true);
  });

  test('begin with a small one where there are many documents, and go on within it', async () => {
    writeTask(
      tasks,
      'many',
      Array.from({ length: 1100 }, (_, i) => row(i, 'it')),
    );
    const asked = ['--tasks', 'many'];
    const [small, others] = [temporaryFolder(), temporaryFolder()];
    const { stderr } = success(await run(small, undefined, ...asked));
    expect(stderr).toContain('128 documents from 0 on');
    expect(stderr).toContain('256 documents from 128 on');
    success(await run(others, 300, ...asked));
    expect(samplesOf(others)).toEqual(samplesOf(small));

    // Killed after half of the first window.
    const killed = temporaryFolder();
    const from = join(small, readdirSync(small)[0]!);
    const journals = readdirSync(from).filter((name) => name.startsWith('journal_'));
    const name = journals.find((each) => readFileSync(join(from, each), 'utf8').includes('"docs":"0:128"'))!;
    cpSync(small, killed, { recursive: true });
    const folder = join(killed, readdirSync(killed)[0]!);
    for (const each of readdirSync(folder)) if (/^(?:journal|samples|results)_/.test(each)) rmSync(join(folder, each));
    const lines = readFileSync(join(from, name), 'utf8').split('\n');
    writeFileSync(join(folder, name), `${lines.slice(0, 65).join('\n')}\n`);
    expect(success(await run(killed, undefined, ...asked, '--resume')).stderr).toContain('64 questions taken over');
    expect(samplesOf(killed)).toEqual(samplesOf(small));
    expect(resultsOf(killed)['results']).toEqual(resultsOf(small)['results']);
  });
});
