/** How the next token is chosen: what a request may ask for. */
import { z } from 'zod';
import { UsageError } from '../errors.js';
import { noiseKey } from '../ir/gumbel.js';
import { MAX_TEMPERATURE, MAX_TOP_LOGPROBS } from './limits.js';
import { above, from, wholeFrom } from './ranges.js';

const MAX_TOKEN = 2 ** 31 - 1;

const MAX_PENALTY = 2;
const MAX_BIAS = 100;

/** One schema for the command line, the library and the commands. ir/filters says in which order they apply. */
export const samplingFields = {
  /** Divides the logits; 0, the default, takes the most likely token. */
  temperature: from(0, MAX_TEMPERATURE).optional(),
  /** The same seed draws the same tokens, alone or beside others. Default 0. */
  seed: wholeFrom(0, Number.MAX_SAFE_INTEGER).optional(),
  /** Draws from the most likely tokens only, as many as this; 0, the default, from all, and so does -1. */
  topK: wholeFrom(-1, MAX_TOKEN).optional(),
  /**
   * Draws from the fewest most likely tokens that have this probability together. Default 1: from all. 0: the most
   * likely one.
   */
  topP: from(0, 1).optional(),
  /** Draws from tokens with at least this share of the most likely one's probability. Default 0: from all. */
  minP: from(0, 1).optional(),
  /** Divides positive logits of tokens that came before, and multiplies negative ones. Default 1. */
  repetitionPenalty: above(0, 100).optional(),
  /** Taken from the logits of tokens that were generated, once, and as often as they were. Default 0. */
  presencePenalty: from(-MAX_PENALTY, MAX_PENALTY).optional(),
  frequencyPenalty: from(-MAX_PENALTY, MAX_PENALTY).optional(),
  /** Added to the logits of tokens: [token, bias]. */
  logitBias: z
    .array(z.tuple([wholeFrom(0, MAX_TOKEN), from(-MAX_BIAS, MAX_BIAS)]).readonly())
    .max(1024, 'expected at most 1024 tokens')
    .readonly()
    .optional(),
  /** Log-probabilities of this many most likely tokens come with each token. Default 0. */
  topLogProbs: wholeFrom(0, MAX_TOP_LOGPROBS).optional(),
};

const samplingSchema = z.strictObject(samplingFields);
export type SamplingOptions = Readonly<z.infer<typeof samplingSchema>>;

/** Options with their defaults. */
export type Sampling = {
  readonly [Name in Exclude<keyof SamplingOptions, 'seed'>]-?: Exclude<SamplingOptions[Name], undefined>;
} & { readonly seed: bigint };

/** Temperatures below this take the most likely token: their reciprocals would leave the range of useful logits. */
const MIN_TEMPERATURE = 1e-5;

/** Whether the most likely token is taken. */
export const isGreedy = ({ temperature }: Pick<Sampling, 'temperature'>): boolean => temperature < MIN_TEMPERATURE;

/** Whether penalties ask which tokens came before. */
export const isPenalised = ({ repetitionPenalty, presencePenalty, frequencyPenalty }: Sampling): boolean =>
  repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;

/** Whether a token is chosen from a whole row of logits, which the head alone does not keep. */
export function needsRow(sampling: Sampling): boolean {
  const { topK, topP, minP, logitBias, topLogProbs } = sampling;
  const isFiltered = !isGreedy(sampling) && (topK > 0 || topP < 1 || minP > 0);
  return isFiltered || isPenalised(sampling) || logitBias.length > 0 || topLogProbs > 0;
}

/** The same of options as they are given. */
export const needsLogits = (options: SamplingOptions): boolean => needsRow(resolveSampling(options));

/** The options that are sampling's own, of all that a request has. */
export const samplingOf = (options: SamplingOptions): SamplingOptions =>
  Object.fromEntries(
    Object.keys(samplingFields).flatMap((name) => {
      const value = options[name as keyof SamplingOptions];
      return value === undefined ? [] : [[name, value]];
    }),
  );

/** The seed of a continuation of its own, of several that have one seed. The first has that seed itself. */
function seedOf(seed: number, sample: number): bigint {
  if (sample === 0) return BigInt(seed);
  const { low, high } = noiseKey(BigInt(seed), -sample);
  return (BigInt(high) << 32n) | BigInt(low >>> 0);
}

/** Throws UsageError where a value is out of range. `sample`: which of several continuations it is for. */
export function resolveSampling(options: SamplingOptions, sample = 0): Sampling {
  const checked = samplingSchema.safeParse(options);
  if (!checked.success) {
    const [issue] = checked.error.issues;
    throw new UsageError(`sampling: ${issue?.path.join('.') ?? 'options'}: ${issue?.message ?? 'not understood'}`);
  }
  const { data } = checked;
  return {
    temperature: data.temperature ?? 0,
    // One token at least is always kept.
    topK: data.topP === 0 ? 1 : Math.max(0, data.topK ?? 0),
    topP: data.topP === 0 ? 1 : (data.topP ?? 1),
    minP: data.minP ?? 0,
    repetitionPenalty: data.repetitionPenalty ?? 1,
    presencePenalty: data.presencePenalty ?? 0,
    frequencyPenalty: data.frequencyPenalty ?? 0,
    logitBias: data.logitBias ?? [],
    topLogProbs: data.topLogProbs ?? 0,
    seed: seedOf(data.seed ?? 0, sample),
  };
}
