/**
 * Chooses a token from a row of logits in float64, from options and the tokens before it: an oracle for the lists that
 * calls take in their place. Filters are those of the reference (ir/filters).
 */
import type { TokenMask } from '../../engine/guide.js';
import { isGreedy, type Sampling } from '../../engine/options.js';
import type { TokenLogProb } from '../../engine/request.js';
import type { StepInputs } from '../../driver/devices/sequenceTable.js';
import type { FilteredAnswer } from '../../engine/device.js';
import { adjustLogits, chooseToken, isAllowed, keptTokens, largestTokens, logSumExp } from '../../ir/filters.js';
import { gumbel, type NoiseKey } from '../../ir/gumbel.js';
import { mapInputs, MAX_TOP_TOKENS, rowSampling } from '../../ir/sampleInputs.js';

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
  /** The only tokens that may be chosen. Default: all. */
  readonly mask?: TokenMask | undefined;
}

export function oracleChoice(logits: Float32Array, sampling: Sampling, before: Before, key: NoiseKey): Chosen {
  const total = logSumExp(logits);
  const withLogProb = (token: number): TokenLogProb => ({ token, logProb: logits[token]! - total });
  const z = penalised(logits, sampling, before);
  const token = isGreedy(sampling) ? largestTokens(z, 1)[0]! : draw(z, sampling, key);
  return { ...withLogProb(token), top: largestTokens(logits, sampling.topLogProbs).map(withLogProb) };
}

/**
 * The logits with biases added; divided, or multiplied below 0, by the repetition penalty where the token is in the
 * prompt or was generated; less the presence penalty where it was generated, and the frequency penalty each time.
 * Minus infinity for tokens that are banned, or outside the mask.
 */
function penalised(logits: Float32Array, sampling: Sampling, before: Before): Float64Array {
  const { tokens, promptLength, banned, mask } = before;
  const z = Float64Array.from(logits);
  const { logitBias, repetitionPenalty, presencePenalty, frequencyPenalty } = sampling;
  for (const token of banned ?? []) if (token < z.length) z[token] = -Infinity;
  if (mask !== undefined) z.forEach((_, token) => isAllowed(mask, token) || (z[token] = -Infinity));
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

// What `step` returns for filtered rows, by the reference, for models that are made up in tests.

/** `logitsOf`: the logits after a token at a position. */
export function filteredRows(
  inputs: StepInputs,
  logitsOf: (token: number, position: number) => ArrayLike<number>,
): FilteredAnswer {
  const given: Readonly<Record<string, ArrayLike<number> | undefined>> = {
    ...inputs,
    low: inputs.keyLow,
    high: inputs.keyHigh,
    pathToken: inputs.tokens,
    pathRow: inputs.row,
  };
  const numbers = mapInputs((name) => given[name]!);
  const rows = Array.from(inputs.topK!, (_, row) => {
    const at = inputs.row[row]!;
    const z = logitsOf(inputs.tokens[at]!, inputs.position[at]!);
    const { filters, draw, entries, mask } = rowSampling(numbers, row, z.length);
    const total = logSumExp(z);
    const token = chooseToken(adjustLogits(z, filters, entries, mask), filters, draw);
    const top = largestTokens(z, inputs.topCount![row]!);
    const padded = <T>(values: readonly T[], by: T): T[] => [
      ...values,
      ...new Array<T>(MAX_TOP_TOKENS - values.length).fill(by),
    ];
    return {
      ...{ token, logProb: z[token]! - total, tokens: padded(top, 0) },
      logProbs: padded(
        top.map((each) => z[each]! - total),
        0,
      ),
    };
  });
  return {
    token: Int32Array.from(rows, ({ token }) => token),
    logProb: Float32Array.from(rows, ({ logProb }) => logProb),
    topTokens: Int32Array.from(rows.flatMap(({ tokens }) => tokens)),
    topLogProbs: Float32Array.from(rows.flatMap(({ logProbs }) => logProbs)),
  };
}
