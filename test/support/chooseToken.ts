/**
 * Chooses a token from a row of logits, on the host in float64: for requests whose options need more of a row than its
 * largest score. Order: bias and penalties, temperature, min-p, top-k, top-p, draw.
 */
import { gumbel, type NoiseKey } from '../../ir/gumbel.js';
import { isGreedy, type Sampling } from '../../generate/sampling.js';

export interface TokenLogProb {
  readonly token: number;
  /** Natural logarithm of the probability under the model's own logits: no option changes it. */
  readonly logProb: number;
}

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
  const token = isGreedy(sampling) ? ranked(z, 1)[0]! : draw(z, sampling, key);
  return { ...withLogProb(token), top: ranked(logits, sampling.topLogProbs).map(withLogProb) };
}

function logSumExp(z: ArrayLike<number>): number {
  let top = -Infinity;
  for (let i = 0; i < z.length; i++) top = Math.max(top, z[i]!);
  let sum = 0;
  for (let i = 0; i < z.length; i++) sum += Math.exp(z[i]! - top);
  return top + Math.log(sum);
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

/** Tokens of the `count` largest, largest first; of equals the lower first. */
function ranked(z: ArrayLike<number>, count: number): readonly number[] {
  const best: number[] = [];
  const isBefore = (a: number, b: number): boolean => z[a]! > z[b]! || (z[a] === z[b] && a < b);
  for (let token = 0; token < z.length && count > 0; token++) {
    if (best.length === count && !isBefore(token, best[count - 1]!)) continue;
    if (best.length === count) best.pop();
    let at = best.length;
    while (at > 0 && isBefore(token, best[at - 1]!)) at--;
    best.splice(at, 0, token);
  }
  return best;
}

/** The largest of score and noise among the tokens that the filters leave. */
function draw(z: Float64Array, sampling: Sampling, key: NoiseKey): number {
  const scores = z.map((value) => value / sampling.temperature);
  let [drawn, best] = [-1, -Infinity];
  for (const token of kept(scores, sampling)) {
    const score = scores[token]! + gumbel(key, token);
    if (score > best || (score === best && token < drawn)) [drawn, best] = [token, score];
  }
  return drawn;
}

/** Tokens that min-p, top-k and top-p leave, each filter applied to what the one before it left. */
export function kept(scores: Float64Array, { minP, topK, topP }: Pick<Sampling, 'minP' | 'topK' | 'topP'>): number[] {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const least = top + Math.log(minP);
  let left = Array.from(scores.keys());
  if (minP > 0) left = left.filter((token) => scores[token]! >= least);
  if (topK === 0 && topP === 1) return left;
  left.sort((a, b) => scores[b]! - scores[a]! || a - b);
  if (topK > 0) left = left.slice(0, topK);
  if (topP === 1) return left;
  const weights = left.map((token) => Math.exp(scores[token]! - top));
  const wanted = topP * weights.reduce((a, b) => a + b, 0);
  let [count, sum] = [0, 0];
  while (count < left.length && sum < wanted) sum += weights[count++]!;
  return left.slice(0, Math.max(1, count));
}
