/** Lines of a file that a verifier scores: tokens, a question with the steps of its answer, or a conversation. */
import { basename } from 'node:path';
import { BESIDE_MESSAGES, type ConversationPrompt, promptSchema } from '../engine/prompts.js';
import { UserError } from '../errors.js';
import { REWARD_LINE } from '../models/heads/solutionTexts.js';
import { parseJsonValue } from '../python/literal.js';
import { type Dict, isDict } from '../python/value.js';
import { isRecord, parseJson, quote } from '../system/json.js';
import { type FileWords, type LineBounds, nameOf, readLines } from '../system/lines.js';

export type RewardInput =
  /** `rows`: positions of tokens, from 0, in the order of their scores. */
  | { readonly kind: 'tokens'; readonly tokens: readonly number[]; readonly rows?: readonly number[] }
  | { readonly kind: 'steps'; readonly question: string; readonly steps: readonly string[] }
  /** `exact`: the line as Python reads it. */
  | { readonly kind: 'messages'; readonly prompt: ConversationPrompt; readonly exact?: Dict };

export type RewardId = string | number;

export interface RewardLine {
  /** `solutions.jsonl:17`, for messages. */
  readonly where: string;
  /** That of the line, else its number from 0. */
  readonly id: RewardId;
  readonly input: RewardInput;
}

const WORDS: FileWords = { noun: 'file of solutions', flag: '--input', item: 'solution', command: 'reward MODEL' };
const BOUNDS: LineBounds = { maxLineBytes: 4 << 20, maxTotalBytes: 256 << 20, maxRatio: 200 };
const MAX_LINES = 1_000_000;
const MAX_TOKENS = 1 << 20;
const MAX_STEPS = 10_000;
const MAX_ID = 1000;

const KINDS = ['tokens', 'question', 'messages'] as const;
/** Fields that each kind has beside its own name. */
const BESIDE: Readonly<Record<(typeof KINDS)[number], readonly string[]>> = {
  tokens: ['rows'],
  question: ['steps'],
  messages: BESIDE_MESSAGES.filter((key) => key !== 'add_generation_prompt'),
};

/** Throws UserError that names the file and the line. */
export async function readRewardLines(path: string, signal?: AbortSignal): Promise<readonly RewardLine[]> {
  const name = basename(nameOf(path));
  const lines: RewardLine[] = [];
  for await (const { number, text } of readLines(path, WORDS, { bounds: BOUNDS, signal })) {
    const where = `${name}:${number}`;
    if (lines.length >= MAX_LINES) throw new UserError(`${where}: more than ${MAX_LINES} lines`, 'split the file');
    lines.push(parseLine(text, where, lines.length));
  }
  if (lines.length === 0) throw new UserError(`${nameOf(path)} holds no solutions`, REWARD_LINE);
  return lines;
}

function parseLine(text: string, where: string, index: number): RewardLine {
  const value = parseJson(text, where, REWARD_LINE);
  if (!isRecord(value)) throw new UserError(`${where}: expected a JSON object, got ${quote(value)}`, REWARD_LINE);
  const { id, ...fields } = value;
  const input = readInput(fields, where);
  const named = { where, id: idOf(id, where) ?? index };
  if (input.kind !== 'messages') return { ...named, input };
  const exact = parseJsonValue(text);
  return { ...named, input: isDict(exact) ? { ...input, exact } : input };
}

function idOf(id: unknown, where: string): RewardId | undefined {
  if (id === undefined || id === null) return undefined;
  if (typeof id === 'number' && Number.isFinite(id)) return id;
  if (typeof id === 'string' && id.length <= MAX_ID) return id;
  throw new UserError(`${where}: id: expected a number, or a text of at most ${MAX_ID} characters`, REWARD_LINE);
}

/** What the fields of a line, without its id, mean. Throws UserError that begins with `where`. */
export function readInput(fields: Readonly<Record<string, unknown>>, where: string): RewardInput {
  const fail = (what: string): never => {
    throw new UserError(`${where}: ${what}`, REWARD_LINE);
  };
  const given = KINDS.filter((kind) => fields[kind] !== undefined);
  const [kind] = given;
  if (kind === undefined || given.length > 1)
    return fail(
      kind === undefined
        ? 'there is nothing to score: no tokens, no question and no messages'
        : `${given.join(' and ')} are given at once`,
    );
  const stray = Object.keys(fields).find((key) => key !== kind && !BESIDE[kind].includes(key));
  if (stray !== undefined) return fail(`unknown field ${quote(stray)} beside ${kind}`);
  switch (kind) {
    case 'tokens':
      return readTokens(fields, fail);
    case 'question':
      return readSteps(fields, fail);
    case 'messages': {
      const parsed = promptSchema.safeParse(fields);
      if (parsed.success && 'messages' in parsed.data) return { kind, prompt: parsed.data };
      const [issue] = parsed.error?.issues ?? [];
      return fail(`messages: ${issue?.message ?? 'not understood'}`);
    }
    default:
      return kind satisfies never;
  }
}

type Fail = (what: string) => never;

const isWhole = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

function readTokens({ tokens, rows }: Readonly<Record<string, unknown>>, fail: Fail): RewardInput {
  if (!Array.isArray(tokens) || tokens.length === 0 || tokens.length > MAX_TOKENS || !tokens.every(isWhole))
    return fail(`tokens: expected a list of 1 to ${MAX_TOKENS} token ids`);
  if (rows === undefined || rows === null) return { kind: 'tokens', tokens };
  if (!Array.isArray(rows) || rows.length === 0 || rows.length > MAX_TOKENS || !rows.every(isWhole))
    return fail('rows: expected a list of positions of tokens, counted from 0');
  const outside = rows.find((row) => row >= tokens.length);
  if (outside !== undefined) return fail(`rows: ${outside} is behind the last of ${tokens.length} tokens`);
  return { kind: 'tokens', tokens, rows };
}

const isText = (value: unknown): value is string => typeof value === 'string' && value.trim() !== '';

function readSteps({ question, steps }: Readonly<Record<string, unknown>>, fail: Fail): RewardInput {
  if (!isText(question)) return fail('question: expected a text that is not empty');
  if (!Array.isArray(steps) || steps.length === 0 || steps.length > MAX_STEPS)
    return fail(`steps: expected a list of 1 to ${MAX_STEPS} texts`);
  // A text that ends in the separator of its steps splits into one more, which is empty: its score would say nothing.
  const empty = steps.findIndex((step) => !isText(step));
  if (empty >= 0)
    return fail(
      typeof steps[empty] === 'string'
        ? `steps[${empty}] is empty, and a score of it would say nothing: leave it out`
        : `steps[${empty}]: expected a text, got ${quote(steps[empty])}`,
    );
  return { kind: 'steps', question, steps: steps as readonly string[] };
}
