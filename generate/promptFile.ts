/**
 * Reads prompts from a file, a pipe or the standard input. In a text each line is a prompt; JSON lines hold one of
 * `prompt`, `tokens` and `messages`.
 */
import { basename } from 'node:path';
import type { z } from 'zod';
import { UserError } from '../errors.js';
import { parseJsonValue } from '../python/literal.js';
import { isDict } from '../python/value.js';
import { isRecord, parseJson, quote } from '../system/json.js';
import { type FileWords, type LineBounds, nameOf, readLines } from '../system/lines.js';
import { BESIDE_MESSAGES, type NamedPrompt, type Prompt, promptSchema } from './prompts.js';

const WORDS: FileWords = { noun: 'prompt file', flag: '--prompts', item: 'prompt', command: 'generate MODEL' };
const BOUNDS: LineBounds = { maxLineBytes: 4 << 20, maxTotalBytes: 256 << 20, maxRatio: 200 };
const MAX_PROMPTS = 1_000_000;
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
      const prompt = parsePrompt(text, where);
      const exact = 'messages' in prompt ? parseJsonValue(text) : null;
      prompts.push({ where, prompt, ...(isDict(exact) ? { exact } : {}) });
    }
  }
  if (prompts.length === 0) throw new UserError(`${nameOf(path)} holds no prompts`, 'write a prompt on each line');
  return prompts;
}

function parsePrompt(text: string, where: string): Prompt {
  const value = parseJson(text, where, RECORD);
  if (!isRecord(value)) throw new UserError(`${where}: expected a JSON object, got ${quote(value)}`, RECORD);
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
  return parsed.data;
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
