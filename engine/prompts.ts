/** Prompts, as arguments, files and programs give them. */
import { basename } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { parseJsonValue } from '../python/literal.js';
import { type Dict, isDict } from '../python/value.js';
import { isRecord, parseJson, quote } from '../system/json.js';
import { type FileWords, type LineBounds, nameOf, readLines } from '../system/lines.js';
import { OWN_VARIABLES, ownVariable } from './limits.js';

const MAX_TOKENS = 1 << 20;
const MAX_MESSAGES = 10_000;
const MAX_TOOLS = 10_000;

/** What a chat template makes of other keys, such as `tool_calls`, is its own. */
const message = z
  .looseObject({
    /** `system`, `user`, `assistant`, `tool`, or what else the model's template knows. */
    role: z.string().min(1).max(100),
  })
  .refine((keys) => Object.keys(keys).length > 1, { message: 'there is no content', path: ['content'] })
  .refine(({ content = null }) => content === null || typeof content === 'string' || Array.isArray(content), {
    message: 'expected a text, a list of parts or null',
    path: ['content'],
  });
export type Message = Readonly<z.infer<typeof message>>;

const tokenId = z.number().int().min(0);
const records = z.array(z.record(z.string(), z.unknown())).max(MAX_TOOLS).readonly().nullable().optional();

/** A conversation and what else its template is given. */
const conversation = z.strictObject({
  messages: z.array(message).min(1).max(MAX_MESSAGES).readonly(),
  /** Functions that may be called, as JSON schemas. */
  tools: records,
  /** Texts to answer from, with titles. */
  documents: records,
  /** Further variables of the template, such as `enable_thinking`. */
  chat_template_kwargs: z
    .record(z.string(), z.unknown())
    .refine((variables) => ownVariable(Object.keys(variables)) === undefined, {
      message: `${OWN_VARIABLES.slice(0, -1).join(', ')} and ${OWN_VARIABLES.at(-1) ?? ''} stand beside it, not in it`,
    })
    .optional(),
  /** Whether the text ends with the beginning of an answer: true, unless the last message is to be continued. */
  add_generation_prompt: z.boolean().optional(),
});
export type ConversationPrompt = Readonly<z.infer<typeof conversation>>;

/** Exactly one of `prompt`, `tokens` and `messages`. */
export const promptSchema = z.union([
  /** A text, which gets the tokenizer's own special tokens. */
  z.strictObject({ prompt: z.string() }),
  /** Token ids as they are. */
  z.strictObject({ tokens: z.array(tokenId).min(1).max(MAX_TOKENS).readonly() }),
  /** A conversation, written as the model's own template says. */
  conversation,
]);
export type Prompt = Readonly<z.infer<typeof promptSchema>>;

/** Fields that a conversation may have beside its messages. */
export const BESIDE_MESSAGES: readonly string[] = Object.keys(conversation.shape).filter((key) => key !== 'messages');

/** A prompt and where it is from, for messages: `prompts.jsonl:17`. */
export interface NamedPrompt {
  readonly where: string;
  readonly prompt: Prompt;
  /** Name of the adapter that it is computed with. Absent: none is named. */
  readonly adapter?: string;
  /** Of a conversation in a file: the line as Python reads it, with 1.0 as a float and keys in their order. */
  readonly exact?: Dict;
}

/**
 * Reads prompts from a file, a pipe or the standard input. In a text each line is a prompt; JSON lines hold one of
 * `prompt`, `tokens` and `messages`, and may name an `adapter`.
 */

const WORDS: FileWords = { noun: 'prompt file', flag: '--prompts', item: 'prompt', command: 'generate MODEL' };
const BOUNDS: LineBounds = { maxLineBytes: 4 << 20, maxTotalBytes: 256 << 20, maxRatio: 200 };
const MAX_PROMPTS = 1_000_000;
const MAX_NAME = 200;
const RECORD = 'a line is one of {"prompt": "…"}, {"tokens": [1, 2]}, {"messages": [{"role": "user", "content": "…"}]}';
const FIELDS = ['prompt', 'tokens', 'messages'] as const;

/** JSON lines where the name says so, or where the first line begins an object. */
const isJsonFile = (path: string, firstLine: string): boolean =>
  /\.(jsonl|ndjson)(\.gz)?$/i.test(path) || firstLine.trimStart().startsWith('{');

/** Throws UserError that names the file and the line. */
export async function readPrompts(path: string, signal?: AbortSignal): Promise<readonly NamedPrompt[]> {
  const name = basename(nameOf(path));
  const prompts: NamedPrompt[] = [];
  let isJson: boolean | undefined;
  for await (const { number, text } of readLines(path, WORDS, { bounds: BOUNDS, signal })) {
    isJson ??= isJsonFile(path, text);
    const where = `${name}:${number}`;
    if (prompts.length >= MAX_PROMPTS)
      throw new UserError(`${where}: more than ${MAX_PROMPTS} prompts`, 'split the file');
    if (!isJson) prompts.push({ where, prompt: { prompt: text.replace(/\r$/, '') } });
    else {
      const { prompt, ...named } = parsePrompt(text, where);
      const exact = 'messages' in prompt ? parseJsonValue(text) : null;
      prompts.push({ where, prompt, ...named, ...(isDict(exact) ? { exact } : {}) });
    }
  }
  if (prompts.length === 0) throw new UserError(`${nameOf(path)} holds no prompts`, 'write a prompt on each line');
  return prompts;
}

function parsePrompt(text: string, where: string): Pick<NamedPrompt, 'prompt' | 'adapter'> {
  const line = parseJson(text, where, RECORD);
  if (!isRecord(line)) throw new UserError(`${where}: expected a JSON object, got ${quote(line)}`, RECORD);
  const { adapter, ...value } = line;
  if (adapter !== undefined && (typeof adapter !== 'string' || adapter === '' || adapter.length > MAX_NAME))
    throw new UserError(`${where}: adapter: expected the name of one, got ${quote(adapter)}`, RECORD);
  const allowed: readonly string[] = 'messages' in value ? [...FIELDS, ...BESIDE_MESSAGES] : FIELDS;
  const stray = Object.keys(value).find((key) => !allowed.includes(key));
  if (stray !== undefined) throw new UserError(`${where}: unknown field ${quote(stray)}`, RECORD);
  const given = FIELDS.filter((field) => field in value);
  if (given.length !== 1)
    throw new UserError(
      `${where}: ${given.length === 0 ? 'there is no prompt' : `${given.join(' and ')} are given at once`}`,
      RECORD,
    );
  const parsed = promptSchema.safeParse(value);
  if (!parsed.success) throw new UserError(`${where}: ${describe(value, given[0]!)}`, RECORD);
  return { prompt: parsed.data, ...(adapter === undefined ? {} : { adapter }) };
}

/** What is wrong with the one field that is given. */
function describe(value: Readonly<Record<string, unknown>>, field: (typeof FIELDS)[number]): string {
  const option = promptSchema.options.find(({ shape }) => field in shape)!;
  const [issue] = option.safeParse(value).error?.issues ?? [];
  const path = issue?.path.map((part, i) =>
    typeof part === 'number' ? `[${part}]` : `${i > 0 ? '.' : ''}${String(part)}`,
  );
  return `${path?.join('') ?? field}: ${issue === undefined ? 'not understood' : wordsOf(issue, value)}`;
}

const KINDS: Readonly<Record<string, string>> = {
  array: 'a list',
  boolean: 'true or false',
  int: 'a whole number',
  number: 'a number',
  object: 'an object',
  record: 'an object',
  string: 'a text',
};

/** An issue as people say it, with what stands there. */
function wordsOf(issue: z.core.$ZodIssue, value: unknown): string {
  const found = issue.path.reduce<unknown>(
    (at, part) => (typeof at === 'object' && at !== null ? (at as Readonly<Record<PropertyKey, unknown>>)[part] : at),
    value,
  );
  switch (issue.code) {
    case 'invalid_type':
      return `expected ${KINDS[issue.expected] ?? issue.expected}, got ${quote(found)}`;
    case 'too_small':
    case 'too_big': {
      const bound = issue.code === 'too_small' ? `at least ${issue.minimum}` : `at most ${issue.maximum}`;
      return Array.isArray(found)
        ? `expected ${bound} of them, got ${found.length}`
        : `expected ${bound}, got ${quote(found)}`;
    }
    default:
      return issue.message;
  }
}
