/** One side of a prompt: how the question itself, or its shots, are made of a document. */
import { UserError } from '../../errors.js';
import { str } from '../../python/show.js';
import { asInt, isList, typeName, type Value } from '../../python/value.js';
import { Field, type Source } from './fields.js';
import type { Keys } from './keys.js';
import { delimit, needsDelimiter, type Message } from './messages.js';

export interface Side {
  /** The task's file, for messages. */
  readonly file: string;
  readonly text: Field;
  readonly target: Field;
  readonly choices: Field | undefined;
  readonly prefix: Field | undefined;
  readonly targetDelimiter: string;
  readonly fewshotDelimiter: string;
}

/** A bare name: the harness takes it for text where no column has it, which nobody means. */
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** `overrides`: keys of fewshot_config. Throws UserError for what is missing or outside the subset. */
export function sideOf(keys: Keys, overrides: ReadonlyMap<string, Source>, columns: ReadonlySet<string>): Side {
  const read = (key: string): Source => overrides.get(key) ?? keys.source(key);
  const field = (key: string): Field | undefined => {
    const value = read(key);
    if (value === null) return undefined;
    const where = keys.where(overrides.has(key) ? 'fewshot_config' : key);
    if (typeof value === 'string' && NAME.test(value) && key.startsWith('doc_to_') && !columns.has(value))
      throw new UserError(
        `${where}: there is no column "${value}"; there are ${[...columns].join(', ').slice(0, 300)}`,
        `For the text itself, write: {{"${value}"}}`,
      );
    return new Field(value, columns, where);
  };
  const text = field('doc_to_text'),
    target = field('doc_to_target');
  if (text === undefined || target === undefined)
    throw new UserError(`${keys.at}: doc_to_text or doc_to_target is missing`);
  const delimiter = (key: string, otherwise: string): string => {
    const value = read(key) ?? otherwise;
    if (typeof value === 'function') throw new UserError(`${keys.where(key)}: expected text`);
    return str(value);
  };
  return {
    file: keys.at,
    text,
    target,
    choices: field('doc_to_choice'),
    prefix: field('gen_prefix'),
    targetDelimiter: delimiter('target_delimiter', ' '),
    fewshotDelimiter: delimiter('fewshot_delimiter', '\n\n'),
  };
}

/** The messages of a question, with its answer where it is a shot. `at` names the document. */
export function question(
  text: Value,
  answer: Value | undefined,
  prefix: string,
  side: Side,
  choices: readonly Value[] | undefined,
  at: string,
): Message[] {
  if (typeof text !== 'string') throw new UserError(`${side.file}, ${at}: doc_to_text is ${typeName(text)}, no text`);
  const hasAnswer = answer !== undefined && answer !== null && answer !== '';
  const isDelimited = prefix === '' ? hasAnswer : needsDelimiter(text, prefix);
  const asked: Message = { role: 'user', content: text, delimiter: isDelimited ? side.targetDelimiter : '' };
  if (!hasAnswer) return prefix === '' ? [asked] : [asked, { role: 'assistant', content: prefix, delimiter: '' }];
  const place = choices === undefined ? undefined : asInt(answer);
  const shown = place !== undefined ? choices?.at(Number(place)) : isList(answer) ? answer[0] : answer;
  if (typeof shown !== 'string') throw new UserError(`${side.file}, ${at}: the answer of a shot is no text`);
  return [asked, { role: 'assistant', content: delimit(prefix, shown, ' '), delimiter: side.fewshotDelimiter }];
}
