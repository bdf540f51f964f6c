/**
 * `npm run bench:tasks -- [DOCUMENTS …]`: how making requests grows with documents. Prompts of MMLU and HellaSwag
 * with five shots are made of rows that are invented as they are taken, and let go. One line a count: seconds to the
 * first and to the last, and the most memory of the process in between.
 */
import { openLibrary } from '../tasks/builtin/index.js';
import { tasksBelow } from '../tasks/definition/nodes.js';
import type { Dict, Value } from '../tasks/python/value.js';
import { openTask } from '../tasks/requests/task.js';

const COUNTS = [25_000, 50_000, 100_000, 200_000];
const POOL = 40_000;

/** One row with the columns of both data sets; `i` makes its words its own. */
function row(i: number): Dict {
  const words = (count: number, seed: number): string =>
    Array.from({ length: count }, (_, k) => `w${(i * 31 + k * 17 + seed) % 9973}`).join(' ');
  return new Map<string, Value>([
    ['question', words(40, i)],
    ['choices', [0, 1, 2, 3].map((k) => words(8, k))],
    ['answer', i % 4],
    ['activity_label', words(2, 1)],
    ['ctx_a', words(25, 2)],
    ['ctx_b', words(4, 3)],
    ['endings', [4, 5, 6, 7].map((k) => words(12, k))],
    ['label', String(i % 4)],
  ]);
}

function* rows(count: number): Generator<Dict> {
  for (let i = 0; i < count; i++) yield row(i);
}

async function measure(name: string, count: number): Promise<string> {
  const settings = tasksBelow(openLibrary([]).resolve(name))[0]!.settings;
  const start = performance.now();
  const task = await openTask(
    settings,
    (_dataset, _config, split) => rows(split === 'train' ? POOL : split === 'dev' ? 5 : count),
    { shots: 5 },
  );
  let first = 0,
    peak = 0,
    made = 0;
  for await (const { requests } of task.documents()) {
    if (made === 0) first = performance.now() - start;
    made += requests.length;
    if (made % 4096 === 0) peak = Math.max(peak, process.memoryUsage.rss());
  }
  const seconds = (milliseconds: number): string => (milliseconds / 1000).toFixed(2);
  const total = seconds(performance.now() - start);
  const memory = Math.round(peak / 2 ** 20);
  return `${name} ${count} documents, ${made} requests: first ${seconds(first)} s, all ${total} s, ${memory} MiB`;
}

const asked = process.argv.slice(2).map(Number);
for (const name of ['mmlu_anatomy', 'hellaswag'])
  for (const count of asked.length > 0 ? asked : COUNTS) process.stdout.write(`${await measure(name, count)}\n`);
