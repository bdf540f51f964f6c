/**
 * Guides of texts that are asked to be something, in the engine's thread. Another thread follows grammars. One that
 * takes too long, or ends, is replaced: what takes too long, or ends two threads, fails, and other texts go on.
 */
import { Worker } from 'node:worker_threads';
import type { AheadMasks, GuidedDrafts, GuideState, TokenGuide, TokenMask } from '../../engine/guide.js';
import type { GrammarSource } from '../../grammar/source.js';
import { ApiError, badRequest } from '../apiError.js';
import type {
  FromGrammars,
  GrammarBegin,
  GrammarLook,
  GrammarModel,
  GrammarProblem,
  GrammarThreadData,
  ToGrammars,
} from './grammarMessages.js';
import type { Guides } from './host.js';

/** Most that grammars may have of the heap, in MiB. */
const HEAP_MIB = 2048;
/** Milliseconds that a thing may take, all of which are bounded by their steps; and that opening models may. */
const STALL_MS = 5000;
const OPENING_MS = 120_000;
const WATCH_MS = 500;
/** Threads in a row that end before they have done anything. */
const MAX_ENDS = 3;

export interface GuidesOptions {
  /** Starts a thread. Default: serve/link/grammarThread. */
  readonly start?: (data: GrammarThreadData) => GrammarPort;
  readonly stallMs?: number;
}

/** What is used of a Worker. */
export interface GrammarPort {
  postMessage(message: ToGrammars): void;
  on(event: 'message', listener: (message: FromGrammars) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'exit', listener: () => void): unknown;
  removeAllListeners(): unknown;
  terminate(): Promise<unknown>;
  unref?(): void;
}

const startThread = (workerData: GrammarThreadData): GrammarPort =>
  new Worker(new URL('./grammarThread.js', import.meta.url), {
    workerData,
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
  }) as GrammarPort;

interface Waiting<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
}

interface Question extends Waiting<void>, Suspect {
  readonly model: string;
  readonly source: GrammarSource;
}

/** What a thread was doing when it ended is asked of the next one once. */
interface Suspect {
  ends: number;
}

/** A text that is followed. */
interface Followed extends Suspect {
  readonly number: number;
  readonly model: string;
  readonly source: GrammarSource;
  readonly tokens: number[];
  /** Whether the thread knows it. */
  hasBegun: boolean;
  waiting: Waiting<TokenMask> | undefined;
  /** A question about drafts on its way. */
  looking: { readonly question: number; readonly resolve: (masks: AheadMasks) => void } | undefined;
  /** Drafts are not looked at any more: a thread ended, or took too long, over some. */
  isBlind: boolean;
  /** Why it is followed no more. */
  failure: ApiError | undefined;
}

interface Outgoing {
  readonly check: { readonly question: number; readonly model: string; readonly source: GrammarSource }[];
  readonly begin: GrammarBegin[];
  readonly take: { readonly state: number; readonly tokens: Int32Array }[];
  readonly look: GrammarLook[];
  readonly close: number[];
}

const nothing = (): Outgoing => ({ check: [], begin: [], take: [], look: [], close: [] });
const NO_MASKS: AheadMasks = [];

export class GrammarGuides implements Guides {
  private readonly models: readonly GrammarModel[];
  private readonly options: GuidesOptions;
  private port: GrammarPort | undefined;
  private progress: GrammarThreadData['progress'] = new Int32Array(2);
  private readonly questions = new Map<number, Question>();
  private readonly states = new Map<number, Followed>();
  private readonly masks = new Map<number, TokenMask>();
  private outgoing = nothing();
  private isSending = false;
  private count = 0;
  private watch: NodeJS.Timeout | undefined;
  /** What the thread has been seen to do, and since when. */
  private seen = { done: -1, since: 0 };
  private ends = 0;
  private isClosed = false;

  constructor(models: readonly GrammarModel[], options: GuidesOptions = {}) {
    this.models = models;
    this.options = options;
  }

  /** Opens the vocabularies of the models, which may take a second, before anybody asks. */
  open(): void {
    if (!this.isClosed) this.port ??= this.start();
  }

  /** Texts that are followed. */
  get size(): number {
    return this.states.size;
  }

  check(model: string, source: GrammarSource): Promise<void> {
    if (this.isClosed) return Promise.reject(ended());
    return new Promise((resolve, reject) => {
      const question = ++this.count;
      this.questions.set(question, { resolve, reject, model, source, ends: 0 });
      this.outgoing.check.push({ question, model, source });
      this.send();
    });
  }

  guideOf(model: string, source: GrammarSource): TokenGuide {
    return { begin: () => this.begin(model, source) };
  }

  async close(): Promise<void> {
    this.isClosed = true;
    clearTimeout(this.watch);
    this.port?.removeAllListeners();
    for (const { reject } of this.questions.values()) reject(ended());
    for (const state of this.states.values()) {
      state.waiting?.reject(ended());
      see(state);
    }
    this.questions.clear();
    this.states.clear();
    await this.port?.terminate();
  }

  private begin(model: string, source: GrammarSource): GuideState {
    const number = ++this.count;
    const state: Followed = {
      number,
      model,
      source,
      tokens: [],
      hasBegun: false,
      waiting: undefined,
      looking: undefined,
      isBlind: false,
      failure: undefined,
      ends: 0,
    };
    this.states.set(number, state);
    return {
      next: (...tokens) => {
        this.take(state, tokens);
        if (state.hasBegun) this.outgoing.take.push({ state: number, tokens: Int32Array.from(tokens) });
        else this.outgoing.begin.push(beginOf(state));
        state.hasBegun = true;
        return new Promise((resolve, reject) => {
          state.waiting = { resolve, reject };
          this.send();
        });
      },
      ahead: (taken, drafts) => {
        this.take(state, taken);
        // A new thread is told all when it is asked for the next mask.
        if (!state.hasBegun || state.isBlind) return NO_MASKS;
        return this.askAhead(state, taken, drafts);
      },
      close: () => {
        see(state);
        if (!this.states.delete(number) || !state.hasBegun) return;
        this.outgoing.close.push(number);
        this.send();
      },
    };
  }

  /** Throws where the text is followed no more. */
  private take(state: Followed, tokens: readonly number[]): void {
    if (this.isClosed) throw ended();
    if (state.failure !== undefined) throw state.failure;
    state.tokens.push(...tokens);
  }

  /** The masks behind drafts, in one question. */
  private askAhead(state: Followed, taken: readonly number[], { tokens, parents }: GuidedDrafts): Promise<AheadMasks> {
    const question = ++this.count;
    see(state);
    this.outgoing.look.push({
      ...{ question, state: state.number, taken: Int32Array.from(taken) },
      ...{ tokens: Int32Array.from(tokens), parents: Int32Array.from(parents) },
    });
    return new Promise((resolve) => {
      state.looking = { question, resolve };
      this.send();
    });
  }

  /** Once what runs now has said all that it has to say. */
  private send(): void {
    if (this.isSending) return;
    this.isSending = true;
    queueMicrotask(() => {
      this.isSending = false;
      if (!this.isClosed) this.post();
    });
  }

  private post(): void {
    this.open();
    const { close, ...others } = this.outgoing;
    this.outgoing = nothing();
    this.port!.postMessage({ ...others, close: Int32Array.from(close) });
    this.guard();
  }

  private start(): GrammarPort {
    this.progress = new Int32Array(new SharedArrayBuffer(8));
    this.masks.clear();
    this.seen = { done: -1, since: performance.now() };
    const port = (this.options.start ?? startThread)({ models: this.models, progress: this.progress });
    port.on('message', (message) => this.hear(message));
    port.on('error', (error) => this.replace(error.message));
    port.on('exit', () => this.replace('its thread ended'));
    // Whoever serves keeps the process alive.
    port.unref?.();
    return port;
  }

  private hear({ checked, failed, dropped, fresh, masks, looked }: FromGrammars): void {
    this.ends = 0;
    for (const { mask, words } of fresh) this.masks.set(mask, words);
    for (const question of checked) this.questionOf(question)?.resolve();
    for (const [number, problem] of failed) this.fail(number, problem);
    for (let i = 0; i < masks.length; i += 2) {
      const state = this.states.get(masks[i]!);
      const { waiting } = state ?? {};
      if (state === undefined || waiting === undefined) continue;
      state.waiting = undefined;
      waiting.resolve(this.masks.get(masks[i + 1]!)!);
    }
    for (const { question, state: number, masks: behind } of looked) {
      const state = this.states.get(number);
      if (state?.looking?.question === question)
        see(
          state,
          Array.from(behind, (mask) => this.masks.get(mask)),
        );
    }
    for (const mask of dropped) this.masks.delete(mask);
    this.guard();
  }

  private questionOf(number: number): Question | undefined {
    const question = this.questions.get(number);
    this.questions.delete(number);
    return question;
  }

  private fail(number: number, problem: GrammarProblem): void {
    this.questionOf(number)?.reject(apiErrorOf(problem));
    const state = this.states.get(number);
    if (state === undefined) return;
    this.states.delete(number);
    state.failure = apiErrorOf(problem);
    see(state);
    state.waiting?.reject(state.failure);
  }

  private get isAsked(): boolean {
    if (this.questions.size > 0) return true;
    for (const { waiting, looking } of this.states.values())
      if (waiting !== undefined || looking !== undefined) return true;
    return false;
  }

  /** Looks after the thread while anything is asked of it. */
  private guard(): void {
    if (this.watch !== undefined || this.isClosed || !this.isAsked) return;
    this.watch = setTimeout(() => {
      this.watch = undefined;
      this.look();
      this.guard();
    }, WATCH_MS);
    this.watch.unref();
  }

  private look(): void {
    const [doing, done] = [Atomics.load(this.progress, 0), Atomics.load(this.progress, 1)];
    const now = performance.now();
    if (done !== this.seen.done || doing === 0) this.seen = { done, since: now };
    const { stallMs = STALL_MS } = this.options;
    if (now - this.seen.since > (doing < 0 ? Math.max(OPENING_MS, stallMs) : stallMs))
      this.replace('what is asked of the text takes too long to follow', true);
  }

  /**
   * The thread has ended, or is of no more use: another is asked. What takes too long, or ends two threads, fails; over
   * drafts, its text takes none any more.
   */
  private replace(reason: string, isStalled = false): void {
    const { port } = this;
    if (port === undefined || this.isClosed) return;
    this.port = undefined;
    port.removeAllListeners();
    port.on('error', () => undefined);
    void port.terminate();
    const doing = Atomics.load(this.progress, 0);
    const suspect = this.questions.get(doing) ?? this.states.get(doing);
    const looking = [...this.states.values()].find((state) => state.looking?.question === doing);
    if (looking !== undefined) looking.isBlind = true;
    else if (suspect !== undefined) {
      if (isStalled || ++suspect.ends > 1) this.fail(doing, { message: reason });
    } else if (++this.ends >= MAX_ENDS) {
      this.ends = 0;
      const problem = { message: 'the thread that follows grammars cannot be started', isFault: true } as const;
      for (const number of [...this.questions.keys(), ...this.states.keys()]) this.fail(number, problem);
    }
    this.outgoing = nothing();
    for (const [question, { model, source }] of this.questions) this.outgoing.check.push({ question, model, source });
    for (const state of this.states.values()) {
      see(state);
      // Others begin again when they are asked.
      state.hasBegun = state.waiting !== undefined;
      if (state.hasBegun) this.outgoing.begin.push(beginOf(state));
    }
    if (this.isAsked) this.send();
  }
}

/** What is known of a text's drafts now. */
function see(state: Followed, masks = NO_MASKS): void {
  const { looking } = state;
  state.looking = undefined;
  looking?.resolve(masks);
}

const beginOf = ({ number, model, source, tokens }: Followed): GrammarBegin => ({
  state: number,
  ...{ model, source },
  tokens: Int32Array.from(tokens),
});

function apiErrorOf({ message, isBusy, isFault }: GrammarProblem): ApiError {
  if (isBusy === true) return new ApiError(503, sentence(message), { code: 'grammars_busy', retryAfter: 5 });
  if (isFault === true) return new ApiError(500, sentence(message));
  return badRequest(sentence(message));
}

const sentence = (message: string): string => `${message[0]?.toUpperCase() ?? ''}${message.slice(1)}.`;

const ended = (): ApiError => new ApiError(503, 'The engine has ended.');
