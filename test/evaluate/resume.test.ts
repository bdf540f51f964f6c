/** A run that is killed at any moment and resumed writes what an undisturbed run writes. */
import { spawn } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { VOLATILE_FIELDS } from '../support/results.js';
import { compileEval } from './support/compiled.js';

/** A whole run over the public functions, in a separate process: node run.mjs DATA OUT SHARING DELAY_MS [resume]. */
const RUNNER = `
import { loadDataset } from './evaluate/dataset.js';
import { scoreQuestions, tokenizeDataset } from './evaluate/evaluate.js';
import { fileTaskByName } from './evaluate/fileTasks.js';
import { modelFolder } from './evaluate/output.js';
import { throughputOf } from './evaluate/results.js';
import { prepareOutput } from './system/write.js';
import { writeFileRun } from './test/support/fileRun.js';
import { fakeScorer } from './test/evaluate/support/fakeScorer.js';
const [data, out, sharing, delay, resume] = process.argv.slice(2);
const started = new Date(), task = fileTaskByName('multiple_choice'), modelName = 'fake';
const controller = new AbortController();
process.once('SIGINT', () => controller.abort());
prepareOutput(modelFolder(out, modelName));
const tokenizer = { moduleUrl: new URL('./fakeTokenizer.mjs', import.meta.url).href, spec: {} };
const loaded = await tokenizeDataset(await loadDataset({ path: data, task }), { tokenizer, workers: 1 });
const before = () => new Promise((resolve) => setTimeout(resolve, Number(delay)));
const scorer = fakeScorer({ maxTokens: 300, before });
const scored = await scoreQuestions({
  task, loaded, scorer, sharing, out, modelName,
  identity: { model: 'fake', precision: 'f32' },
  resume: resume === 'resume',
  signal: controller.signal,
  onProgress: ({ questionsDone }) => process.stdout.write(questionsDone + '\\n'),
});
if (scored.isInterrupted) process.exit(130);
const { scores, questionsScored: questions, tokensComputed, tokenCounts, scoreSeconds } = scored;
const times = { loadSeconds: 0, scoreSeconds, modelFlops: 0 };
await writeFileRun(out, {
  taskName: task.name, modelName,
  config: { model: 'tilewright', sharing },
  provenance: { checkpoint: 'fake', context_length: 256, dataset_path: 'data', dataset_sha256: loaded.sha256 },
  questionsInDataset: loaded.total, questions: loaded.questions, scores, started, finished: new Date(), version: '0',
  throughput: throughputOf({
    questions,
    tokensComputed,
    tokensWithoutSharing: tokenCounts.alone,
    tokensGrouped: tokenCounts.grouped,
    tokensShared: tokenCounts.shared,
    ...times,
  }),
});
`;

let folder = '';
let data = '';
beforeAll(() => {
  folder = compileEval();
  writeFileSync(join(folder, 'run.mjs'), RUNNER);
  data = join(folder, 'data.jsonl');
  const lines = Array.from({ length: 90 }, (_, i) =>
    JSON.stringify({
      context: `In the story of number ${i % 9} there is ${'quite '.repeat(i % 7)}a lot to read, and then`,
      choices: ['all', `sing ${i}`, 'go home early', `stay ${'very '.repeat(i % 4)}late`],
      label: i % 4,
    }),
  );
  writeFileSync(data, lines.join('\n'));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs to the end, or sends a signal as soon as `until` questions are reported. */
function run(
  out: string,
  options: { sharing?: string; delay?: number; resume?: boolean; until?: number; signal?: NodeJS.Signals } = {},
): Promise<number | string | null> {
  const { sharing = 'tree', delay = 0, resume = false, until = Infinity, signal = 'SIGKILL' } = options;
  const child = spawn(process.execPath, [
    join(folder, 'run.mjs'),
    data,
    out,
    sharing,
    String(delay),
    ...(resume ? ['resume'] : []),
  ]);
  let errors = '';
  child.stderr.on('data', (text) => (errors += String(text)));
  let isSent = false;
  child.stdout.on('data', (text) => {
    if (
      isSent ||
      !String(text)
        .trim()
        .split('\n')
        .some((count) => Number(count) >= until)
    )
      return;
    isSent = child.kill(signal);
  });
  return new Promise((resolve, reject) =>
    child.on('close', (code, by) => (code === 1 ? reject(new Error(errors)) : resolve(code ?? by))),
  );
}

/** The files that a run leaves, without dates and timings. */
function outcome(out: string): { samples: string; results: string; journal: string[] } {
  const at = join(out, 'fake');
  const names = readdirSync(at);
  const text = (start: string): string =>
    readFileSync(join(at, names.find((name) => name.startsWith(start)) ?? 'absent'), 'utf8');
  const results = JSON.parse(text('results_')) as Record<string, unknown>;
  for (const field of VOLATILE_FIELDS) delete results[field];
  return { samples: text('samples_'), results: JSON.stringify(results), journal: text('journal_').split('\n').sort() };
}

const newOut = (): string => mkdtempSync(join(tmpdir(), 'tilewright-resume-'));
const journalOf = (out: string): string => {
  const [name = 'absent'] = readdirSync(join(out, 'fake')).filter((each) => each.startsWith('journal_'));
  return join(out, 'fake', name);
};

describe('a resumed run', () => {
  it('writes the files of an undisturbed run after kill -9, twice', async () => {
    const [whole, killed] = [newOut(), newOut()];
    expect(await run(whole)).toBe(0);
    expect(await run(killed, { delay: 15, until: 10 })).toBe('SIGKILL');
    const first = readFileSync(journalOf(killed), 'utf8').split('\n').length;
    expect(first).toBeGreaterThan(10);
    expect(first).toBeLessThan(90);
    expect(await run(killed, { delay: 15, until: 50, resume: true })).toBe('SIGKILL');
    expect(await run(killed, { resume: true })).toBe(0);
    expect(outcome(killed)).toEqual(outcome(whole));
    rmSync(whole, { recursive: true });
    rmSync(killed, { recursive: true });
  });

  it('finds the journal on disk after Ctrl-C, and writes the same files', async () => {
    const [whole, stopped] = [newOut(), newOut()];
    expect(await run(whole, { sharing: 'none' })).toBe(0);
    expect(await run(stopped, { sharing: 'none', delay: 10, until: 5, signal: 'SIGINT' })).toBe(130);
    expect(readFileSync(journalOf(stopped), 'utf8').endsWith('\n')).toBe(true);
    expect(await run(stopped, { sharing: 'none', resume: true })).toBe(0);
    expect(outcome(stopped)).toEqual(outcome(whole));
    rmSync(whole, { recursive: true });
    rmSync(stopped, { recursive: true });
  });

  it('writes the same files if the journal was cut at any of many bytes', async () => {
    const whole = newOut();
    expect(await run(whole)).toBe(0);
    const expected = outcome(whole);
    const size = readFileSync(journalOf(whole)).length;
    for (const length of [0, 60, 201, Math.floor(size / 2), size]) {
      const out = newOut();
      mkdirSync(join(out, 'fake'));
      copyFileSync(journalOf(whole), journalOf(out));
      truncateSync(journalOf(out), length);
      expect(await run(out, { resume: true })).toBe(0);
      expect(outcome(out)).toEqual(expected);
      rmSync(out, { recursive: true });
    }
    rmSync(whole, { recursive: true });
  });

  it('is refused with another sharing mode', async () => {
    const out = newOut();
    expect(await run(out)).toBe(0);
    await expect(run(out, { sharing: 'none', resume: true })).rejects.toThrow(
      /it differs in sharing \(journal "tree", now "none"\)/,
    );
    rmSync(out, { recursive: true });
  });
});
