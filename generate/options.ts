/** What may be asked of a continuation: one schema for the command line, the library and the commands. */
import { z } from 'zod';
import { UsageError } from '../errors.js';
import { DEFAULT_NEW_TOKENS, MAX_BEAMS, MAX_SAMPLES } from './limits.js';
import { wholeFrom } from './ranges.js';
import { isGreedy, needsLogits, samplingFields, samplingOf } from './sampling.js';

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
