/** Solutions as a verifier reads them: tokens, and the positions of the tokens that its scores stand at. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { count, counted } from '../../system/text.js';
import type { AnswerLayout, Layout, Turn, TurnsLayout } from './layout.js';
import { oneToken, stepTokensOf, type TokenWriter } from './stepTokens.js';

export const REWARD_LINE =
  'a line is one of {"question": "…", "steps": ["…", "…"]}, {"messages": [{"role": "user", "content": "…"}, …]}, ' +
  '{"tokens": [1, 2, 3], "rows": [2]}, each with an id if you like';

export interface LaidOut {
  readonly tokens: readonly number[];
  /** Positions, from 0, in the order of the scores. */
  readonly rows: readonly number[];
}

/** How texts are written for a verifier. */
export interface SolutionWriter extends TokenWriter {
  readonly layout: Layout;
  /** The token that fills lines of a batch up: it is never the last one of a solution. */
  readonly pad: number | undefined;
}

/** A question and the steps of its answer. Rejects with UserError, as all here, that begins with `where`. */
export async function layOutSteps(
  where: string,
  question: string,
  steps: readonly string[],
  writer: SolutionWriter,
): Promise<LaidOut> {
  const { layout } = writer;
  if (layout.kind === 'answer') return layOutAnswer(where, question, steps.join('\n'), layout, writer);
  const written = await stepTokensOf(where, layout, writer);
  const tokens: number[] = [];
  const rows: number[] = [];
  for (const [index, step] of steps.entries()) {
    const added = await written.add(where, question, step, index);
    rows.push(tokens.length + added.row);
    for (const token of added.tokens) tokens.push(token);
  }
  return { tokens: [...tokens, ...(await written.end(where))], rows };
}

async function layOutAnswer(
  where: string,
  question: string,
  answer: string,
  { chat, text }: AnswerLayout,
  writer: SolutionWriter,
): Promise<LaidOut> {
  const { bos, hasTemplate } = writer;
  const tokens =
    hasTemplate || text === undefined
      ? (await writer.writeTurns(where, chat(question, answer))).tokens
      : [...(bos === undefined ? [] : [bos]), ...(await writer.encodeWritten(text(question, answer)))];
  return { tokens, rows: await rowsOf(where, tokens, writer) };
}

/** A conversation. `write`: its tokens, where the verifier reads conversations. */
export async function layOutConversation(
  where: string,
  messages: readonly Message[],
  writer: SolutionWriter,
  write: () => Promise<readonly number[]>,
): Promise<LaidOut> {
  const { layout } = writer;
  if (layout.kind === 'pieces' || (layout.kind === 'text' && layout.chat === undefined))
    throw new UserError(
      `${where}: messages: this verifier reads no conversations`,
      'give the question and the steps of its answer: {"question": "…", "steps": ["…", "…"]}',
    );
  const tokens = await write();
  const rows =
    layout.kind === 'turns'
      ? await rowsBefore(where, tokens, verdictTurns(where, messages, layout), layout, writer)
      : await rowsOf(where, tokens, writer);
  return { tokens, rows };
}

/** Token ids: the rows that they say themselves. */
export const layOutTokens = async (
  where: string,
  tokens: readonly number[],
  writer: SolutionWriter,
): Promise<LaidOut> => ({ tokens, rows: await rowsOf(where, tokens, writer) });

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

/** The rows of tokens that are given. */
async function rowsOf(where: string, tokens: readonly number[], writer: SolutionWriter): Promise<readonly number[]> {
  const { layout, pad } = writer;
  switch (layout.kind) {
    case 'answer': {
      const last = pad === undefined ? tokens.length - 1 : tokens.findLastIndex((token) => token !== pad);
      if (last < 0) throw new UserError(`${where}: all tokens are the one that fills lines up, ${pad}`, REWARD_LINE);
      return [last];
    }
    case 'text': {
      const [id] = await oneToken(where, layout.separator, writer);
      const found = tokens.flatMap((token, at) => (token === id ? [at] : []));
      if (found.length > 0) return found;
      throw new UserError(
        `${where}: the separator ${quote(layout.separator)} stands at ${counted(0, 'place')}`,
        'put it behind each step, or say which tokens have scores: "rows": […]',
      );
    }
    case 'turns':
    case 'pieces':
      throw new UserError(
        `${where}: this verifier's tokens do not say where steps end`,
        'say which tokens have scores: {"tokens": […], "rows": […]}',
      );
    default:
      return layout satisfies never;
  }
}

interface Message {
  readonly role: string;
  readonly content?: unknown;
}

/** The turns of a conversation that a verifier of verdicts reads. Throws UserError where an answer is no verdict. */
function verdictTurns(where: string, messages: readonly Message[], { right: mark }: TurnsLayout): readonly Turn[] {
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
  { right: mark, wrong: other }: TurnsLayout,
  writer: SolutionWriter,
): Promise<readonly number[]> {
  const isAnswer = ({ role, content }: Turn): boolean => role === 'assistant' && content === mark;
  const answers = turns.filter(isAnswer).length;
  const { tokens: twin } = await writer.writeTurns(
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
