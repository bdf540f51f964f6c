/**
 * The model of a run of tasks. It is opened for the first window of documents. Where a later one needs more memory for
 * keys and values than it has, it is opened again.
 */
import { cacheTokensOf } from '../ir/stepping.js';
import type { Phases } from '../driver/phases.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { UserError } from '../errors.js';
import type { LoadedQuestions } from '../evaluate/evaluate.js';
import { isWorthKeepingWithin } from '../evaluate/pathOrder.js';
import type { TokenizerThreads } from '../evaluate/tokenize.js';
import type { TaskWindow } from '../evaluate/windows.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { counted, inParts } from '../system/text.js';
import { type CacheAhead, compileWithCache, compileWithCacheAhead, type Demand, isCacheFor } from './cacheSize.js';
import { beginLoading, EarlyModel, type LoadedModel, type ModelLoading, stepsFirst } from './loadModel.js';
import { loadWithQuestions, settleName, warnOfTruncated } from './loadQuestions.js';
import { keepWithin, mayCutPaths, packWithCache, roomForQuestions, tellOfPacking, withContexts } from './prefixes.js';
import { openThreads, type PackedQuestions, packQuestions, prepareCalls, tokenize } from './questionSet.js';
import type { Computed } from './runReporter.js';
import type { EvaluationRequest } from './runRequest.js';
import type { PlanScorer } from './scorer.js';
import { scorerOf, scoringId } from './scoreSet.js';
import type { TaskSource } from './sources.js';
import {
  asksForTexts,
  demandOfTexts,
  guessTexts,
  promptsOfShard,
  type TextPrompts,
  type TextWriting,
  tokenizeTexts,
} from './taskTexts.js';

/** A window as tokens. */
export interface TokenizedWindow {
  readonly window: TaskWindow;
  readonly tokens: LoadedQuestions;
  /** What is to be continued; absent where nothing is. */
  readonly prompts: TextPrompts | undefined;
}

/** A window as the model takes it. */
export interface PackedWindow extends Omit<TokenizedWindow, 'tokens'> {
  readonly questions: PackedQuestions;
}

/** A window for a model that is busy yet. */
export interface WaitingWindow extends TokenizedWindow {
  /** Absent where the model has too little memory for it. */
  readonly questions: PackedQuestions | undefined;
}

export interface TaskModelOptions {
  readonly request: EvaluationRequest;
  /** How the model is opened. */
  readonly load: LoadRequest;
  readonly loading: ModelLoading;
  readonly source: TaskSource;
  /** Stands in for a context without tokens. */
  readonly prefixToken: number | undefined;
  readonly tokenizer: Tokenizer;
  /** Threads that are open already, and are closed elsewhere. */
  readonly threads: TokenizerThreads | undefined;
  /** How prompts of texts become tokens. */
  readonly writing: TextWriting;
  /** Texts that are expected in later windows. */
  readonly foreseen: () => Promise<Demand | undefined>;
}

interface OpenedTaskModel {
  readonly model: LoadedModel;
  readonly scorer: PlanScorer;
  readonly name: string;
}

/** A model that is being loaded for texts whose tokens are not counted yet. */
interface OpenedAhead {
  readonly cache: CacheAhead;
  readonly early: EarlyModel;
}

/** Phases of windows after the first, which are no part of the time until the first answer. */
const AHEAD = ' ahead';

/** What there is to generate, and room for what is only expected. */
const withForeseen = (texts: Demand | undefined, foreseen: Demand | undefined): Demand | undefined =>
  texts === undefined || foreseen === undefined
    ? (texts ?? foreseen)
    : {
        ...texts,
        longest: Math.max(texts.longest, foreseen.longest),
        total: Math.max(texts.total, foreseen.total),
      };

export class TaskModel {
  readonly #options: TaskModelOptions;
  readonly #ui: Ui;
  readonly #phases: Phases;
  #loading: ModelLoading;
  #threads: TokenizerThreads | undefined;
  #opened: OpenedTaskModel | undefined;
  /** Texts that are expected in later windows. */
  #foreseen: Demand | undefined;
  /** Settles when all windows that were begun are tokenized, and never rejects. */
  #tokenizing: Promise<unknown> = Promise.resolve();
  /** Operations of the models that were open before. */
  #earlierFlops = 0;

  constructor(options: TaskModelOptions, ui: Ui, phases: Phases) {
    this.#options = options;
    this.#loading = options.loading;
    this.#ui = ui;
    this.#phases = phases;
  }

  get #open(): OpenedTaskModel {
    if (this.#opened === undefined) throw new Error('no model is open');
    return this.#opened;
  }

  get model(): LoadedModel {
    return this.#open.model;
  }

  /** Records what the model does. */
  get scorer(): PlanScorer {
    return this.#open.scorer;
  }

  /** The model's name in results. */
  get name(): string {
    return this.#open.name;
  }

  /** What was computed so far, by devices. */
  get computed(): Pick<Computed, 'modelFlops' | 'devices'> {
    const { scorer, model } = this.#open;
    return { modelFlops: this.#earlierFlops + scorer.modelFlops, devices: scorer.timeline.use(model.devices) };
  }

  /** Opens the model for the first window, and tokenizes that meanwhile. */
  async begin(window: TaskWindow): Promise<PackedWindow> {
    const { threads } = this.#options;
    if (threads === undefined) this.#threads = openThreads(this.#loading, window.dataset.questions, !window.isLast);
    const tokens = this.#tokens(window, '');
    tokens.catch(() => undefined);
    const ahead = await this.#openAhead(window);
    try {
      return await this.#begun(window, tokens, ahead);
    } finally {
      await ahead?.early.close();
    }
  }

  async #begun(
    window: TaskWindow,
    tokens: Promise<LoadedQuestions>,
    ahead: OpenedAhead | undefined,
  ): Promise<PackedWindow> {
    const { request, source, prefixToken } = this.#options;
    const prompts = await this.#prompts(window, '');
    this.#foreseen = await this.#options.foreseen();
    const demand = withForeseen(prompts && demandOfTexts(prompts.prompts), this.#foreseen);
    const prepared = { ...source, prefixToken, dataset: window.dataset, isFirst: !window.isLast };
    if (demand === undefined) {
      await ahead?.early.close();
      const found = await loadWithQuestions(this.#loading, prepared, request, this.#ui, this.#phases, tokens);
      this.#settle(found.model, found.modelName);
      return { window, prompts, questions: found.questions };
    }
    const name = settleName(prepared, this.#loading, request, this.#ui);
    return this.#openForTexts({ window, tokens: await tokens, prompts }, demand, name, ahead);
  }

  /** A later window as tokens; behind those that are being tokenized. */
  async tokenize(window: TaskWindow): Promise<TokenizedWindow> {
    const tokens = this.#tokens(window, AHEAD);
    const prompts = await this.#prompts(window, AHEAD);
    return { window, tokens: await tokens, prompts };
  }

  /** Packs a window while the model is at work on another. */
  async prepare(tokenized: TokenizedWindow): Promise<WaitingWindow> {
    const questions = await this.#packWithin(tokenized);
    if (questions !== undefined) await prepareCalls(questions);
    return { ...tokenized, questions };
  }

  /** The window for the model. Where that has too little memory, it is opened again, and must not be at work then. */
  async take({ questions, ...tokenized }: WaitingWindow): Promise<PackedWindow> {
    const taken = questions === undefined ? await this.#reopen(tokenized) : { ...tokenized, questions };
    warnOfTruncated(taken.questions, this.model, this.#ui);
    return taken;
  }

  async close(): Promise<void> {
    await this.#threads?.close();
    await this.#opened?.model.close();
  }

  #settle(model: LoadedModel, name: string): void {
    this.#opened = { model, scorer: scorerOf(model), name };
  }

  /** The threads take one window at a time. Nobody has to await the tokens. `when`: behind the name of the phase. */
  #tokens({ dataset }: TaskWindow, when: string): Promise<LoadedQuestions> {
    const { prefixToken } = this.#options;
    const threads = this.#options.threads ?? this.#threads;
    const tokens = this.#tokenizing.then(() =>
      this.#phases.during(`tokenize${when}`, () => tokenize(dataset, this.#loading, prefixToken, threads)),
    );
    // It holds nothing of the window.
    const settle = (): void => undefined;
    this.#tokenizing = tokens.then(settle, settle);
    return tokens;
  }

  async #prompts({ tasks }: TaskWindow, when: string): Promise<TextPrompts | undefined> {
    if (!asksForTexts(tasks)) return undefined;
    const { request, tokenizer, writing } = this.#options;
    const all = await this.#phases.during(`tokenize prompts${when}`, () => tokenizeTexts(tasks, tokenizer, writing));
    const prompts = request.shard === undefined ? all : promptsOfShard(all, request.shard);
    if (prompts.truncated > 0)
      this.#ui.warn(
        `${counted(prompts.truncated, 'prompt')} too long for the model's context: the beginning is left out`,
      );
    const drawn = prompts.prompts.filter(({ generation }) => generation.drawing !== undefined).length;
    if (drawn > 0)
      this.#ui.note(`${counted(drawn, 'prompt')} with drawn texts: the same each time, and not those of PyTorch`);
    return prompts.prompts.length === 0 ? undefined : prompts;
  }

  async #pack(tokens: LoadedQuestions): Promise<PackedQuestions> {
    const { request } = this.#options;
    const packed = await inParts(packQuestions(tokens, request, this.model.limits, mayCutPaths(request)));
    // The memory is there for questions alone.
    return request.sharing === 'kv'
      ? withContexts(packed, this.model.model)
      : await keepWithin(this.model, packed, request, isWorthKeepingWithin);
  }

  /** Undefined where the model lacks memory, or for another reason, which opening it again will name. */
  async #packWithin({ tokens, prompts }: TokenizedWindow): Promise<PackedQuestions | undefined> {
    const least = prompts === undefined ? 0 : demandOfTexts(prompts.prompts).least;
    if ((cacheTokensOf(this.model.model) ?? 0) < least) return undefined;
    try {
      return await this.#pack(tokens);
    } catch (error) {
      if (error instanceof UserError) return undefined;
      throw error;
    }
  }

  async #reopen(tokenized: TokenizedWindow): Promise<PackedWindow> {
    const { request, load } = this.#options;
    const { model, scorer, name } = this.#open;
    this.#earlierFlops += scorer.modelFlops;
    this.#opened = undefined;
    await model.close();
    this.#ui.note('the next documents need more memory for keys and values: the model is opened again');
    this.#loading = beginLoading(load, this.#ui, this.#phases);
    const { window, tokens, prompts } = tokenized;
    if (prompts !== undefined) {
      const demand = withForeseen(demandOfTexts(prompts.prompts), this.#foreseen)!;
      return this.#openForTexts(tokenized, demand, name);
    }
    const packed = await packWithCache(this.#loading, request, tokens, { isFirst: !window.isLast });
    tellOfPacking(packed, this.#ui);
    this.#settle(await this.#loading.finish(), name);
    return { window, prompts, questions: packed };
  }

  /** How memory for texts is asked for. */
  get #asked(): EvaluationRequest & { readonly logits: boolean } {
    const { request, load } = this.#options;
    return { ...request, logits: load.logits ?? false };
  }

  /** Loads the model while prompts become tokens, where their texts say well enough what memory they need. */
  async #openAhead({ tasks }: TaskWindow): Promise<OpenedAhead | undefined> {
    const { request, writing } = this.#options;
    const guess = guessTexts(tasks, writing);
    // Whether a journal belongs to this run is known before anything is compiled.
    if (guess === undefined || request.resume) return undefined;
    const cache = await compileWithCacheAhead(this.#loading, this.#asked, guess);
    if (cache === undefined) return undefined;
    const early = new EarlyModel(this.#loading.finish(stepsFirst(cache.opened)));
    void scoringId(cache.opened);
    return { cache, early };
  }

  /** The model with memory for the texts to generate; prefixes of what is scored are kept in it, too. */
  async #openForTexts(
    { window, tokens, prompts }: TokenizedWindow,
    expected: Demand,
    name: string,
    ahead?: OpenedAhead,
  ): Promise<PackedWindow> {
    // Questions of the window may be kept, too, and have to be where a call holds none of them.
    const demand = { ...expected, longest: Math.max(expected.longest, roomForQuestions(tokens)) };
    const suits = ahead !== undefined && isCacheFor(ahead.cache, this.#asked, demand, this.#ui);
    if (!suits) {
      await ahead?.early.close();
      await compileWithCache(this.#loading, this.#asked, demand, this.#ui);
    }
    this.#settle((await ahead?.early.take()) ?? (await this.#loading.finish()), name);
    return { window, prompts, questions: await this.#pack(tokens) };
  }
}
