/** Hostile questions, journals, results of shards, and records of tuning. */
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CPU_RECORDS } from '../../autotune/cpu/tune.js';
import { TuningDatabase } from '../../autotune/database.js';
import { loadDataset } from '../../evaluate/dataset.js';
import { FILE_TASKS } from '../../evaluate/fileTasks.js';
import { Journal } from '../../evaluate/journal.js';
import { mergeShards } from '../../evaluate/merge.js';
import { scoringBucket } from '../../ir/scoring.js';
import { TARGET } from '../autotune/fixture.js';
import { resultsInput } from '../evaluate/support/resultsInput.js';
import { reportFileRun } from '../support/fileRun.js';
import { writeShards } from '../support/shardFolders.js';
import { mutateBytes, pick, type Random, several } from './mutate.js';
import { expectRefusal, refusedWell } from './refusals.js';
import { scratch } from './scratch.js';

/** JSON lines, some of them changed as values or byte by byte. */
function mutateLines(lines: readonly unknown[], random: Random): Buffer {
  const text = lines.map((line) => `${JSON.stringify(random() < 0.3 ? several(line, random) : line)}\n`).join('');
  return random() < 0.3 ? mutateBytes(Buffer.from(text), random) : Buffer.from(text);
}

const DOCS: readonly unknown[] = [
  { ind: 1, activity_label: 'Tea', ctx_a: 'A woman fills a kettle.', ctx_b: 'she', endings: ['a', 'b [x]'], label: 1 },
  { id: 'q', question: { stem: 'Why?', choices: [{ text: 'a', label: 'A' }] }, answerKey: 'A' },
  { question: 'Why?', choices: { text: ['a', 'b'], label: ['1', '2'] }, answerKey: '2' },
  { context: 'Why?', choices: ['a', 'b'], gold: 1, query: 'Why?', label: 0 },
];

async function dataset(random: Random): Promise<void> {
  const path = join(scratch(), 'data.jsonl');
  writeFileSync(
    path,
    mutateLines(
      Array.from({ length: 3 }, () => pick(random, DOCS)),
      random,
    ),
  );
  try {
    const task = pick(random, FILE_TASKS);
    const { questions } = await loadDataset({ path, task });
    const scores = questions.map(({ docId, choices: { length } }) => ({
      docId,
      ll: Array.from({ length }, () => -1),
      greedy: Array.from({ length }, () => true),
    }));
    await reportFileRun({ ...resultsInput(), taskName: task.name, questions, scores });
  } catch (error) {
    expectRefusal(error);
  }
}
export const datasets = {
  about: 'lines of data files, through every task to their samples',
  rounds: 400,
  round: dataset,
};

const identity = { task: 'hellaswag', dataset: 'ab12', questions: 3 };
const choices = new Map([
  [0, 2],
  [1, 2],
  [2, 3],
]);

function journal(random: Random): void {
  const path = join(scratch(), 'journal.jsonl');
  rmSync(path, { force: true });
  const written = new Journal({ path, identity, choices, resume: false });
  written.append([{ docId: 0, ll: [-1.5, -2], greedy: [true, false] }]);
  written.append([{ docId: 2, ll: [-1, -2, -1 / 3], greedy: [true, false, true] }]);
  written.close();
  const sound = readFileSync(path);
  writeFileSync(
    path,
    random() < 0.5
      ? mutateBytes(sound, random)
      : mutateLines(
          sound
            .toString()
            .trimEnd()
            .split('\n')
            .map((line) => JSON.parse(line) as unknown),
          random,
        ),
  );
  refusedWell(() => {
    const again = new Journal({ path, identity, choices, resume: true });
    again.close();
    for (const [docId, { ll }] of again.done)
      if (ll.some((value) => ![-1.5, -2, -1, -1 / 3].includes(value)))
        throw new Error(`${docId}: an answer was changed`);
  });
}
export const journals = { about: 'lines of journals', rounds: 200, round: journal };

async function shards(random: Random): Promise<void> {
  const out = join(scratch(), 'shards');
  const folder = await writeShards(out);
  const file = join(folder, pick(random, readdirSync(folder)));
  const text = readFileSync(file, 'utf8');
  const changed =
    random() < 0.2
      ? mutateBytes(Buffer.from(text), random)
      : file.endsWith('.json')
        ? JSON.stringify(several(JSON.parse(text), random))
        : mutateLines([JSON.parse(text)], random);
  writeFileSync(file, changed);
  refusedWell(() => {
    const { samplesPath } = mergeShards({ folders: [join(out, 'm')], output: join(scratch(), 'merged') });
    for (const line of readFileSync(samplesPath, 'utf8').trimEnd().split('\n'))
      if (!line.includes('"-1.25"')) throw new Error(`an answer was changed: ${line}`);
  });
}
export const merges = { about: 'results and samples of shards, for merge', rounds: 40, round: shards };

const KEY = '0123456789abcdef';
const BUCKET = scoringBucket({ tokens: 256, rows: 128, longest: 100 });
const SCHEDULE = { kind: 'gemm', isa: 'avx512', mr: 14, nr: 32, kc: 384, mb: 8, nb: 256 } as const;

function records(random: Random): void {
  const path = join(scratch(), 'tuning.jsonl');
  rmSync(path, { force: true });
  const written = TuningDatabase.open(path, CPU_RECORDS);
  written.append({ key: KEY, bucket: BUCKET, target: TARGET, schedule: SCHEDULE, seconds: [1, 2] });
  written.close();
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n');
  const parsed = [...lines, ...lines].map((line) => JSON.parse(line) as unknown);
  writeFileSync(path, mutateLines(parsed, random));
  refusedWell(() => {
    const database = TuningDatabase.open(path, CPU_RECORDS);
    const best = database.best(KEY, BUCKET, TARGET);
    if (best !== undefined && !(best.seconds > 0)) throw new Error(`a time of ${best.seconds} s`);
    database.close();
  });
}
export const tuning = { about: 'records of the tuning database', rounds: 200, round: records };
