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
}

/** How tokens are drawn. */
export interface Drawing {
  readonly temperature: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
}

/** What the harness generates where a task does not say. */
const DEFAULT_TOKENS = 256;
const MOST_TOKENS = 2 ** 31 - 1;
/** Names of the most tokens to generate; of several the first one counts. */
const LENGTHS = ['max_gen_toks', 'max_new_tokens', 'max_tokens', 'max_completion_tokens'];
const NUMBERS = {
  top_k: { name: 'topK', least: 0, most: 2 ** 31 - 1 },
  top_p: { name: 'topP', least: Number.MIN_VALUE, most: 1 },
  min_p: { name: 'minP', least: 0, most: 1 },
  repetition_penalty: { name: 'repetitionPenalty', least: Number.MIN_VALUE, most: 100 },
} as const;
const OTHERS = ['until', 'do_sample', 'temperature', 'num_beams'];
const MOST_TEMPERATURE = 100;

/** Throws UserError for a setting that is not there, or out of its range. */
export function generationOf(settings: Dict, where: string): Generation {
  const known = [...LENGTHS, ...Object.keys(NUMBERS), ...OTHERS];
  for (const key of settings.keys())
    if (!known.includes(key))
      throw new UserError(`${where}: ${quote(key)} is not supported`, `There are ${known.join(', ')}`);
  const fail = (key: string, expected: string): UserError => new UserError(`${where}: ${key}: expected ${expected}`);
  const given = (key: string): Value => settings.get(key) ?? null;
  const number = (key: string, least: number, most: number): number | undefined => {
    if (given(key) === null) return undefined;
    const value = typeof given(key) === 'boolean' ? undefined : numeric(given(key));
    if (value === undefined || !(value >= least && value <= most))
      throw fail(key, `a number ${least === 0 ? 'from 0 ' : ''}up to ${most}`);
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
  const filters = Object.entries(NUMBERS).flatMap(([key, { name, least, most }]) => {
    const value = number(key, least, most);
    return value === undefined ? [] : [[name, value] as const];
  });
  return {
    maxNewTokens: Number(maxNewTokens),
    stop: texts.filter((text) => text !== ''),
    ...(draws ? { drawing: { temperature, ...Object.fromEntries(filters) } } : {}),
  };
}
