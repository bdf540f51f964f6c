/** Solutions as a verifier reads them: tokens, and the positions of the tokens that its scores stand at. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { count, counted } from '../../system/text.js';
import type { Layout, Piece, Rows, Turn } from './layout.js';

export const REWARD_LINE =
  'a line is one of {"question": "…", "steps": ["…", "…"]}, {"messages": [{"role": "user", "content": "…"}, …]}, ' +
  '{"tokens": [1, 2, 3], "rows": [2]}, each with an id if you like';

export interface LaidOut {
  readonly tokens: readonly number[];
  /** Positions, from 0, in the order of the scores. */
  readonly rows: readonly number[];
}

/** How texts are written for a verifier. */
export interface SolutionWriter {
  readonly layout: Layout;
  /** The token that begins texts, where there is one. */
  readonly bos: number | undefined;
  /** The token that fills lines of a batch up: it is never the last one of a solution. */
  readonly pad: number | undefined;
  /** Tokens that mean right and wrong, of a language model. */
  readonly verdicts: readonly [right: number, wrong: number] | undefined;
  /** Tokens of a text to which none are added. */
  readonly encodeWritten: (text: string) => Promise<readonly number[]>;
  readonly hasTemplate: boolean;
  /** Tokens of a conversation. Rejects with UserError, that begins with `where`, where there is no template. */
  readonly writeTurns: (where: string, turns: readonly Turn[]) => Promise<readonly number[]>;
}

/** A question and the steps of its answer. Rejects with UserError, as all here, that begins with `where`. */
export async function layOutSteps(
  where: string,
  question: string,
  steps: readonly string[],
  writer: SolutionWriter,
): Promise<LaidOut> {
  const { layout, hasTemplate } = writer;
  const { chat, pieces } = layout;
  if (chat === undefined || (!hasTemplate && pieces !== undefined))
    return joinPieces(where, pieces?.(question, steps) ?? [], steps.length, writer);
  const turns = chat(question, steps);
  const tokens = await writer.writeTurns(where, turns);
  const rows =
    layout.rows.kind === 'before'
      ? await rowsBefore(where, tokens, turns, layout.rows, writer)
      : await rowsOf(where, tokens, steps.length, writer);
  return { tokens, rows };
}

/** A conversation. `write`: its tokens, where the verifier reads conversations. */
export async function layOutConversation(
  where: string,
  messages: readonly Message[],
  writer: SolutionWriter,
  write: () => Promise<readonly number[]>,
): Promise<LaidOut> {
  const { layout } = writer;
  if (layout.chat === undefined)
    throw new UserError(
      `${where}: messages: this verifier reads no conversations`,
      'give the question and the steps of its answer: {"question": "…", "steps": ["…", "…"]}',
    );
  const tokens = await write();
  const rows =
    layout.rows.kind === 'before'
      ? await rowsBefore(where, tokens, verdictTurns(where, messages, layout.rows), layout.rows, writer)
      : await rowsOf(where, tokens, undefined, writer);
  return { tokens, rows };
}

/** Token ids: the rows that they say themselves. */
export const layOutTokens = async (
  where: string,
  tokens: readonly number[],
  writer: SolutionWriter,
): Promise<LaidOut> => ({ tokens, rows: await rowsOf(where, tokens, undefined, writer) });

/** Throws UserError for what the model cannot compute. */
export function checkTokens(
  where: string,
  tokens: readonly number[],
  { vocabSize, maxPositions }: { readonly vocabSize: number; readonly maxPositions: number },
): void {
  const stray = tokens.find((token) => token >= vocabSize);
  if (stray !== undefined)
    throw new UserError(`${where}: token ${stray}: the model has ${vocabSize} tokens`, 'check the token ids');
  if (tokens.length > maxPositions)
    throw new UserError(
      `${where}: a solution of ${count(tokens.length)} tokens: the model's context has ${count(maxPositions)}`,
      'shorten it',
    );
}

/** BOS, then each piece, encoded by itself. */
async function joinPieces(
  where: string,
  pieces: readonly Piece[],
  steps: number,
  writer: SolutionWriter,
): Promise<LaidOut> {
  const { encodeWritten, bos, layout } = writer;
  const tokens: number[] = bos === undefined ? [] : [bos];
  const rows: number[] = [];
  /** Most pieces between steps are the same line end. */
  const known = new Map<string, readonly number[]>();
  for (const { text, isScored = false, isSeparator = false } of pieces) {
    const ids = known.get(text) ?? (await encodeWritten(text));
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
  { layout: { rows }, encodeWritten, pad }: SolutionWriter,
): Promise<readonly number[]> {
  switch (rows.kind) {
    case 'last': {
      const last = pad === undefined ? tokens.length - 1 : tokens.findLastIndex((token) => token !== pad);
      if (last < 0) throw new UserError(`${where}: all tokens are the one that fills lines up, ${pad}`, REWARD_LINE);
      return [last];
    }
    case 'separator': {
      const ids = await oneToken(where, rows.text, encodeWritten);
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
async function oneToken(where: string, text: string, encodeWritten: SolutionWriter['encodeWritten']): Promise<number> {
  const ids = await encodeWritten(text);
  if (ids.length !== 1) throw notOneToken(where, text, ids);
  return ids[0]!;
}

interface Message {
  readonly role: string;
  readonly content?: unknown;
}

/** The turns of a conversation that a verifier of verdicts reads. Throws UserError where an answer is no verdict. */
function verdictTurns(
  where: string,
  messages: readonly Message[],
  { mark }: Extract<Rows, { kind: 'before' }>,
): readonly Turn[] {
  return messages.map(({ role, content }, i) => {
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
  const twin = await writer.writeTurns(
    where,
    turns.map((each) => (isAnswer(each) ? { ...each, content: other } : each)),
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
