/**
 * Solutions that grow by steps: what a step adds are tokens behind those that there are, which stay as they are. All
 * solutions of verifiers of steps are written like this.
 */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { count, counted } from '../../system/text.js';
import { type ChatFrame, frameOf, notInOrder } from './chatFrame.js';
import type { PiecesLayout, StepLayout, TextLayout, Turn, TurnsLayout } from './layout.js';

/** How texts become tokens of a verifier. */
export interface TokenWriter {
  /** The token that begins texts, where there is one. */
  readonly bos: number | undefined;
  /** Tokens that mean right and wrong, of a language model. */
  readonly verdicts: readonly [right: number, wrong: number] | undefined;
  /** Tokens of a text to which none are added. */
  readonly encodeWritten: (text: string) => Promise<readonly number[]>;
  readonly hasTemplate: boolean;
  /** A conversation as the template writes it. Rejects with UserError, that begins with `where`, if there is none. */
  readonly writeTurns: (where: string, turns: readonly Turn[]) => Promise<WrittenTurns>;
}

export interface WrittenTurns {
  readonly text: string;
  readonly tokens: readonly number[];
}

/** What a step adds. */
export interface AddedStep {
  readonly tokens: readonly number[];
  /** The token that its score stands at, counted from the first of `tokens`; −1: the last one before them. */
  readonly row: number;
}

/** Functions reject with UserError that begins with `where`. */
export interface StepTokens {
  /** `index`: how many steps are there already; the first adds the question too. */
  add(where: string, question: string, step: string, index: number): Promise<AddedStep>;
  /** What stands behind the last step of a solution. It changes no score. */
  end(where: string): Promise<readonly number[]>;
}

const known = new WeakMap<TokenWriter, Promise<StepTokens>>();

/**
 * How steps become tokens of this verifier. Rejects with UserError that begins with `where` if its template or its
 * tokenizer does not write steps behind one another: a separator is not one token, for example.
 */
export function stepTokensOf(where: string, layout: StepLayout, writer: TokenWriter): Promise<StepTokens> {
  const found = known.get(writer);
  if (found !== undefined) return found;
  const made = make(where, layout, writer);
  known.set(writer, made);
  // What one caller is told names the place that it asked for.
  made.catch(() => known.delete(writer));
  return made;
}

function make(where: string, layout: StepLayout, writer: TokenWriter): Promise<StepTokens> {
  switch (layout.kind) {
    case 'text':
      return textTokens(where, layout, writer);
    case 'turns':
      return turnTokens(where, layout, writer);
    case 'pieces':
      return Promise.resolve(pieceTokens(layout, writer));
    default:
      return layout satisfies never;
  }
}

/** A solution that shows whether steps that are written one by one are those that are written at once. */
const SAMPLE = ['How many?', 'We add 2.', 'So 4.'] as const;

/** The sample step by step must be the sample at once, as a template and a tokenizer write it. */
async function requireSame(where: string, tokens: StepTokens, whole: readonly number[]): Promise<StepTokens> {
  const [question, ...steps] = SAMPLE;
  const parts: number[] = [];
  for (const [index, step] of steps.entries()) parts.push(...(await tokens.add(where, question, step, index)).tokens);
  parts.push(...(await tokens.end(where)));
  if (parts.length === whole.length && parts.every((token, at) => token === whole[at])) return tokens;
  throw notInOrder(where);
}

async function textTokens(where: string, layout: TextLayout, writer: TokenWriter): Promise<StepTokens> {
  const { separator, step: textOf, chat } = layout;
  const [id] = await oneToken(where, separator, writer);
  const { bos, first, end } = await textFrame(where, layout, writer);
  const tokens: StepTokens = {
    add: async (at, question, step, index) => {
      const text = textOf(step, index);
      const own =
        index > 0
          ? await encodeBehind(at, separator, text, writer)
          : [...bos, ...(await writer.encodeWritten(first(question, text)))];
      const found = own.filter((token) => token === id).length;
      if (found === 1 && own.at(-1) === id) return { tokens: own, row: own.length - 1 };
      throw new UserError(
        `${at}: the separator ${quote(separator)} stands at ${counted(index + found, 'place')}, and there ` +
          `${index === 0 ? 'is 1 step' : `are ${count(index + 1)} steps`}`,
        'it may not stand in the question or within a step',
      );
    },
    end: async (at) => (end === '' ? [] : encodeBehind(at, separator, end, writer)),
  };
  const [question, ...steps] = SAMPLE;
  const text = steps.map(textOf).join('');
  return requireSame(
    where,
    tokens,
    chat === undefined
      ? [...bos, ...(await writer.encodeWritten(first(question, text)))]
      : (await writer.writeTurns(where, chat(question, text))).tokens,
  );
}

/** What stands around the steps of a text. */
interface TextFrame {
  readonly bos: readonly number[];
  /** The text of a question and a first step. */
  readonly first: (question: string, step: string) => string;
  readonly end: string;
}

async function textFrame(where: string, { chat, head }: TextLayout, writer: TokenWriter): Promise<TextFrame> {
  const { bos } = writer;
  if (chat === undefined)
    return {
      bos: bos === undefined ? [] : [bos],
      first: (question, step) => `${head?.(question) ?? ''}${step}`,
      end: '',
    };
  const turnsOf = ([question = '', steps = '']: readonly string[]): readonly Turn[] => chat(question, steps);
  const { around, written } = await frameOf(where, 2, turnsOf, textBy(where, writer));
  const [before = '', between = '', end = ''] = around;
  // A step ends in its separator, so that only its beginning may be stripped.
  return { bos: [], first: (question, step) => before + written(question, 0) + between + written(step, 1), end };
}

const textBy =
  (where: string, writer: TokenWriter) =>
  async (turns: readonly Turn[]): Promise<string> =>
    (await writer.writeTurns(where, turns)).text;

/** Turns of a step and a verdict. The first may be written in another way than those that follow it. */
async function turnTokens(where: string, layout: TurnsLayout, writer: TokenWriter): Promise<StepTokens> {
  const { first, right, wrong } = layout;
  const turnsOf = (texts: readonly string[]): readonly Turn[] =>
    texts.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content }));
  const frame = await frameOf(where, 6, turnsOf, textBy(where, writer));
  if (!isRegular(frame)) throw notInOrder(where);
  const { around, written } = frame;
  const textOf = (content: string, index: number, verdict: string): string => {
    const place = index === 0 ? 0 : 2;
    return around[place]! + written(content, place) + around[place + 1]! + verdict;
  };
  const encode = (at: string, text: string, index: number): Promise<readonly number[]> =>
    index === 0 ? writer.encodeWritten(text) : encodeBehind(at, right, text, writer);
  const [rightId, wrongId] = writer.verdicts ?? [];
  const notOne = (at: string): UserError =>
    new UserError(
      `${at}: ${quote(right)} and ${quote(wrong)} are not one token each where the chat template puts them`,
      'use the tokenizer and the template of the verifier, or give token ids: {"tokens": […], "rows": […]}',
    );
  const tokens: StepTokens = {
    add: async (at, question, step, index) => {
      const own = await encode(at, textOf(index === 0 ? first(question, step) : step, index, right), index);
      if (own.at(-1) !== rightId || own.length + index < 2) throw notOne(at);
      return { tokens: own, row: own.length - 2 };
    },
    end: (at) => encodeBehind(at, right, around.at(-1)!, writer),
  };
  const [question, ...steps] = SAMPLE;
  const contents = [first(question, steps[0]), right, steps[1], right];
  for (const index of [0, 1]) {
    const good = (await tokens.add(where, question, steps[index]!, index)).tokens;
    const bad = await encode(where, textOf(contents[2 * index]!, index, wrong), index);
    const isSound = bad.length === good.length && bad.at(-1) === wrongId && wrongId !== rightId;
    if (!isSound || bad.slice(0, -1).some((token, at) => token !== good[at])) throw notOne(where);
  }
  return requireSame(where, tokens, (await writer.writeTurns(where, turnsOf(contents))).tokens);
}

/** Whether turns behind the first are written alike. */
const isRegular = ({ around }: ChatFrame): boolean => around[2] === around[4] && around[3] === around[5];

function pieceTokens(layout: PiecesLayout, writer: TokenWriter): StepTokens {
  /** Most pieces between steps are the same line end. */
  let line: readonly number[] | undefined;
  return {
    add: async (at, question, step, index) => {
      const { bos } = writer;
      const tokens: number[] = [];
      if (index === 0) {
        if (bos !== undefined) tokens.push(bos);
        tokens.push(...(await writer.encodeWritten(layout.head(question))));
      }
      let row = -1;
      for (const { text, isScored = false, isSeparator = false } of layout.step(step)) {
        const ids = isSeparator ? (line ??= await oneToken(at, text, writer)) : await writer.encodeWritten(text);
        tokens.push(...ids);
        if (isScored) row = tokens.length - 1;
      }
      if (row < 0 && index === 0) throw new UserError(`${at}: there are no tokens`, 'write something');
      return { tokens, row };
    },
    end: () => Promise.resolve([]),
  };
}

/** Tokens of a text that stands behind another: not those of a text that begins with it. */
async function encodeBehind(
  where: string,
  before: string,
  text: string,
  { encodeWritten }: TokenWriter,
): Promise<readonly number[]> {
  const [own, all] = [await encodeWritten(before), await encodeWritten(before + text)];
  if (own.every((token, at) => token === all[at])) return all.slice(own.length);
  throw new UserError(
    `${where}: this tokenizer writes ${quote(before)} and what follows it as other tokens`,
    'use the tokenizer of the verifier, or give token ids: {"tokens": […], "rows": […]}',
  );
}

/** The token of a separator, as it is at the end of a word. */
export async function oneToken(
  where: string,
  text: string,
  { encodeWritten }: Pick<TokenWriter, 'encodeWritten'>,
): Promise<readonly [number]> {
  const ids = await encodeWritten(text);
  if (ids.length === 1) return [ids[0]!];
  throw new UserError(
    `${where}: the separator ${quote(text)} is ${counted(ids.length, 'token')} of this tokenizer, not one`,
    'use the tokenizer of the verifier, or give token ids: {"tokens": […], "rows": […]}',
  );
}
