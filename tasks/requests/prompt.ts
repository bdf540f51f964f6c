/** A prompt as messages, and how the public harness joins their texts. */
import { UserError } from '../../errors.js';
import { str } from '../../python/show.js';
import { asInt, isList, isSpace, typeName, type PyValue } from '../../python/value.js';
import { KeyField, type Keys, type Source } from './keys.js';

export interface PromptMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
  /** Follows the content where there is no chat template. */
  readonly delimiter: string;
}

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

const meetsSpace = (before: string, after: string): boolean => isSpace(before.slice(-1)) || isSpace(after.slice(0, 1));

/** Both texts, with the delimiter between them unless one is empty or white space meets there. */
export function delimit(before: string, after: string, delimiter: string): string {
  if (before === '' || after === '') return before + after;
  return meetsSpace(before, after) ? before + after : before + delimiter + after;
}

export const needsDelimiter = (before: string, after: string): boolean => before !== '' && !meetsSpace(before, after);

export const joined = (messages: readonly PromptMessage[]): string =>
  messages.map(({ content, delimiter }) => content + delimiter).join('');

const bare = ({ role, content }: PromptMessage): ChatMessage => ({ role, content });

/** Each message by itself, or all before the answer's prefix as one of the user. */
export function chatMessages(messages: readonly PromptMessage[], isMultiturn: boolean): ChatMessage[] {
  if (isMultiturn) return messages.map(bare);
  const system = messages[0]?.role === 'system' ? [bare(messages[0])] : [];
  const rest = messages.slice(system.length);
  const answer = rest.at(-1)?.role === 'assistant' ? [bare(rest.at(-1)!)] : [];
  const asked = rest.slice(0, rest.length - answer.length);
  const content = joined(asked.slice(0, -1)) + (asked.at(-1)?.content ?? '');
  return [...system, { role: 'user', content }, ...answer];
}

// One side of a prompt: how the question itself, or its shots, are made of a document.

export interface Side {
  /** The task's file, for messages. */
  readonly file: string;
  readonly text: KeyField;
  readonly target: KeyField;
  readonly choices: KeyField | undefined;
  readonly prefix: KeyField | undefined;
  readonly targetDelimiter: string;
  readonly fewshotDelimiter: string;
}

/** A bare name: the harness takes it for text where no column has it, which nobody means. */
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** `overrides`: keys of fewshot_config. Throws UserError for what is missing or outside the subset. */
export function sideOf(keys: Keys, overrides: ReadonlyMap<string, Source>, columns: ReadonlySet<string>): Side {
  const read = (key: string): Source => overrides.get(key) ?? keys.source(key);
  const field = (key: string): KeyField | undefined => {
    const value = read(key);
    if (value === null) return undefined;
    const where = keys.where(overrides.has(key) ? 'fewshot_config' : key);
    if (typeof value === 'string' && NAME.test(value) && key.startsWith('doc_to_') && !columns.has(value))
      throw new UserError(
        `${where}: there is no column "${value}"; there are ${[...columns].join(', ').slice(0, 300)}`,
        `For the text itself, write: {{"${value}"}}`,
      );
    return new KeyField(value, columns, where);
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
  text: PyValue,
  answer: PyValue | undefined,
  prefix: string,
  side: Side,
  choices: readonly PyValue[] | undefined,
  at: string,
): PromptMessage[] {
  if (typeof text !== 'string') throw new UserError(`${side.file}, ${at}: doc_to_text is ${typeName(text)}, no text`);
  const hasAnswer = answer !== undefined && answer !== null && answer !== '';
  const isDelimited = prefix === '' ? hasAnswer : needsDelimiter(text, prefix);
  const asked: PromptMessage = { role: 'user', content: text, delimiter: isDelimited ? side.targetDelimiter : '' };
  if (!hasAnswer) return prefix === '' ? [asked] : [asked, { role: 'assistant', content: prefix, delimiter: '' }];
  const place = choices === undefined ? undefined : asInt(answer);
  const shown = place !== undefined ? choices?.at(Number(place)) : isList(answer) ? answer[0] : answer;
  if (typeof shown !== 'string') throw new UserError(`${side.file}, ${at}: the answer of a shot is no text`);
  return [asked, { role: 'assistant', content: delimit(prefix, shown, ' '), delimiter: side.fewshotDelimiter }];
}
