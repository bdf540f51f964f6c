/** A ModelClient whose requests are counted on their way, so that no endpoint has to. */
import type { RequestEvent } from '../../engine/request.js';
import { FINISHES } from '../choices.js';
import type { ModelClient, RequestListener, RunningRequest, ServedRequest } from '../models.js';
import type { Finished, RequestCounts } from './requestCounts.js';

/** `countsOf`: of the model with this key; undefined: of the only one. */
export function measuredClient(
  client: ModelClient,
  countsOf: (key: string | undefined) => RequestCounts | undefined,
): ModelClient {
  return {
    get models() {
      return client.models;
    },
    adapters: client.adapters,
    stats: () => client.stats(),
    checkGrammar: (model, source) => client.checkGrammar(model, source),
    submit: (request, listener) => {
      const counts = countsOf(request.model);
      if (counts === undefined) return client.submit(request, listener);
      const watched = new WatchedRequest(request, listener, counts);
      watched.running = client.submit(request, watched);
      return watched;
    },
  };
}

/** What is known of a request before it is computed: its prompt, the continuations asked for and their most tokens. */
function sizesOf(request: ServedRequest): { prompt: number; choices: number; most: number | undefined } {
  switch (request.kind) {
    case 'generate':
      return { prompt: request.prompt.length, choices: request.n ?? 1, most: request.maxNewTokens };
    case 'score':
    case 'reward':
      return { prompt: request.tokens.length, choices: 1, most: undefined };
    default:
      return request satisfies never;
  }
}

class WatchedRequest implements RequestListener, RunningRequest {
  running: RunningRequest | undefined;
  private readonly listener: RequestListener;
  private readonly counts: RequestCounts;
  private readonly sizes: ReturnType<typeof sizesOf>;
  private readonly begun = performance.now();
  /** Of each continuation: tokens so far; when the first and the last came; whether it has ended. */
  private readonly tokens: Uint32Array;
  private readonly firsts: Float64Array;
  private readonly lasts: Float64Array;
  private readonly isOver: Uint8Array;
  private left: number;
  private longest = 0;

  constructor(request: ServedRequest, listener: RequestListener, counts: RequestCounts) {
    this.listener = listener;
    this.counts = counts;
    this.sizes = sizesOf(request);
    const { choices } = this.sizes;
    this.tokens = new Uint32Array(choices);
    this.firsts = new Float64Array(choices);
    this.lasts = new Float64Array(choices);
    this.isOver = new Uint8Array(choices);
    this.left = choices;
  }

  onEvents(events: readonly RequestEvent[]): void {
    const now = performance.now();
    for (const event of events) {
      if (event.kind === 'token') this.take(event.sample, now);
      else if (event.kind === 'end') this.end(event.sample, FINISHES[event.result.reason], now);
      else if (event.kind === 'failed') this.end(event.sample, 'error', now);
    }
    this.listener.onEvents(events);
  }

  onRefused(error: Error): void {
    this.listener.onRefused(error);
  }

  cancel(): void {
    this.running?.cancel();
  }

  cut(sample: number, count: number): void {
    // Tokens behind the cut were computed, and nobody sees them.
    this.end(sample, 'stop', performance.now(), count);
    this.running?.cut(sample, count);
  }

  acknowledge(count: number): void {
    this.running?.acknowledge(count);
  }

  /** Tokens of one message came at one moment: the gap before them is counted once. */
  private take(sample: number, now: number): void {
    const { counts, tokens, lasts } = this;
    counts.generationTokens++;
    const before = tokens[sample]!;
    tokens[sample] = before + 1;
    if (before === 0) {
      this.firsts[sample] = now;
      counts.promptTokens += this.sizes.prompt;
      counts.timeToFirstToken.add((now - this.begun) / 1000);
    } else if (lasts[sample] !== now) counts.interTokenLatency.add((now - lasts[sample]!) / 1000);
    lasts[sample] = now;
  }

  private end(sample: number, reason: Finished, now: number, length = this.tokens[sample]!): void {
    if (this.isOver[sample] !== 0) return;
    this.isOver[sample] = 1;
    const { counts, sizes, tokens } = this;
    const came = tokens[sample]!;
    counts.finished[reason]++;
    // A request without tokens has computed its prompt all the same.
    if (came === 0 && reason !== 'error') counts.promptTokens += sizes.prompt;
    if (came > 1) counts.timePerOutputToken.add((this.lasts[sample]! - this.firsts[sample]!) / 1000 / (came - 1));
    counts.endToEnd.add((now - this.begun) / 1000);
    counts.promptLengths.add(sizes.prompt);
    counts.generationLengths.add(length);
    if (sizes.most !== undefined) counts.maxTokens.add(sizes.most);
    this.longest = Math.max(this.longest, length);
    if (--this.left > 0) return;
    counts.choices.add(sizes.choices);
    counts.longestGenerations.add(this.longest);
  }
}
