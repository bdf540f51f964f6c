/** Models behind a port: what endpoints ask goes to the engine's thread, and its events come back. */
import type { EngineProgress } from '../../engine/engine.js';
import type { ModelStats } from '../../engine/modelStats.js';
import type { Generated, GeneratedToken, RequestEvent } from '../../engine/request.js';
import type { GrammarSource } from '../../grammar/source.js';
import { AdapterNames, type AdapterOptions, type AdapterSource } from '../adapters/names.js';
import { ApiError } from '../apiError.js';
import type { ModelClient, RequestListener, RunningRequest, ServedModel, ServedRequest } from '../models.js';
import { readTape, type TapeEvent } from './eventTape.js';
import { receivedError } from './failures.js';
import type { LinkPort } from './host.js';
import { buffersOf, type FromEngine, sentRequest, type ToEngine } from './protocol.js';

/** What may wait for the engine, in all. More is refused with 429. */
export interface QueueLimits {
  /** Each continuation of a prompt counts. */
  readonly requests: number;
  /** Of their prompts. */
  readonly tokens: number;
}

interface Sample {
  readonly tokens: GeneratedToken[];
  /** The tokens that its reader keeps, once a stop string was found. */
  cut: number | undefined;
  isOver: boolean;
}

interface Running {
  readonly listener: RequestListener;
  readonly samples: readonly Sample[];
  readonly promptTokens: number;
  left: number;
  hasBegun: boolean;
}

interface Question {
  readonly resolve: (answer: FromEngine) => void;
  readonly reject: (error: Error) => void;
}

export class LinkedClient implements ModelClient {
  readonly adapters: AdapterNames | undefined;
  private readonly own: readonly ServedModel[];
  /** Requests that have had no event, and the tokens of their prompts. */
  readonly waiting = { requests: 0, tokens: 0 };
  private readonly port: LinkPort;
  private readonly limits: QueueLimits;
  /** Is told of errors of readers. */
  private readonly onError: (error: unknown) => void;
  private readonly running = new Map<number, Running>();
  private readonly questions = new Map<number, Question>();
  private count = 0;
  /** By request, of this turn of the loop. */
  private acknowledged = new Map<number, number>();
  private isLost = false;
  private readonly onMessage = (message: FromEngine): void => this.take(message);

  constructor(
    models: readonly ServedModel[],
    port: LinkPort,
    limits: QueueLimits = { requests: 4096, tokens: 1 << 23 },
    onError: (error: unknown) => void = () => undefined,
    adapters?: AdapterOptions,
  ) {
    this.own = models;
    const [base] = models;
    const names = models.flatMap((model) => model.names);
    this.adapters = adapters && base && new AdapterNames(base, names, this.source, adapters);
    this.port = port;
    this.limits = limits;
    this.onError = onError;
    port.on('message', this.onMessage);
  }

  get models(): readonly ServedModel[] {
    return this.adapters === undefined ? this.own : [...this.own, ...this.adapters.models];
  }

  /** Requests that have not ended. */
  get active(): number {
    return this.running.size;
  }

  submit(request: ServedRequest, listener: RequestListener): RunningRequest {
    const number = ++this.count;
    const promptTokens = (request.kind === 'generate' ? request.prompt : request.tokens).length;
    const refusal = this.refusalOf(promptTokens);
    if (refusal !== undefined) {
      queueMicrotask(() => listener.onRefused(refusal));
      return NOT_TAKEN;
    }
    const samples = Array.from({ length: request.kind === 'generate' ? (request.n ?? 1) : 1 }, () => ({
      tokens: [],
      cut: undefined,
      isOver: false,
    }));
    this.running.set(number, { listener, samples, promptTokens, left: samples.length, hasBegun: false });
    this.waiting.requests += samples.length;
    this.waiting.tokens += promptTokens;
    const asked = sentRequest(request);
    this.send({ kind: 'submit', request: number, asked }, buffersOf(asked));
    return {
      cancel: () => {
        if (this.running.has(number)) this.send({ kind: 'cancel', request: number });
      },
      cut: (sample, count) => this.cut(number, sample, count),
      acknowledge: (count) => this.acknowledge(number, count),
    };
  }

  async checkGrammar(model: ServedModel, source: GrammarSource): Promise<void> {
    await this.ask((question) => ({ kind: 'check', question, model: model.key, source }));
  }

  async stats(): Promise<readonly ModelStats[]> {
    const models = this.own.map(({ key }) => key);
    const answer = await this.ask((question) => ({ kind: 'stats', question, models }));
    if (answer.kind !== 'stats') throw new Error(`an answer of another kind: ${answer.kind}`);
    return answer.stats;
  }

  /** Whether the engine comes on. */
  async progress(): Promise<EngineProgress> {
    const answer = await this.ask((question) => ({ kind: 'progress', question }));
    if (answer.kind !== 'progress') throw new Error(`an answer of another kind: ${answer.kind}`);
    return answer.progress;
  }

  /** The engine's thread has ended, or is to be listened to no more: what is in work fails. */
  close(error = new ApiError(503, 'The engine has ended.')): void {
    if (this.isLost) return;
    this.isLost = true;
    this.port.off('message', this.onMessage);
    for (const { listener, samples } of [...this.running.values()])
      listener.onEvents(
        samples.flatMap(({ isOver }, sample) => (isOver ? [] : [{ kind: 'failed' as const, sample, error }])),
      );
    this.running.clear();
    for (const { reject } of this.questions.values()) reject(error);
    this.questions.clear();
  }

  private readonly source: AdapterSource = {
    open: async (path) => {
      const answer = await this.ask((question) => ({ kind: 'openAdapter', question, path }));
      if (answer.kind !== 'adapter') throw new Error(`an answer of another kind: ${answer.kind}`);
      return answer.facts;
    },
    release: async (hash) => {
      await this.ask((question) => ({ kind: 'releaseAdapter', question, hash }));
    },
  };

  private refusalOf(promptTokens: number): ApiError | undefined {
    if (this.isLost) return new ApiError(503, 'The engine has ended.');
    const { requests, tokens } = this.waiting;
    if (requests < this.limits.requests && (requests === 0 || tokens + promptTokens <= this.limits.tokens))
      return undefined;
    return new ApiError(429, 'Too many requests wait for the model. Try again later.', {
      code: 'queue_full',
      retryAfter: RETRY_SECONDS,
    });
  }

  private ask(message: (question: number) => ToEngine): Promise<FromEngine> {
    if (this.isLost) return Promise.reject(new ApiError(503, 'The engine has ended.'));
    const question = ++this.count;
    return new Promise((resolve, reject) => {
      this.questions.set(question, { resolve, reject });
      this.send(message(question));
    });
  }

  private cut(request: number, sample: number, count: number): void {
    const own = this.running.get(request)?.samples[sample];
    if (own === undefined || own.isOver || own.cut !== undefined) return;
    own.cut = count;
    this.send({ kind: 'cut', request, sample, count });
  }

  private acknowledge(request: number, count: number): void {
    if (!this.running.has(request)) return;
    if (this.acknowledged.size === 0) setImmediate(() => this.sendAcknowledged());
    this.acknowledged.set(request, (this.acknowledged.get(request) ?? 0) + count);
  }

  private sendAcknowledged(): void {
    const counts = new Int32Array(2 * this.acknowledged.size);
    let at = 0;
    for (const [request, count] of this.acknowledged) {
      counts[at++] = request;
      counts[at++] = count;
    }
    this.acknowledged.clear();
    if (!this.isLost) this.send({ kind: 'acknowledge', counts }, [counts.buffer]);
  }

  private take(message: FromEngine): void {
    switch (message.kind) {
      case 'events':
        readTape(message.tape, (request, events) => this.deliver(request, events));
        return;
      case 'refused': {
        const running = this.running.get(message.request);
        this.forget(message.request, running);
        this.guarded(() => running?.listener.onRefused(receivedError(message.error)));
        return;
      }
      case 'stats':
      case 'progress':
      case 'checked':
      case 'adapter':
      case 'released':
        this.questionOf(message.question)?.resolve(message);
        return;
      case 'failed':
        this.questionOf(message.question)?.reject(receivedError(message.error));
        return;
      default:
        return message satisfies never;
    }
  }

  private questionOf(question: number): Question | undefined {
    const found = this.questions.get(question);
    this.questions.delete(question);
    return found;
  }

  private deliver(request: number, events: readonly TapeEvent[]): void {
    const running = this.running.get(request);
    if (running === undefined) return;
    this.begin(running);
    const told: RequestEvent[] = [];
    for (const event of events) {
      const sample = running.samples[event.sample]!;
      const own = sample.isOver ? undefined : ownEvent(event, sample);
      if (own === undefined) continue;
      told.push(own);
      if (own.kind === 'end' || own.kind === 'failed') {
        sample.isOver = true;
        running.left--;
      }
    }
    // What is not told needs nobody's acknowledgement.
    if (told.length < events.length) this.acknowledge(request, events.length - told.length);
    if (running.left === 0) this.forget(request, running);
    if (told.length > 0 && !this.guarded(() => running.listener.onEvents(told))) this.breakOff(request, running);
  }

  /** Its reader cannot go on: the request ends, and others do not notice. */
  private breakOff(request: number, running: Running): void {
    if (this.running.has(request)) this.send({ kind: 'cancel', request });
    this.forget(request, running);
    const error = new ApiError(500, 'Internal server error.');
    const left = running.samples.flatMap(({ isOver }, sample) =>
      isOver ? [] : [{ kind: 'failed' as const, sample, error }],
    );
    if (left.length > 0) this.guarded(() => running.listener.onEvents(left));
  }

  /** False where `work` throws: readers are endpoints, and an error of one is no reason to end the thread. */
  private guarded(work: () => void): boolean {
    try {
      work();
      return true;
    } catch (error) {
      this.onError(error);
      return false;
    }
  }

  private begin(running: Running): void {
    if (running.hasBegun) return;
    running.hasBegun = true;
    this.waiting.requests -= running.samples.length;
    this.waiting.tokens -= running.promptTokens;
  }

  private forget(request: number, running: Running | undefined): void {
    if (running !== undefined) this.begin(running);
    this.running.delete(request);
    this.acknowledged.delete(request);
  }

  private send(message: ToEngine, transfer: readonly ArrayBuffer[] = []): void {
    this.port.postMessage(message, transfer);
  }
}

const RETRY_SECONDS = 5;

const NOT_TAKEN: RunningRequest = { cancel: () => undefined, cut: () => undefined, acknowledge: () => undefined };

const NOTHING_TOLD = { promptScores: [], foundTokens: 0, count: 0, reason: 'stop' } as const;

/** The event as it is told; undefined where the reader wants no more of its sample. */
function ownEvent(event: TapeEvent, sample: Sample): RequestEvent | undefined {
  const { cut } = sample;
  if (event.kind === 'end' || (event.kind === 'failed' && cut !== undefined)) {
    const { promptScores, foundTokens, count, reason } = event.kind === 'end' ? event : NOTHING_TOLD;
    const result: Generated = {
      tokens: sample.tokens.slice(0, cut ?? count),
      promptScores,
      reason: cut === undefined ? reason : 'stop',
      foundTokens,
    };
    return { kind: 'end', sample: event.sample, result };
  }
  if (cut !== undefined) return undefined;
  if (event.kind === 'token') sample.tokens.push(event.token);
  return event;
}
