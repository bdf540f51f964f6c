/** generation_kwargs of a task as what a generator is asked for. */
import { UserError } from '../../errors.js';
import { repr } from '../../python/show.js';
import { type Dict, Float, isEqual, isInt, isList, isTruthy, numeric, type PyValue } from '../../python/value.js';
import { quote } from '../../system/json.js';
import type { Keys } from './keys.js';

export interface Generation {
  readonly maxNewTokens: number;
  /** Texts that end an answer. */
  readonly stop: readonly string[];
  /** Absent: the most likely token is taken each time. */
  readonly drawing?: SamplingSettings;
  /** Changes which token is the most likely one, too. */
  readonly repetitionPenalty?: number;
  /** No token that ends a text comes before it has so many; texts of `stop` do. */
  readonly minNewTokens?: number;
  /** The same with the tokens of the prompt. */
  readonly minLength?: number;
}

/** How tokens are drawn. */
export interface SamplingSettings {
  readonly temperature: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
}

/** What a model's own files ask where a task does not say. */
export type ModelDefaults = Pick<SamplingSettings, 'topK' | 'topP' | 'minP'> &
  Pick<Generation, 'repetitionPenalty' | 'minNewTokens' | 'minLength'>;

/** What the harness generates where a task does not say. */
const DEFAULT_TOKENS = 256;
const MAX_TOKENS = 2 ** 31 - 1;
/** Names of the maximum number of tokens to generate; the first one given counts. */
const LENGTHS = ['max_gen_toks', 'max_new_tokens', 'max_tokens', 'max_completion_tokens'];
/** Of drawn texts: without a temperature they have no say, whatever they are. */
const FILTERS = ['top_k', 'top_p', 'min_p'];
const OTHERS = ['until', 'do_sample', 'temperature', 'repetition_penalty', 'min_new_tokens', 'min_length', 'num_beams'];
/** Settings of transformers and vLLM that there is nothing for, and the values at which they do nothing. */
const OFF: ReadonlyMap<string, PyValue> = new Map<string, PyValue>([
  ['length_penalty', 1],
  ['no_repeat_ngram_size', 0],
  ['encoder_no_repeat_ngram_size', 0],
  ['encoder_repetition_penalty', 1],
  ['diversity_penalty', 0],
  ['presence_penalty', 0],
  ['frequency_penalty', 0],
  ['typical_p', 1],
  ['epsilon_cutoff', 0],
  ['eta_cutoff', 0],
  ['num_beam_groups', 1],
  ['num_return_sequences', 1],
  ['guidance_scale', 1],
  ['early_stopping', false],
  ['use_cache', true],
]);
const MAX_TEMPERATURE = 100;

/** What has a value. */
const present = <T extends Readonly<Record<string, number | undefined>>>(
  all: T,
): { readonly [Name in keyof T]?: number } =>
  Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as {
    readonly [Name in keyof T]?: number;
  };

/** Throws UserError for a setting that is not there, or out of its range. */
export function generationOf(settings: Dict, where: string): Generation {
  const known = [...LENGTHS, ...FILTERS, ...OTHERS];
  for (const [key, value] of settings) {
    if (known.includes(key)) continue;
    const off = OFF.get(key);
    if (off === undefined)
      throw new UserError(`${where}: ${quote(key)} is not supported`, `There are ${known.join(', ')}`);
    if (value !== null && !isEqual(value, off))
      throw new UserError(
        `${where}: ${quote(key)} is not supported, but for ${repr(off)}, which changes nothing`,
        `There are ${known.join(', ')}`,
      );
  }
  const fail = (key: string, expected: string): UserError => new UserError(`${where}: ${key}: expected ${expected}`);
  const given = (key: string): PyValue => settings.get(key) ?? null;
  const number = (key: string, least: number, most: number): number | undefined => {
    if (given(key) === null) return undefined;
    const value = typeof given(key) === 'boolean' ? undefined : numeric(given(key));
    if (value === undefined || !(value >= least && value <= most))
      throw fail(key, `a number ${least === Number.MIN_VALUE ? 'above 0 ' : `from ${least} `}up to ${most}`);
    return value;
  };
  const length = LENGTHS.find((key) => given(key) !== null);
  const maxNewTokens = length === undefined ? DEFAULT_TOKENS : given(length);
  if (!isInt(maxNewTokens) || maxNewTokens < 1 || maxNewTokens > MAX_TOKENS)
    throw fail(length ?? 'max_gen_toks', `a whole number from 1 to ${MAX_TOKENS}`);
  const until = given('until');
  const texts = until === null ? [] : isList(until) ? until : [until];
  if (!texts.every((text) => typeof text === 'string')) throw fail('until', 'a text, or a list of texts');
  if ((number('num_beams', 1, 1e6) ?? 1) !== 1)
    throw new UserError(
      `${where}: num_beams: a search with beams is not supported for tasks`,
      'leave it out, or write 1',
    );
  const temperature = number('temperature', 0, MAX_TEMPERATURE) ?? 0;
  const draws = given('do_sample') === null ? temperature > 0 : isTruthy(given('do_sample')) && temperature > 0;
  const whole = (key: string): number | undefined => {
    const value = number(key, 0, MAX_TOKENS);
    if (value !== undefined && !Number.isInteger(value)) throw fail(key, 'a whole number');
    return value;
  };
  const common = {
    maxNewTokens: Number(maxNewTokens),
    stop: texts.filter((text) => text !== ''),
    ...present({
      repetitionPenalty: number('repetition_penalty', Number.MIN_VALUE, 100),
      minNewTokens: whole('min_new_tokens'),
      minLength: whole('min_length'),
    }),
  };
  if (!draws) return common;
  const filters = {
    // vLLM writes -1 for "from all tokens".
    topK: number('top_k', -1, MAX_TOKENS),
    topP: number('top_p', 0, 1),
    minP: number('min_p', 0, 1),
  };
  return { ...common, drawing: { temperature, ...present(filters) } };
}

/** What a task asks, and else what the model's files say. */
export function withDefaults(generation: Generation, defaults: ModelDefaults): Generation {
  const { topK, topP, minP, ...others } = defaults;
  const { drawing } = generation;
  if (drawing === undefined) return { ...others, ...generation };
  return { ...others, ...generation, drawing: { ...present({ topK, topP, minP }), ...drawing } };
}

// What a task that generates text asks for.

/** What generate_until takes: the task's settings with the harness's defaults. */
export function generation(keys: Keys, delimiter: string): Dict {
  if (keys.get('generation_kwargs') === null) {
    return new Map<string, PyValue>([
      ['temperature', new Float(0)],
      ['do_sample', false],
      ['max_gen_toks', 256],
      ['until', [delimiter]],
    ]);
  }
  const settings = new Map(keys.dict('generation_kwargs'));
  const temperature = settings.get('temperature');
  if (isInt(temperature)) settings.set('temperature', new Float(Number(temperature)));
  if (!settings.has('until')) settings.set('until', [delimiter]);
  return settings;
}
