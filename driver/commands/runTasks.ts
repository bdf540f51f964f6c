/**
 * `run --tasks`: documents are read, tokenised, scored and let go in windows, each while the one before it is being
 * computed. Results come in the public harness's layout, those of a task as soon as it is finished.
 */
import type { Answers, TaskAnswers } from '../../eval/harness/answers.js';
import type { Leaf } from '../../eval/harness/windows.js';
import { needsLogits } from '../../generate/sampling.js';
import { createTokenizer } from '../../models/tokenizer.js';
import { printDocs, type RunIdentity } from '../../eval/index.js';
import { counted } from '../../system/format.js';
import { unreadModules } from '../../tasks/hooks/unread.js';
import { SEEDS } from '../../tasks/requests/seeds.js';
import { clock, Phases } from '../phases.js';
import { Interrupted, type RunResult, type TasksRequest, type Ui } from '../requests.js';
import { mayFeed } from '../targets/index.js';
import type { Demand } from './cacheSize.js';
import { beginLoading } from './loadModel.js';
import { firstAnswer } from './loadQuestions.js';
import { planRun } from './planRun.js';
import { aboutTasks, findTasks, readTasks, type AboutTasks, type Writing } from './prepareTasks.js';
import { TaskReporter } from './reportTasks.js';
import { traceRun } from './runModel.js';
import { modelIdentity, scoreSet, type ScoredSet } from './scoreSet.js';
import { VERSION } from '../version.js';
import { TaskChat } from './taskChat.js';
import { TaskModel, type PackedWindow } from './taskModel.js';
import { asksForTexts, demandOfTexts, textAnswers, tokeniseTexts } from './taskTexts.js';
import { isEmpty, TaskTotals } from './taskTotals.js';
import { generateTexts, type GeneratedTexts } from './taskWriting.js';

export async function runTasks(request: TasksRequest, ui: Ui): Promise<RunResult> {
  const started = new Date(clock());
  const begin = performance.now();
  const phases = new Phases();
  phases.begin('open');
  const found = findTasks(request);
  const generates = asksForTexts(found.leaves);
  // Whether the model gets memory for keys and values follows from the questions.
  const { cacheTokens: _, ...scoring } = request;
  const logits = found.leaves.some(drawsFromLogits);
  const load = generates ? { ...scoring, feeds: mayFeed(request), logits } : scoring;
  const loading = beginLoading(load, ui, phases);
  const about = aboutTasks(request, found, loading);
  const tokenizer = createTokenizer(loading.tokenizer.spec);
  const chat =
    request.appliesChatTemplate === true
      ? new TaskChat(loading.checkpoint.path, request.isMultiturn !== false, request.templateName)
      : undefined;
  phases.begin('prompts');
  const adds = chat?.begin !== undefined && (await tokenizer.encode('')).length > 0;
  const written: Writing = { chat, begin: adds ? chat.begin : undefined };
  const begins = (text: string): boolean => written.begin !== undefined && text.startsWith(written.begin);
  // Ends the reading of what is not needed any more.
  const over = new AbortController();
  const signal = request.signal === undefined ? over.signal : AbortSignal.any([over.signal, request.signal]);
  let isRunning = false;
  ui.phase('prompts', counted(found.leaves.length, 'task'));
  for (const line of unreadModules(found.leaves.map(({ settings }) => settings))) ui.note(line);
  const windows = readTasks(request, found.leaves, written, signal, (documents) => {
    if (!isRunning && documents % PROGRESS_STEP === 0) ui.step(0, counted(documents, 'document'));
  });
  try {
    if (request.isDryRun === true && generates) ui.note('texts that tasks generate are not counted');
    if (request.isDryRun === true) return await planRun(request, about, windows, loading, ui);
    const first = await windows.next();
    if (first.done === true) throw new Error('no window of documents');
    const { maxPositions } = loading.checkpoint.config;
    const writing = { maxPositions, begins, seed: (request.seeds ?? SEEDS).torch };
    const foreseen =
      generates && !first.value.isLast
        ? await foresee(request, about, written, signal, { tokenizer, ...writing })
        : undefined;
    const model = new TaskModel({ request, load, loading, about, tokenizer, writing, foreseen }, ui, phases);
    const reporter = new TaskReporter({ request, nodes: found.nodes, started, template: chat?.source });
    try {
      let window = await model.begin(first.value);
      isRunning = true;
      const loadSeconds = (performance.now() - begin) / 1000;
      const run = new TasksRun({ request, about, model, reporter, loadSeconds, tokenizer, phases }, ui);
      for (;;) {
        const next = window.window.isLast ? undefined : windows.next().then(({ value }) => model.prepare(value!));
        // It is awaited below; this window is finished first.
        next?.catch(() => undefined);
        const result = await run.compute(window);
        if (next === undefined) return result;
        window = await model.take(await next);
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
  }
}

/** Whether texts are drawn in a way for which the model has to keep logits. */
const drawsFromLogits = ({ scores }: Leaf): boolean =>
  scores.generation?.drawing !== undefined && needsLogits(scores.generation.drawing);

const PROGRESS_STEP = 100;
/** Documents of a task by which the memory for its texts is estimated. */
const PEEK = 16;
/** Later prompts may be longer. */
const MARGIN = 1.25;

/** What texts of later windows will need, by the first documents of each task that asks for some. */
async function foresee(
  request: TasksRequest,
  { leaves }: AboutTasks,
  written: Writing,
  signal: AbortSignal,
  {
    tokenizer,
    ...limits
  }: { readonly tokenizer: ReturnType<typeof createTokenizer> } & Parameters<typeof tokeniseTexts>[2],
): Promise<Demand | undefined> {
  const asking = leaves.filter((leaf) => asksForTexts([leaf]));
  const few = { ...request, limit: Math.min(PEEK, request.limit ?? PEEK) };
  const tasks = [];
  for (const leaf of asking)
    for await (const window of readTasks(few, [leaf], written, signal)) tasks.push(...window.tasks);
  const { prompts } = await tokeniseTexts(tasks, tokenizer, limits);
  if (prompts.length === 0) return undefined;
  const { prompt, where } = demandOfTexts(prompts);
  return { prompt: Math.min(limits.maxPositions - 1, Math.ceil(prompt * MARGIN)), where, total: Infinity };
}

interface Running {
  readonly request: TasksRequest;
  readonly about: AboutTasks;
  readonly model: TaskModel;
  readonly reporter: TaskReporter;
  readonly loadSeconds: number;
  readonly tokenizer: ReturnType<typeof createTokenizer>;
  readonly phases: Phases;
}

/** Computes windows one after another. */
class TasksRun {
  readonly #of: Running;
  readonly #ui: Ui;
  readonly #totals: TaskTotals;
  readonly #onFirst: () => void;

  constructor(of: Running, ui: Ui) {
    this.#of = of;
    this.#ui = ui;
    this.#totals = new TaskTotals(of.request.overlong);
    this.#onFirst = firstAnswer(of.phases, of.model.model, ui);
  }

  /** Scores and writes; the results of all tasks that are finished by then. */
  async compute(window: PackedWindow): Promise<RunResult> {
    const { model, reporter, loadSeconds } = this.#of;
    const scored = isEmpty(window.window) ? undefined : await this.#score(window);
    const texts = window.prompts === undefined ? undefined : await this.#generate(window);
    this.#totals.add(window, scored, texts);
    const answers: Answers = {
      scores: new Map(scored?.scores.map((each) => [each.docId, each])),
      texts: textAnswers(window.window.tasks, texts?.texts ?? new Map<number, readonly (readonly string[])[]>()),
    };
    if (window.window.isLast) this.#ui.phase('metrics');
    const finished = await reporter.add(window.window, answers, model.name);
    if (!window.window.isLast) for (const each of finished) this.#ui.note(shown(each));
    for (const { task, missing } of finished)
      if (missing > 0)
        this.#ui.warn(
          `${task.name}: right answers of ${counted(missing, 'document')} are no choices, and count as wrong`,
        );
    const totals = this.#totals;
    const result = reporter.write({
      ...{ model: model.model, modelName: model.name, loadSeconds, about: totals.about },
      ...{ computed: totals.computed(model.computed), generated: totals.generated },
      identity: await this.#identity(),
    });
    if (window.window.isLast && scored !== undefined) await this.#trace(window, scored);
    return result;
  }

  async #identity(): Promise<RunIdentity> {
    const { request, about, model } = this.#of;
    const { sha256, docs } = this.#totals.about;
    return {
      ...(await modelIdentity(model.model)),
      ...{ task: about.task.name, taskVersion: about.task.version, dataset: sha256, docs: printDocs(docs) },
      ...{ sharing: request.sharing, overlong: request.overlong ?? 'truncate', version: VERSION },
      seeds: JSON.stringify(request.seeds ?? SEEDS),
    };
  }

  async #score({ window, questions }: PackedWindow): Promise<ScoredSet> {
    const { request, about, model } = this.#of;
    const { output, resume, resumeCommand, signal } = request;
    const before = this.#totals.documents;
    this.#ui.phase(
      'score',
      `${counted(window.documents, 'document')}${window.isLast && before === 0 ? '' : ` from ${before} on`}, ` +
        `sharing ${request.sharing}`,
    );
    const scored = await scoreSet(
      model.model,
      questions,
      {
        ...{ task: about.task, modelName: model.name, output, resume, resumeCommand, signal },
        scorer: model.scorer,
        onProgress: this.#onFirst,
      },
      this.#ui,
    );
    if (scored.isInterrupted) {
      await this.#trace({ window, questions, prompts: undefined }, scored);
      throw new Interrupted(before + scored.scores.length);
    }
    return scored;
  }

  async #generate({ window, prompts }: PackedWindow): Promise<GeneratedTexts> {
    const { request, about, model, tokenizer } = this.#of;
    return generateTexts(
      {
        ...{ model: model.model, modelName: model.name, tokenizer, request },
        ...{ prompts: prompts!, task: about.task, sha256: window.dataset.sha256 },
      },
      this.#ui,
    );
  }

  async #trace({ questions }: PackedWindow, scored: ScoredSet): Promise<void> {
    const { request, model } = this.#of;
    if (request.trace !== undefined) await traceRun(request.trace, model.model, questions, scored);
  }
}

/** `mmlu_anatomy: acc 0.4296 ± 0.0428, …; 135 documents`. */
function shown({ task, documents, figures }: TaskAnswers): string {
  const all = [...figures].map(([key, { value, error }]) => {
    const [metric = '', filter = 'none'] = key.split(',');
    const of = filter === 'none' ? metric : `${metric} (${filter})`;
    return `${of} ${value.toFixed(4)}${error === null ? '' : ` ± ${error.toFixed(4)}`}`;
  });
  return `${task.name}: ${all.join(', ')}; ${counted(documents, 'document')}`;
}
