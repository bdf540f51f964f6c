/** What a sequence is asked for, and what comes of it. */
import type { SamplingOptions } from './sampling.js';

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
