/** generation_kwargs of a task as what a generator is asked for. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { isInt, isList, isTruthy, numeric, type Dict, type Value } from '../../python/value.js';

export interface Generation {
  readonly maxNewTokens: number;
  /** Texts that end an answer. */
  readonly stop: readonly string[];
  /** Absent: the most likely token is taken each time. */
  readonly drawing?: Drawing;
  /** Changes which token is the most likely one, too. */
  readonly repetitionPenalty?: number;
  /** No token that ends a text comes before it has so many; texts of `stop` do. */
  readonly minNewTokens?: number;
  /** The same with the tokens of the prompt. */
  readonly minLength?: number;
}

/** How tokens are drawn. */
export interface Drawing {
  readonly temperature: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
}

/** What a model's own files ask where a task does not say. */
export type ModelDefaults = Pick<Drawing, 'topK' | 'topP' | 'minP'> &
  Pick<Generation, 'repetitionPenalty' | 'minNewTokens' | 'minLength'>;

/** What the harness generates where a task does not say. */
const DEFAULT_TOKENS = 256;
const MOST_TOKENS = 2 ** 31 - 1;
/** Names of the most tokens to generate; of several the first one counts. */
const LENGTHS = ['max_gen_toks', 'max_new_tokens', 'max_tokens', 'max_completion_tokens'];
/** Of drawn texts: without a temperature they have no say, whatever they are. */
const FILTERS = {
  // vLLM writes -1 for "from all tokens".
  top_k: { name: 'topK', least: -1, most: 2 ** 31 - 1 },
  top_p: { name: 'topP', least: 0, most: 1 },
  min_p: { name: 'minP', least: 0, most: 1 },
} as const;
const OTHERS = ['until', 'do_sample', 'temperature', 'repetition_penalty', 'num_beams'];
const MOST_TEMPERATURE = 100;

/** Throws UserError for a setting that is not there, or out of its range. */
export function generationOf(settings: Dict, where: string): Generation {
  const known = [...LENGTHS, ...Object.keys(FILTERS), ...OTHERS];
  for (const key of settings.keys())
    if (!known.includes(key))
      throw new UserError(`${where}: ${quote(key)} is not supported`, `There are ${known.join(', ')}`);
  const fail = (key: string, expected: string): UserError => new UserError(`${where}: ${key}: expected ${expected}`);
  const given = (key: string): Value => settings.get(key) ?? null;
  const number = (key: string, least: number, most: number): number | undefined => {
    if (given(key) === null) return undefined;
    const value = typeof given(key) === 'boolean' ? undefined : numeric(given(key));
    if (value === undefined || !(value >= least && value <= most))
      throw fail(key, `a number ${least === Number.MIN_VALUE ? 'above 0 ' : `from ${least} `}up to ${most}`);
    return value;
  };
  const length = LENGTHS.find((key) => given(key) !== null);
  const maxNewTokens = length === undefined ? DEFAULT_TOKENS : given(length);
  if (!isInt(maxNewTokens) || maxNewTokens < 1 || maxNewTokens > MOST_TOKENS)
    throw fail(length ?? 'max_gen_toks', `a whole number from 1 to ${MOST_TOKENS}`);
  const until = given('until');
  const texts = until === null ? [] : isList(until) ? until : [until];
  if (!texts.every((text) => typeof text === 'string')) throw fail('until', 'a text, or a list of texts');
  if ((number('num_beams', 1, 1e6) ?? 1) !== 1)
    throw new UserError(
      `${where}: num_beams: a search with beams is not supported for tasks`,
      'leave it out, or write 1',
    );
  const temperature = number('temperature', 0, MOST_TEMPERATURE) ?? 0;
  const draws = given('do_sample') === null ? temperature > 0 : isTruthy(given('do_sample')) && temperature > 0;
  const repetitionPenalty = number('repetition_penalty', Number.MIN_VALUE, 100);
  const common = {
    maxNewTokens: Number(maxNewTokens),
    stop: texts.filter((text) => text !== ''),
    ...(repetitionPenalty === undefined ? {} : { repetitionPenalty }),
  };
  if (!draws) return common;
  const filters = Object.entries(FILTERS).flatMap(([key, { name, least, most }]) => {
    const value = number(key, least, most);
    return value === undefined ? [] : [[name, value] as const];
  });
  return { ...common, drawing: { temperature, ...Object.fromEntries(filters) } };
}

/** What a task asks, and else what the model's files say. */
export function withDefaults(generation: Generation, defaults: ModelDefaults): Generation {
  const { topK, topP, minP, ...others } = defaults;
  const { drawing } = generation;
  if (drawing === undefined) return { ...others, ...generation };
  const filters = Object.fromEntries(Object.entries({ topK, topP, minP }).filter(([, value]) => value !== undefined));
  return { ...others, ...generation, drawing: { ...filters, ...drawing } };
}
