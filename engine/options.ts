/** What may be asked of a continuation: one schema for the command line, the library and the commands. */
import { z } from 'zod';
import { UsageError } from '../errors.js';
import { noiseKey } from '../ir/gumbel.js';
import { DEFAULT_NEW_TOKENS, MAX_BEAMS, MAX_SAMPLES, MAX_TEMPERATURE, MAX_TOP_LOGPROBS } from './limits.js';

/** Numbers in a range, for schemas: what is refused is told the range. */

/** A number from `least` to `most`. */
export function from(least: number, most: number): z.ZodNumber {
  const error = `expected a number from ${least} to ${most}`;
  return z.number({ error }).min(least, { error }).max(most, { error });
}

/** A number above `least`, at most `most`. */
export function above(least: number, most: number): z.ZodNumber {
  const error = `expected a number above ${least}, at most ${most}`;
  return z.number({ error }).gt(least, { error }).max(most, { error });
}

/** A whole number from `least` to `most`. */
export function wholeFrom(least: number, most: number): z.ZodNumber {
  const error = `expected a whole number from ${least} to ${most}`;
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
}

/** A whole number of 64 bits with a sign, as far as a number can tell those beyond 2^53 apart. */
export function seedNumber(): z.ZodNumber {
  const error = 'expected a whole number of 64 bits';
  return z
    .number({ error })
    .min(-(2 ** 63), { error })
    .max(2 ** 63, { error })
    .multipleOf(1, { error });
}

/** How the next token is chosen: what a request may ask for. */

const MAX_TOKEN = 2 ** 31 - 1;

const MAX_PENALTY = 2;
const MAX_BIAS = 100;

/** One schema for the command line, the library and the commands. ir/filters says in which order they apply. */
export const samplingFields = {
  /** Divides the logits; 0, the default, takes the most likely token. */
  temperature: from(0, MAX_TEMPERATURE).optional(),
  /** The same seed draws the same tokens, alone or beside others: 64 bits. Default 0. */
  seed: seedNumber().optional(),
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

/** Beyond any context of today's models. */
const MAX_NEW_TOKENS = 1 << 20;
const MAX_STOPS = 64;
const MAX_STOP_CHARACTERS = 1000;

export const generateFields = {
  /** Most tokens to generate. */
  maxNewTokens: wholeFrom(1, MAX_NEW_TOKENS).optional(),
  /** No stop token or stop text ends what is generated before it has this many tokens. Default 0. */
  minNewTokens: wholeFrom(0, MAX_NEW_TOKENS).optional(),
  /** Texts that end what is generated; they are not part of it. */
  stop: z.array(z.string().min(1).max(MAX_STOP_CHARACTERS)).max(MAX_STOPS).readonly().optional(),
  /** Goes on after the model's end-of-text token. */
  ignoreEos: z.boolean().optional(),
  /** Continuations of each prompt, 1 by default. */
  n: wholeFrom(1, MAX_SAMPLES).optional(),
  /** Draws this many continuations, and keeps the `n` whose tokens are most likely on average. */
  bestOf: wholeFrom(1, MAX_SAMPLES).optional(),
  /** Searches for the most likely continuation with this many paths, and keeps the `n` best. */
  beams: wholeFrom(1, MAX_BEAMS).optional(),
  ...samplingFields,
  seed: wholeFrom(0, Number.MAX_SAFE_INTEGER).optional(),
};

export const generateSchema = z.strictObject(generateFields);
export type GenerateOptions = Readonly<z.infer<typeof generateSchema>>;
export type GenerateField = keyof typeof generateFields;

/** Options that choose tokens in a way of their own, which a beam search has no use for. */
const NOT_OF_BEAMS = [
  'bestOf',
  'temperature',
  'topK',
  'topP',
  'minP',
  'repetitionPenalty',
  'presencePenalty',
  'frequencyPenalty',
  'logitBias',
  'topLogProbs',
  'minNewTokens',
  'stop',
] as const satisfies readonly GenerateField[];

/** Throws UsageError for options that exclude one another. `nameOf`: how the user writes an option. */
export function checkTogether(options: GenerateOptions, nameOf: (field: GenerateField) => string): void {
  const { n = 1, bestOf, beams, maxNewTokens = DEFAULT_NEW_TOKENS, minNewTokens = 0, temperature = 0 } = options;
  const say = (field: GenerateField): string => `${nameOf(field)} ${String(options[field])}`;
  if (minNewTokens > maxNewTokens)
    throw new UsageError(
      `${say('minNewTokens')}: at most ${maxNewTokens} tokens are generated`,
      `give ${nameOf('maxNewTokens')} ${minNewTokens}, or more`,
    );
  if (beams !== undefined) {
    const other = NOT_OF_BEAMS.find((field) => options[field] !== undefined);
    if (other !== undefined)
      throw new UsageError(
        `${nameOf(other)}: a search with ${say('beams')} looks for the most likely text, and has no use for it`,
        `leave ${nameOf(other)} or ${nameOf('beams')} out`,
      );
    if (n > beams)
      throw new UsageError(`${say('n')}: ${say('beams')} finds only ${beams}`, `give ${nameOf('beams')} ${n}, or more`);
    return;
  }
  if (bestOf !== undefined && n > bestOf)
    throw new UsageError(`${say('n')}: ${say('bestOf')} has only ${bestOf}`, `give ${nameOf('bestOf')} ${n}, or more`);
  const several = bestOf === undefined ? 'n' : 'bestOf';
  if ((bestOf ?? n) > 1 && isGreedy({ temperature }))
    throw new UsageError(
      `${say(several)}: without a temperature they would all be the same text`,
      `draw tokens, ${nameOf('temperature')} 1, or search: ${nameOf('beams')} ${Math.min(bestOf ?? n, MAX_BEAMS)}`,
    );
}

/** Whether the options need logits on the host, for which a model is compiled in another way. */
export const wantsLogits = (options: GenerateOptions): boolean =>
  options.beams !== undefined ||
  ((options.minNewTokens ?? 0) > 0 && options.ignoreEos !== true) ||
  needsLogits(samplingOf(options));
