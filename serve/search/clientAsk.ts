/** How a search asks the models of a server: its requests go to a ModelClient, and what they used is counted. */
import { type ContinuationRequest, GenerateError, type RequestEvent } from '../../engine/request.js';
import type { Ask, AskedRequest } from '../../search/asking.js';
import { ApiError } from '../apiError.js';
import type { ModelClient, RequestListener, RunningRequest, ServedRequest } from '../models.js';

/** What a search used of one model. It depends on what was in pages, and on steps that were drawn in vain. */
export interface ModelUse {
  requests: number;
  /** Of the prompts of all requests, and how many of them had been computed before. */
  promptTokens: number;
  cachedTokens: number;
  /** Tokens that were drawn. */
  generatedTokens: number;
}

type Asked = Parameters<Ask>[0];

/** The requests of one search. */
export class ClientAsks {
  /** By the model's name in the engine. */
  readonly uses = new Map<string, ModelUse>();
  private readonly client: ModelClient;
  private readonly retryMs: number;
  private isFirst = true;

  /** `retryMs`: after which a request that found the queue full is tried again. */
  constructor(client: ModelClient, retryMs = 100) {
    this.client = client;
    this.retryMs = retryMs;
  }

  /**
   * A full queue refuses the first request, and with it the search. Later ones wait until there is room: a search that
   * has begun is not lost because others ask much.
   */
  readonly ask: Ask = (asked) => {
    const isPatient = !this.isFirst;
    this.isFirst = false;
    return new ClientRequest(this.client, asked, this.useOf(asked.model ?? ''), isPatient ? this.retryMs : undefined);
  };

  private useOf(model: string): ModelUse {
    const known = this.uses.get(model);
    if (known !== undefined) return known;
    const use: ModelUse = { requests: 0, promptTokens: 0, cachedTokens: 0, generatedTokens: 0 };
    this.uses.set(model, use);
    return use;
  }
}

/** Events wait for one reader, who acknowledges them by reading. A reader who leaves ends the request. */
class ClientRequest implements AskedRequest, RequestListener {
  private readonly client: ModelClient;
  private readonly request: ServedRequest;
  private readonly signal: AbortSignal | undefined;
  private readonly use: ModelUse;
  private readonly retryMs: number | undefined;
  private running: RunningRequest | undefined;
  private timer: NodeJS.Timeout | undefined;
  private held: RequestEvent[] = [];
  private left: number;
  private error: Error | undefined;
  private isCancelled = false;
  private wake: () => void = () => undefined;
  private readonly endsAt: ContinuationRequest['endsAt'];
  private drawn = 0;
  private hasEnded = false;
  private readonly onAbort = (): void => this.cancel();

  constructor(client: ModelClient, asked: Asked, use: ModelUse, retryMs: number | undefined) {
    const { signal, request, endsAt } = sendable(asked);
    this.endsAt = endsAt;
    this.client = client;
    this.request = request;
    this.signal = signal;
    this.use = use;
    this.retryMs = retryMs;
    this.left = request.kind === 'generate' ? (request.n ?? 1) : 1;
    use.requests++;
    signal?.addEventListener('abort', this.onAbort, { once: true });
    this.submit();
    if (signal?.aborted === true) this.cancel();
  }

  cancel(): void {
    this.isCancelled = true;
    this.running?.cancel();
    // It waits to be tried again: nothing of it has begun.
    if (this.timer !== undefined) this.fail(new ApiError(499, 'The search has ended.'));
  }

  onEvents(events: readonly RequestEvent[]): void {
    for (const told of events) {
      const event = told.kind === 'failed' ? { ...told, error: engineError(told.error) } : told;
      this.held.push(event);
      if (event.kind === 'end') this.count(event.result.foundTokens);
      // Nobody here has ended it: the server closes.
      if (event.kind === 'end' && event.result.reason === 'aborted' && !this.isCancelled)
        this.error = new ApiError(503, 'The engine has ended.');
      if (event.kind === 'token') this.take(event.token.token);
      if (event.kind === 'end' || event.kind === 'failed') this.left--;
    }
    if (this.left === 0) this.settle();
    this.wake();
  }

  /** The engine's thread cannot ask whether a text ends: it is told, and cuts what came since. */
  private take(token: number): void {
    this.use.generatedTokens++;
    this.drawn++;
    if (this.hasEnded || this.endsAt?.(token) !== true) return;
    this.hasEnded = true;
    this.running?.cut(0, this.drawn);
  }

  onRefused(error: Error): void {
    const isFull = error instanceof ApiError && error.status === 429;
    if (!isFull || this.retryMs === undefined || this.isCancelled) return this.fail(error);
    this.running = undefined;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.submit();
    }, this.retryMs);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<RequestEvent> {
    try {
      for (;;) {
        const events = this.held;
        this.held = [];
        if (events.length > 0) this.running?.acknowledge(events.length);
        if (this.error !== undefined) throw this.error;
        yield* events;
        // More may have come while those were read.
        if (this.held.length > 0 || this.error !== undefined) continue;
        if (this.left === 0) return;
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      if (this.left > 0 && this.error === undefined) this.cancel();
    }
  }

  private submit(): void {
    this.running = this.client.submit(this.request, this);
  }

  private count(foundTokens: number): void {
    const { request, use } = this;
    use.promptTokens += (request.kind === 'generate' ? request.prompt : request.tokens).length;
    use.cachedTokens += foundTokens;
  }

  private fail(error: Error): void {
    this.error = engineError(error);
    this.settle();
    this.wake();
  }

  private settle(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.signal?.removeEventListener('abort', this.onAbort);
  }
}

/** An error as the engine gives it: what cannot be computed of one request ends one path, and not the search. */
function engineError(error: Error): Error {
  const isOfOne = error instanceof ApiError && (error.status === 400 || error.options.isFinal === true);
  return isOfOne ? new GenerateError(error.message, { cause: error }) : error;
}

/** A request as it goes from thread to thread, and what stays in this one. */
function sendable(asked: Asked): Pick<ContinuationRequest, 'signal' | 'endsAt'> & { readonly request: ServedRequest } {
  const { signal, ...rest } = asked;
  if (rest.kind !== 'generate') return { request: rest, signal };
  const { drafts, guide, endsAt, isQuiet: _, ...request } = rest;
  if (typeof drafts === 'object' || guide !== undefined) throw new Error('A draft and a guide do not cross threads.');
  return { request, signal, endsAt };
}
