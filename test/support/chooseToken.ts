/**
 * Chooses a token from a row of logits in float64, from options and the tokens before it: an oracle for the lists that
 * calls take in their place. Filters are those of the reference (ir/filters).
 */
import { keptTokens, largestTokens, logSumExp } from '../../ir/filters.js';
import { gumbel, type NoiseKey } from '../../ir/gumbel.js';
import type { TokenLogProb } from '../../generate/request.js';
import { isGreedy, type Sampling } from '../../generate/sampling.js';

export interface Chosen extends TokenLogProb {
  /** The most likely tokens, as many as were asked for; of equals the lower first. */
  readonly top: readonly TokenLogProb[];
}

/** `tokens`: those before the one that is chosen, of which the first `promptLength` are the prompt. */
export interface Before {
  readonly tokens: readonly number[];
  readonly promptLength: number;
  /** Tokens that may not be chosen. */
  readonly banned?: ReadonlySet<number> | undefined;
}

export function chooseToken(logits: Float32Array, sampling: Sampling, before: Before, key: NoiseKey): Chosen {
  const total = logSumExp(logits);
  const withLogProb = (token: number): TokenLogProb => ({ token, logProb: logits[token]! - total });
  const z = penalised(logits, sampling, before);
  const token = isGreedy(sampling) ? largestTokens(z, 1)[0]! : draw(z, sampling, key);
  return { ...withLogProb(token), top: largestTokens(logits, sampling.topLogProbs).map(withLogProb) };
}

/**
 * The logits with biases added; divided, or multiplied below 0, by the repetition penalty where the token is in the
 * prompt or was generated; less the presence penalty where it was generated, and the frequency penalty each time.
 * Minus infinity for tokens that are banned.
 */
function penalised(logits: Float32Array, sampling: Sampling, { tokens, promptLength, banned }: Before): Float64Array {
  const z = Float64Array.from(logits);
  const { logitBias, repetitionPenalty, presencePenalty, frequencyPenalty } = sampling;
  for (const token of banned ?? []) if (token < z.length) z[token] = -Infinity;
  for (const [token, bias] of logitBias) if (token < z.length) z[token]! += bias;
  if (repetitionPenalty !== 1)
    for (const token of new Set(tokens)) z[token]! *= z[token]! > 0 ? 1 / repetitionPenalty : repetitionPenalty;
  if (presencePenalty === 0 && frequencyPenalty === 0) return z;
  const counts = new Map<number, number>();
  for (const token of tokens.slice(promptLength)) counts.set(token, (counts.get(token) ?? 0) + 1);
  for (const [token, count] of counts) z[token]! -= presencePenalty + count * frequencyPenalty;
  return z;
}

/** The largest of score and noise among the tokens that the filters leave. */
function draw(z: Float64Array, sampling: Sampling, key: NoiseKey): number {
  const scores = z.map((value) => value / sampling.temperature);
  const { minP, topK, topP } = sampling;
  let [drawn, best] = [-1, -Infinity];
  for (const token of keptTokens(scores, { minLogP: Math.log(minP), topK, topP })) {
    const score = scores[token]! + gumbel(key, token);
    if (score > best || (score === best && token < drawn)) [drawn, best] = [token, score];
  }
  return drawn;
}
