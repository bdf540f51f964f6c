/**
 * `run`: checkpoint or artifact, and tasks of lm-evaluation-harness or questions of a file → results.
 *
 * Documents are read, tokenized, scored and let go in windows, which tasksRun.ts computes; the questions of a file are
 * one window. Results come in the layout of their source, those of a task as soon as it is finished.
 */
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { clock, Phases } from '../driver/phases.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { Ui } from '../driver/requests.js';
import { mayFeed } from '../driver/targets/index.js';
import { UsageError, UserError } from '../errors.js';
import type { Leaf, RunTask, TaskWindow } from '../evaluate/windows.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { type FoundDefaults, readTextDefaults } from '../models/generationConfig.js';
import { requireModelAt } from '../models/model/refusals.js';
import { prefixToken } from '../models/tokenizer/namedTokens.js';
import { deferredTokenizer, type Tokenizer } from '../models/tokenizer/tokenizer.js';
import { counted } from '../system/text.js';
import { notesOn } from '../tasks/hooks/registry.js';
import { unreadModules } from '../tasks/hooks/unread.js';
import { type ModelDefaults, withDefaults } from '../tasks/requests/generation.js';
import { SEEDS } from '../tasks/requests/seeds.js';
import type { Demand } from './cacheSize.js';
import { runCompared } from './compareWith.js';
import { draftModelOf } from './draftOptions.js';
import { beginLoading, type ModelLoading } from './loadModel.js';
import { requireVocabulary } from './requireVocabulary.js';
import { planRun } from './planRun.js';
import { openThreadsAtOnce } from './questionSet.js';
import { RunReporter, type RunState } from './runReporter.js';
import {
  type EvaluationRequest,
  Interrupted,
  MAX_TOKENS_NOTE,
  type RunRequest,
  type RunResult,
  type TasksRequest,
} from './runRequest.js';
import { findTasks, openFile, readTasks, type TaskSource, type Writing } from './sources.js';
import { TaskChat } from './taskChat.js';
import { TaskModel } from './taskModel.js';
import { computeWindows, TasksRun, WindowsAhead } from './tasksRun.js';
import { asksForLogits, asksForTexts, demandOfTexts, type TextWriting, tokenizeTexts } from './taskTexts.js';
import { noteDefaults } from './textFacts.js';

/** Throws UserError. */
export async function run(
  asked: WithTargetChoice<RunRequest> | WithTargetChoice<TasksRequest>,
  ui: Ui,
): Promise<RunResult> {
  requireModelAt(asked.model);
  if (asked.compareWith !== undefined) return runCompared(asked, ui, run);
  const request = 'tasks' in asked ? await settleTarget(asked, ui) : await settleTarget(asked, ui);
  const { output, isDryRun } = request;
  if (output === undefined && isDryRun !== true) ui.note('no --out: results are printed, nothing is written');
  return runEvaluation(request, ui);
}

/** A run before the first document of its tasks is read. */
export interface OpenedEvaluation {
  readonly source: TaskSource;
  readonly loading: ModelLoading;
  /** The chat template that prompts are written with. */
  readonly template: string | undefined;
}

/** Where answers go. */
export interface AnswerSink extends Pick<RunReporter, 'add' | 'close'> {
  write(state: RunState): RunResult;
}

/** What becomes of a run. By default all documents are computed, and results are written. */
export interface EvaluationUse {
  /** The windows that are computed; without any, no model is loaded. */
  readonly windows: (all: AsyncGenerator<TaskWindow>, opened: OpenedEvaluation) => AsyncGenerator<TaskWindow>;
  readonly reporter: AnswerSink;
}

export async function runEvaluation(given: RunRequest | TasksRequest, ui: Ui, use?: EvaluationUse): Promise<RunResult> {
  const started = new Date(clock());
  const begin = performance.now();
  const phases = new Phases();
  phases.begin('tasks' in given ? 'tasks' : 'questions');
  const source = 'tasks' in given ? findTasks(given) : await openFile(given);
  const { leaves, file } = source;
  const request: EvaluationRequest = given;
  phases.begin('open');
  const generates = asksForTexts(leaves);
  if (request.draft !== undefined && !generates) ui.note('--draft: no task generates texts, which alone have drafts');
  if (request.saysMaxTokens === true) {
    if (generates) throw ofTwoMeanings(request.batchTokens);
    ui.note(MAX_TOKENS_NOTE);
  }
  // Whether the model gets memory for keys and values follows from the questions.
  const { cacheTokens: _, ...scoring } = request;
  const asked = generates ? { ...scoring, ...draftModelOf(request), feeds: mayFeed(request) } : scoring;
  let ofModel: FoundDefaults | undefined;
  const logitsFor = (checkpoint: Checkpoint): boolean => {
    ofModel = readTextDefaults(checkpoint);
    return choosesFromLogits(leaves, ofModel.defaults);
  };
  const loading = beginLoading(asked, ui, phases, { logitsFor: generates ? logitsFor : undefined });
  requireVocabulary(loading.checkpoint, 'run');
  const load = loading.request;
  const prefix = file === undefined ? prefixToken(loading.tokenizer, loading.checkpoint.config) : undefined;
  const tokenizer = deferredTokenizer(loading.tokenizer.spec);
  const chat =
    request.appliesChatTemplate === true
      ? new TaskChat(
          loading.checkpoint.path,
          request.isMultiturn !== false,
          request.templateName,
          (line) => ui.warn(line),
          request.templateVariables,
        )
      : undefined;
  if (file === undefined) phases.begin('data');
  const adds = chat?.begin !== undefined && (await tokenizer.encode('')).length > 0;
  const written: Writing = { chat, begin: adds ? chat.begin : undefined };
  const begins = (text: string): boolean => written.begin !== undefined && text.startsWith(written.begin);
  // Ends the reading of what is not needed any more.
  const over = new AbortController();
  const signal = request.signal === undefined ? over.signal : AbortSignal.any([over.signal, request.signal]);
  let readsFirst = true;
  if (file === undefined) {
    ui.phase('prompts', counted(leaves.length, 'task'));
    const settings = leaves.map((leaf) => leaf.settings);
    for (const line of [...unreadModules(settings), ...notesOn(settings)]) ui.note(line);
  }
  if (ofModel !== undefined) noteDefaults(leaves, ofModel, ui);
  const all =
    file === undefined
      ? readTasks(request, leaves, written, signal, (documents) => {
          if (documents === 1) phases.begin('prompts');
          if (readsFirst && documents % PROGRESS_STEP === 0) ui.step(0, counted(documents, 'document'));
        })
      : windowsOf(file);
  const windows = use === undefined ? all : use.windows(all, { source, loading, template: chat?.source });
  const scores = !leaves.every((leaf) => asksForTexts([leaf]));
  // They open the tokenizer while documents are read.
  const readsAhead = scores && file === undefined && request.isDryRun !== true;
  const threads = readsAhead ? openThreadsAtOnce(loading) : undefined;
  try {
    if (request.isDryRun === true && generates) ui.note('texts that tasks generate are not counted');
    if (request.isDryRun === true) {
      return await planRun(request, { title: source.title, prefixToken: prefix }, windows, loading, ui);
    }
    const first = await windows.next();
    if (first.done === true) return NOTHING;
    readsFirst = false;
    phases.end();
    const { maxPositions } = loading.checkpoint.config;
    const writing: TextWriting = {
      maxPositions,
      begins,
      seed: (request.seeds ?? SEEDS).torch,
      end: loading.tokenizer.eos?.text,
      defaults: ofModel?.defaults ?? {},
    };
    const foreseen = async (): Promise<Demand | undefined> =>
      generates && !first.value.isLast
        ? await foresee(request, leaves, first.value, written, signal, { tokenizer, ...writing })
        : undefined;
    const model = new TaskModel(
      { request, load, loading, source, prefixToken: prefix, tokenizer, threads, writing, foreseen },
      ui,
      phases,
    );
    const reporter = use?.reporter ?? new RunReporter({ request: given, source, started, template: chat?.source });
    try {
      const beginning = model.begin(first.value);
      // A processor that computes itself has none to spare before, and computes a window for longer than it reads one.
      if (loading.target.devices.isHost) await beginning;
      const ahead = new WindowsAhead(first.value, windows, async (window) => {
        if (signal.aborted) throw new Interrupted(0);
        return model.tokenize(window);
      });
      const begun = await beginning;
      const loadSeconds = (performance.now() - begin) / 1000;
      const run = new TasksRun({ request, source, model, reporter, loadSeconds, tokenizer, phases, signal }, ui);
      try {
        return await computeWindows(begun, { windows: ahead, model, run, over, signal });
      } catch (error) {
        throw request.output === undefined ? error : withDocuments(error, run.documents);
      }
    } finally {
      over.abort();
      reporter.close();
      await model.close();
    }
  } finally {
    over.abort();
    await windows.return(undefined);
    await chat?.close();
    await threads?.close();
  }
}

async function* windowsOf(window: TaskWindow): AsyncGenerator<TaskWindow> {
  yield Promise.resolve(window);
}

/** Of a run of which no window is computed. */
const NOTHING: RunResult = { results: {}, table: '', resultsPath: undefined, samplesPath: undefined };

/** Whoever writes `--max-tokens` where texts are generated may mean their length. */
const ofTwoMeanings = (tokens = 256): UsageError =>
  new UsageError(
    '--max-tokens: these tasks generate texts, and it is the size of a micro-batch, not the length of a text',
    `the size of a micro-batch: --batch-tokens ${tokens}; the length of texts: --gen_kwargs max_gen_toks=${tokens}`,
  );

/** A later task's problem, and that the documents before it are not lost. */
function withDocuments(error: unknown, documents: number): unknown {
  if (!(error instanceof UserError) || documents === 0 || error.hint?.includes('--resume') === true) return error;
  const kept = `${counted(documents, 'document is', 'documents are')} kept: then run the same command with --resume`;
  return new UserError(error.message, error.hint === undefined ? kept : `${error.hint}; ${kept}`, { cause: error });
}

/** Whether tokens of some texts are chosen in a way for which the model has to keep logits. */
const choosesFromLogits = (leaves: readonly Leaf[], defaults: ModelDefaults): boolean =>
  leaves.some(
    ({ scores: { generation } }) => generation !== undefined && asksForLogits(withDefaults(generation, defaults)),
  );

const PROGRESS_STEP = 100;
/** Documents of a task by which the memory for its texts is estimated. */
const PEEK = 16;
/** Later prompts may be longer. */
const MARGIN = 1.25;

/**
 * What texts of later windows will need, by the first documents of each task that asks for some; those of `window`, the
 * first, are read already.
 */
async function foresee(
  request: EvaluationRequest,
  leaves: readonly Leaf[],
  window: TaskWindow,
  written: Writing,
  signal: AbortSignal,
  { tokenizer, ...limits }: { readonly tokenizer: Tokenizer } & TextWriting,
): Promise<Demand | undefined> {
  const few = { ...request, limit: Math.min(PEEK, request.limit ?? PEEK) };
  const read = new Map(window.tasks.map((task) => [task.name, task]));
  const tasks: RunTask[] = [];
  for (const leaf of leaves) {
    if (!asksForTexts([leaf])) continue;
    const task = read.get(leaf.name);
    if (task !== undefined) tasks.push({ ...task, documents: task.documents.slice(0, PEEK) });
    else for await (const window of readTasks(few, [leaf], written, signal)) tasks.push(...window.tasks);
  }
  const { prompts } = await tokenizeTexts(tasks, tokenizer, limits);
  if (prompts.length === 0) return undefined;
  const { prompt, where, longest } = demandOfTexts(prompts);
  const more = Math.ceil(prompt * (MARGIN - 1));
  // Later prompts are checked when they are known.
  return { prompt, where, least: 1, longest: Math.min(limits.maxPositions, longest + more), total: Infinity };
}
