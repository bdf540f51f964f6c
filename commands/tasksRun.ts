/** Windows of a run of tasks: scored, generated, measured and written. */
import type { Phases } from '../driver/phases.js';
import { VERSION } from '../driver/program.js';
import type { RunProgress, Ui } from '../driver/requests.js';
import { FirstAnswer } from '../driver/startUp.js';
import type { RunIdentity } from '../evaluate/journal.js';
import type { ModelDrafts } from '../engine/speculation.js';
import { printDocs } from '../evaluate/selection.js';
import { shardName } from '../evaluate/shardName.js';
import { type Turn, Turns } from '../evaluate/turns.js';
import type { Answers, TaskAnswers } from '../evaluate/taskAnswers.js';
import type { TaskWindow } from '../evaluate/windows.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { defined } from '../system/defined.js';
import { counted } from '../system/text.js';
import { SEEDS } from '../tasks/requests/seeds.js';
import { modelDrafts } from './drafts.js';
import { tokenSource } from './questionSet.js';
import type { RunReporter, RunState } from './runReporter.js';
import { type EvaluationRequest, Interrupted, type RunResult } from './runRequest.js';
import { modelIdentity, type ScoredSet, scoreSet } from './scoreSet.js';
import type { TaskSource } from './sources.js';
import type { PackedWindow, TaskModel, TokenizedWindow } from './taskModel.js';
import { asksForTexts, type GeneratedTexts, generateTexts, textAnswers } from './taskTexts.js';
import { isEmpty, TaskTotals } from './taskTotals.js';
import { type TextFacts, textFactsOf, textsIdentity } from './textFacts.js';
import { traceRun } from './trace.js';

interface Running {
  readonly request: EvaluationRequest;
  readonly source: TaskSource;
  readonly model: TaskModel;
  readonly reporter: Pick<RunReporter, 'add'> & { write(state: RunState): RunResult };
  readonly loadSeconds: number;
  readonly tokenizer: Tokenizer;
  readonly phases: Phases;
  /** Stops after the calls that are being computed. */
  readonly signal: AbortSignal;
}

/** A window whose answers are there, and the run as it stood then. */
export interface ComputedWindow {
  readonly packed: PackedWindow;
  readonly scored: ScoredSet | undefined;
  readonly texts: GeneratedTexts | undefined;
  readonly state: RunState;
}

/** Computes windows one behind another. */
export class TasksRun {
  readonly #of: Running;
  readonly #ui: Ui;
  readonly #totals: TaskTotals;
  readonly #first: FirstAnswer;
  readonly #turns = new Turns();
  /** What a drafter learns of texts serves all windows. */
  readonly #drafts: ModelDrafts | undefined;
  #hasScored = false;

  constructor(of: Running, ui: Ui) {
    this.#of = of;
    this.#ui = ui;
    this.#totals = new TaskTotals(of.request.overlong);
    this.#first = new FirstAnswer(of.phases, ui);
    this.#drafts = modelDrafts(of.request);
  }

  /** Documents of windows that are measured. */
  get documents(): number {
    return this.#totals.documents;
  }

  /**
   * Scores a window and generates its texts. `former`: the window before, which may still be computed: its calls come
   * before those of this one, and it must have no texts.
   */
  async compute(packed: PackedWindow, former: Promise<unknown> = Promise.resolve()): Promise<ComputedWindow> {
    const { source, model, loadSeconds } = this.#of;
    const turn = this.#turns.next();
    let scored: ScoredSet | undefined;
    try {
      if (!isEmpty(packed.window)) scored = await this.#score(packed, turn, former);
    } finally {
      turn.close();
    }
    await former;
    const texts = packed.prompts === undefined ? undefined : await this.#generate(packed);
    const written = asksForTexts(source.leaves) ? textFactsOf(model.model) : undefined;
    const totals = this.#totals;
    totals.add(packed, scored, texts);
    return {
      packed,
      scored,
      texts,
      state: {
        model: model.model,
        modelName: model.name,
        loadSeconds,
        about: totals.about,
        start: this.#first.start,
        computed: totals.computed(model.computed),
        generated: totals.generated,
        ...defined({ written }),
        identity:
          scored !== undefined && source.file !== undefined ? (scored.identity ?? {}) : await this.#identity(written),
      },
    };
  }

  /** Measures and writes, while the next window is computed; the results of all tasks that are finished by then. */
  async report({ packed, scored, texts, state }: ComputedWindow): Promise<RunResult> {
    const { reporter, request, source } = this.#of;
    const { window } = packed;
    const answers: Answers = {
      scores: new Map(scored?.scores.map((each) => [each.docId, each])),
      tokens:
        request.logsTokens === true && scored !== undefined
          ? tokenSource(this.#of.tokenizer, packed.questions.loaded)
          : undefined,
      texts: textAnswers(window.tasks, texts?.texts ?? new Map<number, readonly (readonly string[])[]>()),
    };
    if (window.isLast && source.file === undefined) this.#ui.phase('metrics');
    const finished = await reporter.add(window, answers, state.modelName);
    if (!window.isLast) for (const each of finished) this.#ui.note(shown(each));
    for (const { task, missing, problems } of finished) {
      if (missing > 0)
        this.#ui.warn(
          `${task.name}: ${counted(missing, 'document')} with a right answer that is none of the choices: ` +
            'counted as wrong',
        );
      for (const [key, problem] of problems) this.#ui.warn(`${task.name}: no ${key}: ${problem}`);
    }
    const result = reporter.write(state);
    if (window.isLast) await this.#trace(scored === undefined ? undefined : packed.questions);
    return result;
  }

  async #identity(texts: TextFacts | undefined): Promise<RunIdentity> {
    const { request, source, model } = this.#of;
    const { sha256, docs } = this.#totals.about;
    return {
      ...(await modelIdentity(model.model)),
      ...(texts === undefined ? {} : textsIdentity(texts)),
      task: source.task.name,
      taskVersion: source.task.version,
      dataset: sha256,
      docs: printDocs(docs),
      sharing: request.sharing,
      overlong: request.overlong ?? 'truncate',
      version: VERSION,
      seeds: JSON.stringify(request.seeds ?? SEEDS),
    };
  }

  async #score({ window, questions }: PackedWindow, turn: Turn, former: Promise<unknown>): Promise<ScoredSet> {
    const { request, source, model, signal } = this.#of;
    const { output, resume, resumeCommand } = request;
    const { ui, show } = this.#later();
    const isLater = this.#hasScored;
    this.#hasScored = true;
    former.then(
      () => {
        if (signal.aborted) return;
        const before = this.#totals.documents;
        const { layout, file } = source;
        const part = file !== undefined && request.shard !== undefined ? `shard ${shardName(request.shard)} of ` : '';
        const from = window.isLast && before === 0 ? '' : ` from ${before} on`;
        this.#ui.phase('score', `${part}${counted(window.documents, layout.noun)}${from}, sharing ${request.sharing}`);
        show();
      },
      // It is reported where the former window is awaited.
      () => undefined,
    );
    const scored = await scoreSet(
      model.model,
      questions,
      {
        task: source.task,
        modelName: model.name,
        output,
        resume,
        resumeCommand,
        signal,
        turn,
        isLater,
        scorer: model.scorer,
        keepsTokens: request.logsTokens,
      },
      ui,
    );
    if (scored.isInterrupted) {
      await former;
      await this.#trace(undefined);
      throw new Interrupted(this.#totals.documents + scored.scores.length);
    }
    return scored;
  }

  /** Keeps progress back until it is shown. */
  #later(): { readonly ui: Ui; readonly show: () => void } {
    const ui = this.#ui;
    let held: RunProgress | undefined;
    let isShown = false;
    const run = (progress: RunProgress): void => {
      if (!isShown) {
        held = progress;
        return;
      }
      this.#first.onProgress(this.#of.model.model.executor);
      ui.run(progress);
    };
    const show = (): void => {
      isShown = true;
      if (held !== undefined) run(held);
    };
    return {
      ui: {
        phase: (...of) => ui.phase(...of),
        step: (...of) => ui.step(...of),
        table: (lines) => ui.table(lines),
        note: (line) => ui.note(line),
        detail: (line) => ui.detail(line),
        warn: (line) => ui.warn(line),
        run,
      },
      show,
    };
  }

  async #generate({ window, prompts }: PackedWindow): Promise<GeneratedTexts> {
    const { request, source, model, tokenizer } = this.#of;
    return generateTexts(
      {
        model: model.model,
        modelName: model.name,
        tokenizer,
        request,
        prompts: prompts!,
        task: source.task,
        sha256: window.dataset.sha256,
        first: this.#first,
        drafts: this.#drafts,
      },
      this.#ui,
    );
  }

  /** `questions`: some of them are computed once more, launch by launch. */
  async #trace(questions: PackedWindow['questions'] | undefined): Promise<void> {
    const { request, model, phases } = this.#of;
    if (request.trace === undefined) return;
    const { scorer, name: modelName } = model;
    await traceRun(request.trace, {
      model: model.model,
      modelPath: request.model,
      modelName,
      threads: request.threads,
      phases,
      start: this.#first.start,
      scorer,
      questions,
    });
  }
}

/** `mmlu_anatomy: acc 0.4296 ± 0.0428, …; 135 documents`. */
function shown({ task, answered, figures }: TaskAnswers): string {
  const all = [...figures].map(([key, { value, error }]) => {
    const [metric = '', filter = 'none'] = key.split(',');
    const of = filter === 'none' ? metric : `${metric} (${filter})`;
    return `${of} ${value.toFixed(4)}${error === null ? '' : ` ± ${error.toFixed(4)}`}`;
  });
  return `${task.name}: ${all.join(', ')}; ${counted(answered, 'document')}`;
}

/**
 * Windows of documents one behind another: while one is computed, the next is taken (read and tokenized, if it is not
 * yet), ordered and packed, and its calls follow those of the former without a gap. Answers are measured and written
 * while later windows are computed.
 */

export interface WindowTurns {
  /** Those after the first. */
  readonly windows: Pick<WindowsAhead<TokenizedWindow>, 'take'>;
  readonly model: Pick<TaskModel, 'prepare' | 'take'>;
  readonly run: Pick<TasksRun, 'compute' | 'report'>;
  /** Ends the reading and the calls; aborted by computeWindows when it ends. */
  readonly over: AbortController;
  /** That of `over`, and of the user. */
  readonly signal: AbortSignal;
}

/** A window whose calls are made, or will be as soon as those of the one before are. */
interface RunningWindow {
  readonly window: PackedWindow;
  readonly computed: Promise<ComputedWindow>;
  /** Settles with it, holds nothing of it, and never rejects. */
  readonly done: Promise<void>;
}

/** The result of all windows. No call is in flight when it settles. */
export async function computeWindows(
  first: PackedWindow,
  { windows, model, run, over, signal }: WindowTurns,
): Promise<RunResult> {
  /** At most two. */
  const running = new Set<Promise<ComputedWindow>>();
  const start = (window: PackedWindow, former?: Promise<void>): RunningWindow => {
    const computed = run.compute(window, former);
    running.add(computed);
    const done = computed.then(
      () => void running.delete(computed),
      // It is thrown where the window is awaited.
      () => undefined,
    );
    return { window, computed, done };
  };
  const follow = async ({ window, computed, done }: RunningWindow): Promise<RunningWindow> => {
    const waiting = await model.prepare(await windows.take());
    // A model that is opened again, or that generates texts, is at work for one window alone.
    if (waiting.questions === undefined || window.prompts !== undefined) await computed;
    if (signal.aborted) throw new Interrupted(0);
    return start(await model.take(waiting), done);
  };
  let reported: Promise<RunResult> | undefined;
  try {
    for (let current = start(first); ;) {
      const next = current.window.window.isLast ? undefined : follow(current);
      // It is awaited below; this window is finished first.
      next?.catch(() => undefined);
      const computed = await current.computed;
      await reported;
      reported = run.report(computed);
      if (next === undefined) return await reported;
      // It is awaited above, once the next window is computed, or below.
      reported.catch(() => undefined);
      current = await next;
    }
  } finally {
    over.abort();
    await reported?.catch(() => undefined);
    await Promise.allSettled(running);
  }
}

/**
 * Windows of documents, read and tokenized ahead while they are small: for a GPU from the second on while the model is
 * loaded for the first. Each is twice the one before, so a fast device would otherwise finish a window before the next
 * is ready.
 */

/**
 * What the windows that are ahead and the two that were taken last may hold, as a share of the largest, where one more
 * is begun: with it they then hold no more than two of the largest.
 */
const ROOM = 1;

export class WindowsAhead<T extends { readonly window: TaskWindow }> {
  readonly #windows: AsyncIterator<TaskWindow>;
  readonly #tokenize: (window: TaskWindow) => Promise<T>;
  /** In order: those that are tokenized, or will be. */
  readonly #ahead: { readonly window: TaskWindow; readonly tokenized: Promise<T> }[] = [];
  /** Fullness of the two windows that were taken last. */
  #taken: readonly number[];
  /** The window that was read last. */
  #last: TaskWindow;
  /** Settles when the window that is being read is ahead. Where that fails, it rejects and nothing more is read. */
  #reading: Promise<void> | undefined;

  /** Begins with the second window. `windows`: those after the first. What fails is thrown where it is taken. */
  constructor(first: TaskWindow, windows: AsyncIterator<TaskWindow>, tokenize: (window: TaskWindow) => Promise<T>) {
    this.#windows = windows;
    this.#tokenize = tokenize;
    this.#last = first;
    this.#taken = [first.fullness];
    this.#fill();
  }

  /** The next window; it must not be asked for behind the last one. */
  async take(): Promise<T> {
    if (this.#ahead.length === 0) await (this.#reading ?? this.#read());
    const { window, tokenized } = this.#ahead.shift()!;
    const next = await tokenized;
    this.#taken = [this.#taken.at(-1)!, window.fullness];
    this.#fill();
    return next;
  }

  /** Begins to read where there is room. */
  #fill(): void {
    const held = [...this.#taken, ...this.#ahead.map(({ window }) => window.fullness)];
    const isFull = held.reduce((sum, each) => sum + each, 0) > ROOM;
    if (this.#reading === undefined && !this.#last.isLast && !isFull) void this.#read();
  }

  #read(): Promise<void> {
    const read = async (): Promise<void> => {
      const { done, value } = await this.#windows.next();
      if (done === true) throw new Error('no window is left');
      const tokenized = this.#tokenize(value);
      tokenized.catch(() => undefined);
      this.#last = value;
      this.#ahead.push({ window: value, tokenized });
      this.#reading = undefined;
      this.#fill();
    };
    this.#reading = read();
    this.#reading.catch(() => undefined);
    return this.#reading;
  }
}
