/**
 * How a token is chosen from a whole row of logits: what changes logits, what leaves tokens out, and the draw from what
 * is left. Order: bias and penalties, mask, temperature, min-p, top-k, top-p, draw. Of equals the lower token comes
 * first.
 * The functions here are the reference, in float64. Kernels compute in f32 and weigh tokens in whole numbers
 * (docs/decisions/0015-generation.md).
 */
import { drawScore, type NoiseKey } from './gumbel.js';

/** What leaves tokens of a row out, and the penalties. `NO_FILTERS` changes nothing. */
export interface RowFilters {
  /** Keeps this many most likely tokens; 0: all. */
  readonly topK: number;
  /** Keeps the fewest most likely tokens with at least this share of the probability that is left; 1: all. */
  readonly topP: number;
  /** Keeps tokens whose logarithm of probability is at most this far below the largest: ln(min-p), −∞ for all. */
  readonly minLogP: number;
  /** Divides positive logits of tokens on the path, and multiplies negative ones. */
  readonly repetition: number;
  /** Taken from the logits of generated tokens: once, and each time. */
  readonly presence: number;
  readonly frequency: number;
}

export const NO_FILTERS: RowFilters = {
  topK: 0,
  topP: 1,
  minLogP: -Infinity,
  repetition: 1,
  presence: 0,
  frequency: 0,
};

/** A token whose logit changes. */
export interface TokenEntry {
  readonly token: number;
  /** Added to the logit. */
  readonly bias: number;
  /** How often the token was generated; 0 where it is in the prompt only, −1 where it is not on the path. */
  readonly count: number;
}

/** What a row draws its token by. An inverse temperature of 0 takes the largest logit, whatever would be left out. */
export interface RowDraw extends NoiseKey {
  readonly inverseTemperature: number;
}

/** Whether a mask allows a token: bit t % 32 of word t >> 5 stands for token t. */
export const isAllowed = (mask: ArrayLike<number>, token: number): boolean =>
  ((mask[token >> 5]! >>> (token & 31)) & 1) === 1;

/** The row with the changes that its entries name, each token at most once, and −∞ for tokens outside its mask. */
export function adjustLogits(
  z: ArrayLike<number>,
  { repetition, presence, frequency }: RowFilters,
  entries: Iterable<TokenEntry>,
  mask?: ArrayLike<number>,
): Float64Array {
  const changed = Float64Array.from(z);
  for (const { token, bias, count } of entries) {
    let value = changed[token]! + bias;
    if (count >= 0 && repetition !== 1) value = value > 0 ? value / repetition : value * repetition;
    if (count > 0) value -= presence + count * frequency;
    changed[token] = value;
  }
  return mask === undefined ? changed : changed.map((value, token) => (isAllowed(mask, token) ? value : -Infinity));
}

/** Tokens of the `count` largest, largest first. */
export function largestTokens(z: ArrayLike<number>, count: number): readonly number[] {
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

/** Tokens that min-p, top-k and top-p leave of scores z/temperature, each applied to what the one before it left. */
export function keptTokens(
  scores: Float64Array,
  { minLogP, topK, topP }: Pick<RowFilters, 'minLogP' | 'topK' | 'topP'>,
): readonly number[] {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const least = top + minLogP;
  let left = Array.from(scores.keys()).filter((token) => scores[token]! >= least);
  if (topK === 0 && topP >= 1) return left;
  left.sort((a, b) => scores[b]! - scores[a]! || a - b);
  if (topK > 0) left = left.slice(0, topK);
  if (topP >= 1) return left;
  const weights = left.map((token) => Math.exp(scores[token]! - top));
  const wanted = topP * weights.reduce((a, b) => a + b, 0);
  let [count, sum] = [0, 0];
  while (count < left.length && sum < wanted) sum += weights[count++]!;
  return left.slice(0, Math.max(1, count));
}

/** The token that a row of logits, already changed by its entries, gives. */
export function chooseToken(changed: Float64Array, filters: RowFilters, draw: RowDraw): number {
  const { inverseTemperature } = draw;
  if (inverseTemperature === 0) return largestTokens(changed, 1)[0] ?? 0;
  const kept = keptTokens(
    changed.map((z) => z * inverseTemperature),
    filters,
  );
  const noisy = kept.map((token) => drawScore(changed[token]!, inverseTemperature, draw, token));
  let best = 0;
  noisy.forEach((score, i) => {
    if (score > noisy[best]! || (score === noisy[best] && kept[i]! < kept[best]!)) best = i;
  });
  return kept[best] ?? 0;
}

/** log Σ exp z. */
export function logSumExp(z: ArrayLike<number>): number {
  let top = -Infinity;
  for (let i = 0; i < z.length; i++) top = Math.max(top, z[i]!);
  let sum = 0;
  for (let i = 0; i < z.length; i++) sum += Math.exp(z[i]! - top);
  return top + Math.log(sum);
}
