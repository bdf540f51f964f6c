/**
 * `npm run bench:tasks -- [DOCUMENTS …]`: how a run of tasks grows with its documents, without a model: rows that are
 * invented as they are taken become prompts, tokens, walks and calls, which a stand-in answers at once, and samples on
 * disk. MMLU and HellaSwag with five shots, the tokenizer of models/demo. Each count is a process of its own. One line
 * says when the first call was made, when the last was answered, the time of all processors (which other work on the
 * machine does not change), and the peak memory of the process.
 */
import { type Command, Option } from 'commander';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openThreads, packQuestions, tokenize } from '../commands/questionSet.js';
import { HARNESS_LAYOUT } from '../evaluate/layout.js';
import { Reporter } from '../evaluate/reporter.js';
import { BatchWork } from '../commands/work.js';
import { cpu } from '../driver/targets/cpu.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { evaluate, type LoadedQuestions } from '../evaluate/evaluate.js';
import { modelFolder } from '../evaluate/output.js';
import type { PathScorer } from '../evaluate/scorer.js';
import { type TaskWindow, taskWindows } from '../evaluate/windows.js';
import { FRESH_KEYS } from '../ir/stepping.js';
import { describeTokenizer } from '../models/tokenizer/files.js';
import type { Dict, PyValue } from '../python/value.js';
import { inParts } from '../system/text.js';
import { prepareOutput } from '../system/write.js';
import { openLibrary } from '../tasks/builtin/index.js';
import { tasksBelow } from '../tasks/definition/settings.js';
import { openTask } from '../tasks/requests/task.js';
import { TaskScores } from '../tasks/scores/ofTask.js';
import { benchCommand, repeated, runProgram, whole } from './command.js';
import { at } from '../system/at.js';

const COUNTS = [25_000, 50_000, 100_000, 200_000];
const TASKS = ['mmlu_anatomy', 'hellaswag'];
const POOL = 40_000;
const DEMO = fileURLToPath(new URL('../../models/demo', import.meta.url));
/** Sizes of a large model's calls. */
const CALL = { tokens: 8192, rows: 8192, keys: FRESH_KEYS, cacheRows: 16_384 };

/** One row with the columns of both data sets; `i` makes its words its own. */
function row(i: number): Dict {
  const words = (count: number, seed: number): string =>
    Array.from({ length: count }, (_, k) => `w${(i * 31 + k * 17 + seed) % 9973}`).join(' ');
  return new Map<string, PyValue>([
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

/** Answers at once, each row by its target. */
function standIn(onCall: () => void): PathScorer {
  const score: Awaited<ReturnType<PathScorer['open']>>['score'] = ({ target }) => {
    onCall();
    return Promise.resolve({
      logProb: Float32Array.from(target, (token) => -1 - (token % 97) / 10),
      isArgmax: new Int32Array(target.length),
    });
  };
  return { limits: CALL, lanes: 1, open: () => Promise.resolve({ inFlight: 2, score }) };
}

interface Prepared {
  readonly window: TaskWindow;
  readonly loaded: LoadedQuestions;
}

async function measure(name: string, count: number, output: string): Promise<string> {
  const [leaf] = tasksBelow(openLibrary([]).resolve(name));
  const start = performance.now();
  const seconds = (): number => (performance.now() - start) / 1000;
  const loading = { tokenizer: describeTokenizer(DEMO, 4096), target: cpu, cores: detectMachine().cpu.cores };
  const windows = taskWindows([{ ...leaf!, scores: new TaskScores(leaf!.settings) }], {
    open: ({ settings }) =>
      openTask(settings, (_dataset, _config, split) => rows(split === 'train' ? POOL : split === 'dev' ? 5 : count), {
        shots: 5,
      }),
  });
  let first: number | undefined;
  let calls = 0,
    tokens = 0,
    grouped = 0,
    shared = 0;
  const pathScorer = standIn(() => {
    first ??= seconds();
    calls++;
  });
  const scorer = {
    maxTokens: CALL.tokens,
    maxRows: CALL.rows,
    maxLength: CALL.tokens,
    inFlight: 2,
    replicas: 1,
    devices: 1,
    cost: (batch: number) => batch,
    score: () => Promise.reject(new Error('prefixes are kept')),
  };
  const limits = { ...scorer, contextLength: CALL.tokens, work: new BatchWork({ kernels: [] }) };
  prepareOutput(modelFolder(output, 'x'));
  const reporter = new Reporter({ layout: HARNESS_LAYOUT, nodes: [leaf!], output, now: () => new Date() });
  let threads: ReturnType<typeof openThreads> | undefined;
  const prepare = async (window: TaskWindow): Promise<Prepared> => {
    threads ??= openThreads(loading, window.dataset.questions);
    return { window, loaded: await tokenize(window.dataset, loading, undefined, threads) };
  };
  let next: Promise<Prepared> | undefined = prepare((await windows.next()).value!);
  while (next !== undefined) {
    const { window, loaded }: Prepared = await next;
    next = window.isLast ? undefined : windows.next().then(({ value }) => prepare(value!));
    const { plan, loaded: packed } = await inParts(packQuestions(loaded, { sharing: 'tree' }, limits, true));
    const { questions, tokenized } = packed;
    const found = await evaluate({ questions, tokenized, plan, scorer, pathScorer, sharing: 'tree' });
    tokens += found.tokensComputed;
    grouped += found.tokenCounts.grouped;
    shared += found.tokenCounts.shared;
    await reporter.add(
      window,
      { scores: new Map(found.scores.map((each) => [each.docId, each])), texts: new Map() },
      'x',
    );
  }
  await threads?.close();
  const { maxRSS, userCPUTime, systemCPUTime } = process.resourceUsage();
  const [memory, work] = [Math.round(maxRSS / 1024), (userCPUTime + systemCPUTime) / 1e6];
  return [
    `${name} ${count} documents: first call after ${(first ?? NaN).toFixed(1)} s, all after ${seconds().toFixed(1)} s`,
    `${work.toFixed(1)} s of processors`,
    `${memory} MiB; ${calls} calls`,
    `${tokens} tokens`,
    `${(grouped / tokens).toFixed(2)}× fewer than grouped`,
    `${(tokens / shared).toFixed(4)}× the least`,
  ].join(', ');
}

const tasksCommand = (): Command =>
  benchCommand(
    'bench:tasks',
    'How a run of tasks grows with its documents, without a model: when the first call was made, when the last was ' +
      'answered, the time of all processors, and the peak memory of the process. MMLU and HellaSwag with five shots.',
  )
    .argument('[documents...]', 'numbers of documents', repeated(whole(1, 9_999_999)), COUNTS)
    .addOption(new Option('--one <task>').hideHelp());

async function main({ one }: { readonly one?: string }, operands: readonly unknown[]): Promise<void> {
  const [counts = []] = operands as readonly (readonly number[])[];
  if (one !== undefined) {
    const output = mkdtempSync(join(tmpdir(), 'tilewright-bench-'));
    try {
      process.stdout.write(`${await measure(one, at(counts, 0), output)}\n`);
    } finally {
      rmSync(output, { recursive: true, force: true });
    }
    return;
  }
  for (const name of TASKS)
    for (const count of counts)
      execFileSync(process.execPath, [fileURLToPath(import.meta.url), '--one', name, String(count)], {
        stdio: 'inherit',
      });
}

await runProgram(import.meta.url, tasksCommand, main);
