/** Solutions as a verifier reads them: tokens, and the positions of the tokens that its scores stand at. */
import { UserError } from '../errors.js';
import type { Layout, Piece, Rows, Turn } from '../models/heads/layout.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { quote } from '../system/json.js';
import { count, counted } from '../system/text.js';
import { conversationOf, type PromptLimits, type PromptWriter, writeChat } from './promptTokens.js';
import { REWARD_LINE, type RewardId, type RewardInput, type RewardLine } from './rewardInput.js';

export interface TokenizedSolution {
  readonly where: string;
  readonly id: RewardId;
  readonly tokens: readonly number[];
  /** Positions, from 0, in the order of the scores. */
  readonly rows: readonly number[];
}

export interface SolutionWriter extends PromptWriter {
  readonly layout: Layout;
  /** The token that begins texts, where there is one. */
  readonly bos: number | undefined;
  /** The token that fills lines of a batch up: it is never the last one of a solution. */
  readonly pad: number | undefined;
  /** Tokens that mean right and wrong, of a language model. */
  readonly verdicts: readonly [right: number, wrong: number] | undefined;
}

/** Tokens of each solution. Rejects with UserError that names the first line that cannot be scored. */
export async function tokenizeSolutions(
  lines: readonly RewardLine[],
  writer: SolutionWriter,
  limits: PromptLimits,
): Promise<readonly TokenizedSolution[]> {
  const solutions: TokenizedSolution[] = [];
  for (const { where, id, input } of lines) {
    const { tokens, rows } = await layOut(where, input, writer);
    checkTokens(where, tokens, limits);
    solutions.push({ where, id, tokens, rows });
  }
  return solutions;
}

type LaidOut = Pick<TokenizedSolution, 'tokens' | 'rows'>;

async function layOut(where: string, input: RewardInput, writer: SolutionWriter): Promise<LaidOut> {
  const { layout, template } = writer;
  switch (input.kind) {
    case 'tokens': {
      const { tokens } = input;
      return { tokens, rows: input.rows ?? (await rowsOf(where, tokens, undefined, writer)) };
    }
    case 'messages': {
      if (layout.chat === undefined)
        throw new UserError(
          `${where}: messages: this verifier reads no conversations`,
          'give the question and the steps of its answer: {"question": "…", "steps": ["…", "…"]}',
        );
      const given = conversationOf({ ...input.prompt, add_generation_prompt: false }, input.exact, writer);
      const { tokens } = await writeChat(where, given, writer);
      const rows =
        layout.rows.kind === 'before'
          ? await rowsBefore(where, tokens, verdictTurns(where, input, writer), layout.rows, writer)
          : await rowsOf(where, tokens, undefined, writer);
      return { tokens, rows };
    }
    case 'steps': {
      const { question, steps } = input;
      const { chat, pieces } = layout;
      if (chat === undefined || (template === undefined && pieces !== undefined))
        return joinPieces(where, pieces?.(question, steps) ?? [], steps.length, writer);
      const turns = chat(question, steps);
      const tokens = await writeTurns(where, turns, writer);
      const rows =
        layout.rows.kind === 'before'
          ? await rowsBefore(where, tokens, turns, layout.rows, writer)
          : await rowsOf(where, tokens, steps.length, writer);
      return { tokens, rows };
    }
    default:
      return input satisfies never;
  }
}

async function writeTurns(where: string, turns: readonly Turn[], writer: SolutionWriter): Promise<readonly number[]> {
  const messages = turns.map((each) => ({ ...each }));
  const given = conversationOf({ messages, add_generation_prompt: false }, undefined, writer);
  return (await writeChat(where, given, writer)).tokens;
}

/** BOS, then each piece, encoded by itself. */
async function joinPieces(
  where: string,
  pieces: readonly Piece[],
  steps: number,
  writer: SolutionWriter,
): Promise<LaidOut> {
  const { tokenizer, bos, layout } = writer;
  const tokens: number[] = bos === undefined ? [] : [bos];
  const rows: number[] = [];
  /** Most pieces between steps are the same line end. */
  const known = new Map<string, readonly number[]>();
  for (const { text, isScored = false, isSeparator = false } of pieces) {
    const ids = known.get(text) ?? (await tokenizer.encodeWritten(text));
    if (isSeparator) known.set(text, ids);
    if (isSeparator && ids.length !== 1) throw notOneToken(where, text, ids);
    if (isScored && ids.length === 0) throw new UserError(`${where}: ${quote(text, 60)} has no tokens`, REWARD_LINE);
    tokens.push(...ids);
    if (isScored) rows.push(tokens.length - 1);
  }
  return { tokens, rows: layout.rows.kind === 'pieces' ? rows : await rowsOf(where, tokens, steps, writer) };
}

const notOneToken = (where: string, text: string, ids: readonly number[]): UserError =>
  new UserError(
    `${where}: the separator ${quote(text)} is ${counted(ids.length, 'token')} of this tokenizer, not one`,
    'use the tokenizer of the verifier, or give token ids: {"tokens": […], "rows": […]}',
  );

/** The rows of tokens. `steps`: as many there must be, where that is known. */
async function rowsOf(
  where: string,
  tokens: readonly number[],
  steps: number | undefined,
  { layout: { rows }, tokenizer, pad }: SolutionWriter,
): Promise<readonly number[]> {
  switch (rows.kind) {
    case 'last': {
      const last = pad === undefined ? tokens.length - 1 : tokens.findLastIndex((token) => token !== pad);
      if (last < 0) throw new UserError(`${where}: all tokens are the one that fills lines up, ${pad}`, REWARD_LINE);
      return [last];
    }
    case 'separator': {
      const ids = await oneToken(where, rows.text, tokenizer);
      const found = tokens.flatMap((token, at) => (token === ids ? [at] : []));
      if (found.length === (steps ?? found.length) && found.length > 0) return found;
      throw new UserError(
        `${where}: the separator ${quote(rows.text)} stands at ${counted(found.length, 'place')}` +
          `${steps === undefined ? '' : `, and there ${steps === 1 ? 'is 1 step' : `are ${count(steps)} steps`}`}`,
        steps === undefined
          ? 'put it behind each step, or say which tokens have scores: "rows": […]'
          : 'it may not stand in the question or within a step',
      );
    }
    case 'before':
    case 'pieces':
      throw new UserError(
        `${where}: this verifier's tokens do not say where steps end`,
        'say which tokens have scores: {"tokens": […], "rows": […]}',
      );
    default:
      return rows satisfies never;
  }
}

/** The token of a separator, as it is at the end of a word. */
async function oneToken(where: string, text: string, tokenizer: Tokenizer): Promise<number> {
  const ids = await tokenizer.encodeWritten(text);
  if (ids.length !== 1) throw notOneToken(where, text, ids);
  return ids[0]!;
}

/** The turns of a conversation that a verifier of verdicts reads. Throws UserError where an answer is no verdict. */
function verdictTurns(
  where: string,
  { prompt }: Extract<RewardInput, { kind: 'messages' }>,
  { layout: { rows } }: SolutionWriter,
): readonly Turn[] {
  const mark = rows.kind === 'before' ? rows.mark : '';
  return prompt.messages.map(({ role, content }, i) => {
    if (typeof content !== 'string' || (role === 'assistant' && content !== mark))
      throw new UserError(
        `${where}: messages[${i}]: this verifier reads steps, and after each of them the answer ${quote(mark)}`,
        'give the question and the steps of its answer: {"question": "…", "steps": ["…", "…"]}',
      );
    return { role: role as Turn['role'], content };
  });
}

/**
 * The token before each answer. The conversation is written once more with the other verdict in its place: the tokens
 * that differ are the answers, wherever the template puts them and whatever else the text says.
 */
async function rowsBefore(
  where: string,
  tokens: readonly number[],
  turns: readonly Turn[],
  { mark, other }: Extract<Rows, { kind: 'before' }>,
  writer: SolutionWriter,
): Promise<readonly number[]> {
  const isAnswer = ({ role, content }: Turn): boolean => role === 'assistant' && content === mark;
  const answers = turns.filter(isAnswer).length;
  const twin = await writeTurns(
    where,
    turns.map((each) => (isAnswer(each) ? { ...each, content: other } : each)),
    writer,
  );
  const places = tokens.flatMap((token, at) => (token !== twin[at] ? [at] : []));
  const [right, wrong] = writer.verdicts ?? [];
  const isSound =
    twin.length === tokens.length &&
    places.length === answers &&
    answers > 0 &&
    places.every((at) => at > 0 && tokens[at] === right && twin[at] === wrong);
  if (!isSound)
    throw new UserError(
      `${where}: ${quote(mark)} and ${quote(other)} are not one token each where the chat template puts them`,
      'use the tokenizer and the template of the verifier, or give token ids: {"tokens": […], "rows": […]}',
    );
  return places.map((at) => at - 1);
}

function checkTokens(where: string, tokens: readonly number[], { vocabSize, maxPositions }: PromptLimits): void {
  const stray = tokens.find((token) => token >= vocabSize);
  if (stray !== undefined)
    throw new UserError(`${where}: token ${stray}: the model has ${vocabSize} tokens`, 'check the token ids');
  if (tokens.length > maxPositions)
    throw new UserError(
      `${where}: a solution of ${count(tokens.length)} tokens: the model's context has ${count(maxPositions)}`,
      'shorten it',
    );
}
