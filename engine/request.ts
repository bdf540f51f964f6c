/** What an engine is asked for, and what it answers: continuations of a prompt, rows of given tokens, class logits. */
import type { Drafter } from '../draft/drafter.js';
import type { AdapterRef, DeviceModel } from './device.js';
import { type AskOptions, AskedRows } from './askedRows.js';
import { Guided, type TokenGuide } from './guide.js';
import { needsRow, resolveSampling, type SamplingOptions } from './options.js';
import { Sequence } from './sequence.js';

export interface TokenLogProb {
  readonly token: number;
  /** Natural logarithm of the probability under the model's own logits: no option changes it. */
  readonly logProb: number;
}

/** One continuation of a prompt. */
export interface GenerateRequest {
  readonly prompt: readonly number[];
  /** Most tokens to generate; 0: the prompt is only scored. */
  readonly maxNewTokens: number;
  /** Tokens that end the sequence. The one that did is part of what was generated. */
  readonly stopTokens?: ReadonlySet<number>;
  /** A stop token does not come before there are this many tokens. */
  readonly minNewTokens?: number;
  /** The first token of the prompt whose log-probability is reported, from 1. Default, and Infinity: none. */
  readonly scoreFrom?: number;
  /** Other rows of the prompt, in the order of their positions. Without new tokens it ends with the last of them. */
  readonly rows?: readonly AskOptions[];
  /** How tokens are chosen. Default: the most likely ones. */
  readonly sampling?: SamplingOptions;
  /** Which of several continuations of the prompt this is, from 0: each has a seed of its own. */
  readonly sample?: number;
  /** Who proposes what may follow. The text does not depend on it. Default: as the model says. `false`: nobody. */
  readonly drafts?: Drafter | false;
  /** Says which tokens may come; not with `drafts`. While it thinks, the sequence takes no part in steps. */
  readonly guide?: TokenGuide;
  /**
   * Whether the sequence ends with a token, the reason being `stop`. Asked of each one in the loop that feeds the
   * device, so it must be quick and not throw.
   */
  readonly endsAt?: ((token: number) => boolean) | undefined;
  /** Ends the sequence, between two calls, with what was generated so far. */
  readonly signal?: AbortSignal | undefined;
}

export interface GeneratedToken extends TokenLogProb {
  /** The most likely tokens, where the request asks for them. */
  readonly top?: readonly TokenLogProb[];
}

/**
 * A stop token, a stop string, as many tokens as were asked for, the end of the model's context, of the memory for keys
 * and values, an abort, or a deadline that has passed.
 */
export type EndReason = 'eos' | 'stop' | 'length' | 'context' | 'cache' | 'aborted' | 'deadline';

export interface Generated {
  readonly tokens: readonly GeneratedToken[];
  /** Of the prompt's tokens from `scoreFrom` on. */
  readonly promptScores: readonly { readonly logProb: number; readonly isArgmax: boolean }[];
  readonly reason: EndReason;
  /** Tokens of the prompt that were in pages already. */
  readonly foundTokens: number;
  /** Drafts that steps computed behind it, and those of them that are its tokens; absent: there were none. */
  readonly drafts?: { readonly drafted: number; readonly accepted: number };
}

/** A request could not be computed; others go on. */
export class GenerateError extends Error {}

/** A request has ended devices while they computed it, and is not tried again. */
export class GivenUp extends GenerateError {}

/** What every request of an engine may say. */
export interface RequestOptions {
  /** The model's name. May be left out where the engine has one model. */
  readonly model?: string | undefined;
  /** Ends the request, between two steps, with what there is: its reason is `aborted`. */
  readonly signal?: AbortSignal | undefined;
  /** When it ends with what there is: a moment, or milliseconds from now. Its reason is then `deadline`. */
  readonly deadline?: Date | number | undefined;
  /** A whole number. Requests with a lower one go first, and give their pages up last. Default 0. */
  readonly priority?: number | undefined;
  /**
   * A whole number from 0. Requests with equal ones are computed by one replica while it is there, which has the pages
   * of those before; numbers that follow each other go to all replicas in turn. Default: the one with least to do.
   */
  readonly affinity?: number | undefined;
  /**
   * The adapter that everything of it is computed with. Its content is what it is: two paths of one hash share a slot
   * and pages. Default: none, the model itself.
   */
  readonly adapter?: AdapterRef | undefined;
  /** Events that wait for their reader before the request takes no part in steps. Default 256. */
  readonly maxHeld?: number | undefined;
}

/** A row of given tokens: what the model predicts after the token at `position`, counted from 0. */
export interface RowRequest {
  readonly position: number;
  /** The token whose log-probability is asked for. Default: the one that follows; at the end none. */
  readonly target?: number | undefined;
  /** So many of the most likely tokens. Default 0. */
  readonly top?: number | undefined;
}

/** The row of every token that another follows. */
export interface AllRows {
  /** So many of the most likely tokens of each. */
  readonly top: number;
}

export interface RowResult {
  readonly position: number;
  /** Natural logarithm of the target's probability, and whether it is the most likely token; none without target. */
  readonly logProb?: number;
  readonly isArgmax?: boolean;
  /** The most likely token. */
  readonly argmax: TokenLogProb;
  /** The most likely tokens, where they were asked for. */
  readonly top?: readonly TokenLogProb[];
}

/** A row of a head of classes. */
export interface ClassRow {
  readonly position: number;
  /** f32[N], before any softmax. */
  readonly logits: Float32Array;
}

/** Continuations of one prompt, which share its pages. */
export interface ContinuationRequest extends Omit<GenerateRequest, 'signal' | 'rows'>, RequestOptions {
  readonly kind: 'generate';
  /** Rows of the prompt, in any order; they come as `row` events of its first continuation. */
  readonly rows?: readonly RowRequest[] | AllRows;
  /** The tokens that may be generated. Default: all. */
  readonly allowedTokens?: readonly number[];
  /** How many, 1 by default. The first has number `sample`, the others those that follow. */
  readonly n?: number;
  /** Tokens are told with its end alone. */
  readonly isQuiet?: boolean;
}

/** Rows of given tokens, of a model with a vocabulary head. */
export interface ScoreRequest extends RequestOptions {
  readonly kind: 'score';
  readonly tokens: readonly number[];
  /** In any order; a position may have several. */
  readonly rows: readonly RowRequest[];
}

/** Rows of given tokens, of a model with a head of classes. */
export interface RewardRequest extends RequestOptions {
  readonly kind: 'reward';
  readonly tokens: readonly number[];
  readonly positions: readonly number[];
}

export type EngineRequest = ContinuationRequest | ScoreRequest | RewardRequest;

/** What a whole request gives: each continuation; each row, in the order of the request. */
export interface ResultOf {
  readonly generate: readonly Generated[];
  readonly score: readonly RowResult[];
  readonly reward: readonly ClassRow[];
}

/** `sample`: which of the request's continuations, from 0. */
export type RequestEvent =
  | { readonly kind: 'token'; readonly sample: number; readonly token: GeneratedToken }
  /** Rows come as they are computed, those of a step together. */
  | { readonly kind: 'row'; readonly sample: number; readonly row: RowResult }
  | { readonly kind: 'classes'; readonly sample: number; readonly row: ClassRow }
  | { readonly kind: 'end'; readonly sample: number; readonly result: Generated }
  /** This continuation cannot be computed; others go on. */
  | { readonly kind: 'failed'; readonly sample: number; readonly error: Error };

/** What a sequence must fit into. */
export interface SequenceLimits extends Pick<DeviceModel, 'maxLength' | 'vocab'> {
  /** Longest sequence that the pages and a call have room for, in tokens. */
  readonly room: number;
}

/** Throws GenerateError where the request cannot be computed with these limits, UsageError for options out of range. */
export function sequenceOf(
  request: GenerateRequest,
  { maxLength, room, vocab }: SequenceLimits,
  { priority = 0, adapter }: Pick<RequestOptions, 'priority' | 'adapter'> = {},
): Sequence {
  const { prompt, maxNewTokens, scoreFrom = Infinity, rows, stopTokens = new Set(), minNewTokens = 0 } = request;
  if (prompt.length > maxLength)
    throw new GenerateError(`a prompt of ${prompt.length} tokens; the model's context has ${maxLength}`);
  if (prompt.length + Math.min(maxNewTokens, 1) > room)
    throw new GenerateError(`a prompt of ${prompt.length} tokens; the cache has room for ${room}`);
  const sampling = resolveSampling(request.sampling ?? {}, request.sample);
  const isBanning = minNewTokens > 0 && stopTokens.size > 0;
  const isGuided = request.guide !== undefined && maxNewTokens > 0;
  const isFiltered = isBanning || isGuided || needsRow(sampling);
  const hasTops = rows?.some(({ top = 0 }) => top > 0) === true;
  if ((isFiltered || hasTops) && vocab === undefined)
    throw new GenerateError(
      'the model was compiled without logits, which filters, penalties, guides and top log-probabilities need',
    );
  return new Sequence({
    prompt,
    sampling,
    priority,
    adapter,
    filterVocab: isFiltered ? vocab : undefined,
    longest: Math.min(maxLength, room, prompt.length + maxNewTokens),
    ...(isBanning ? { banned: { tokens: stopTokens, atLeast: minNewTokens } } : {}),
    asks: rows === undefined ? AskedRows.following(prompt, scoreFrom) : new AskedRows(rows),
    isDrawing: maxNewTokens > 0 || rows === undefined,
    ...(isGuided ? { guided: new Guided(request.guide!, request.sample ?? 0, vocab!) } : {}),
  });
}
