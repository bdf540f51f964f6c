/** What a sequence is asked for, and what comes of it. */
import { defined } from '../system/defined.js';
import { needsRow, resolveSampling, type SamplingOptions } from './options.js';
import type { Stepper } from './scheduler.js';
import { Sequence } from './sequence.js';

export interface TokenLogProb {
  readonly token: number;
  /** Natural logarithm of the probability under the model's own logits: no option changes it. */
  readonly logProb: number;
}

export interface GenerateRequest {
  readonly prompt: readonly number[];
  /** Most tokens to generate; 0: the prompt is only scored. */
  readonly maxNewTokens: number;
  /** Tokens that end the sequence. The one that did is part of what was generated. */
  readonly stopTokens?: ReadonlySet<number>;
  /** A stop token does not come before there are this many tokens. */
  readonly minNewTokens?: number;
  /** The first token of the prompt whose log-probability is reported, from 1. */
  readonly scoreFrom?: number;
  /** How tokens are chosen. Default: the most likely ones. */
  readonly sampling?: SamplingOptions;
  /** Which of several continuations of the prompt this is, from 0: each has a seed of its own. */
  readonly sample?: number;
  /**
   * Called with every generated token; what it returns ends the sequence, unless undefined. No further step begins
   * before it has settled, so that a slow reader slows the model down.
   */
  readonly onToken?: (token: GeneratedToken) => Promise<EndReason | undefined>;
  /** Ends the sequence, between two calls, with what was generated so far. */
  readonly signal?: AbortSignal | undefined;
}

export interface GeneratedToken extends TokenLogProb {
  /** The most likely tokens, where the request asks for them. */
  readonly top?: readonly TokenLogProb[];
}

/**
 * A stop token, a stop string, as many tokens as were asked for, the end of the model's context, of the memory for keys
 * and values, or an abort.
 */
export type EndReason = 'eos' | 'stop' | 'length' | 'context' | 'cache' | 'aborted';

export interface Generated {
  readonly tokens: readonly GeneratedToken[];
  /** Of the prompt's tokens from `scoreFrom` on. */
  readonly promptScores: readonly { readonly logProb: number; readonly isArgmax: boolean }[];
  readonly reason: EndReason;
  /** Tokens of the prompt that were in pages already. */
  readonly foundTokens: number;
}

/** A request could not be computed; others go on. */
export class GenerateError extends Error {}

/** A request on its way: its sequence, what was generated of it, and who waits for it. */

/** What a request must fit into. */
export interface TaskLimits extends Pick<Stepper, 'maxLength' | 'vocab'> {
  /** Longest sequence that the pages and a call have room for, in tokens. */
  readonly room: number;
}

/** Devices that may end while they compute a sequence before it counts as the cause. */
const MAX_LOSSES = 3;

export class Task {
  readonly request: GenerateRequest;
  readonly sequence: Sequence;
  private readonly generated: GeneratedToken[] = [];
  private readonly resolve: (result: Generated) => void;
  private readonly reject: (error: Error) => void;
  private losses = 0;

  private constructor(
    request: GenerateRequest,
    sequence: Sequence,
    resolve: (result: Generated) => void,
    reject: (error: Error) => void,
  ) {
    this.request = request;
    this.sequence = sequence;
    this.resolve = resolve;
    this.reject = reject;
  }

  /**
   * Hands the task to `start`, and resolves when it is done. Rejects with GenerateError where the request does not fit
   * the model or its memory, and with UsageError for options out of range.
   */
  static async run(request: GenerateRequest, limits: TaskLimits, start: (task: Task) => void): Promise<Generated> {
    const sequence = sequenceOf(request, limits);
    if (request.signal?.aborted === true) return { tokens: [], promptScores: [], reason: 'aborted', foundTokens: 0 };
    return new Promise((resolve, reject) => start(new Task(request, sequence, resolve, reject)));
  }

  get isAborted(): boolean {
    return this.request.signal?.aborted === true;
  }

  /** Tokens that are left to compute, the first of which may be in pages. */
  get workTokens(): number {
    return this.sequence.pending + this.request.maxNewTokens - this.generated.length;
  }

  /** Takes the next token. Returns why the sequence ends with it, if it does. */
  async take(next: GeneratedToken, { maxLength, room }: TaskLimits): Promise<EndReason | undefined> {
    const { onToken, stopTokens, maxNewTokens } = this.request;
    if (maxNewTokens === 0) return 'length';
    this.generated.push(next);
    const length = this.sequence.promptLength + this.generated.length;
    const asked = await onToken?.(next);
    if (asked !== undefined) return asked;
    if (stopTokens?.has(next.token) === true) return 'eos';
    if (this.generated.length >= maxNewTokens) return 'length';
    if (length >= maxLength) return 'context';
    return length >= room ? 'cache' : undefined;
  }

  end(reason: EndReason): void {
    const { generated: tokens, sequence } = this;
    this.resolve({ tokens, promptScores: sequence.scores, reason, foundTokens: sequence.found });
  }

  fail(error: Error): void {
    this.reject(error);
  }

  /** A device ended while it computed this. Returns false, having failed, where that has happened too often. */
  survive(error: Error): boolean {
    if (++this.losses < MAX_LOSSES) return true;
    this.fail(new GenerateError(`its steps ended ${MAX_LOSSES} devices: ${error.message}`));
    return false;
  }
}

/** Throws where the request cannot be computed with these limits. */
function sequenceOf(request: GenerateRequest, { maxLength, room, vocab }: TaskLimits): Sequence {
  const { prompt, maxNewTokens, scoreFrom, stopTokens = new Set(), minNewTokens = 0 } = request;
  if (prompt.length > maxLength)
    throw new GenerateError(`a prompt of ${prompt.length} tokens; the model's context has ${maxLength}`);
  if (prompt.length + Math.min(maxNewTokens, 1) > room)
    throw new GenerateError(`a prompt of ${prompt.length} tokens; the cache has room for ${room}`);
  const sampling = resolveSampling(request.sampling ?? {}, request.sample);
  const isBanning = minNewTokens > 0 && stopTokens.size > 0;
  const isFiltered = isBanning || needsRow(sampling);
  if (isFiltered && vocab === undefined)
    throw new GenerateError(
      'the model was compiled without logits, which filters, penalties and top log-probabilities need',
    );
  return new Sequence({
    prompt,
    sampling,
    filterVocab: isFiltered ? vocab : undefined,
    longest: Math.min(maxLength, room, prompt.length + maxNewTokens),
    ...(isBanning ? { banned: { tokens: stopTokens, atLeast: minNewTokens } } : {}),
    ...defined({ scoreFrom }),
  });
}
