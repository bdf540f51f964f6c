/** Choices that are too long with their contexts: cut on the left, or refused with what would make room. */
import { UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { allBut } from './selection.js';
import { contextOf, leaveOut, questionName, type TokenizedQuestion } from './tokenize.js';

/** What happens to a choice that is longer, with its context, than the model's context. */
export const OVERLONG = ['truncate', 'refuse'] as const;
export type Overlong = (typeof OVERLONG)[number];

export interface Truncated {
  readonly questions: readonly TokenizedQuestion[];
  /** Choices that lost the beginning of their context. */
  readonly choices: number;
}

/**
 * Cuts tokens that do not fit on the left, as the public harness does: of context and choice the last L + 1 tokens
 * stay, L of which are inputs; a beginning-of-text token goes first. Choices themselves are never cut. Throws UserError
 * if a choice alone is longer than the model's context.
 */
export function truncateOverlong(questions: readonly TokenizedQuestion[], contextLength: number): Truncated {
  let choices = 0;
  const truncated = questions.map((question): TokenizedQuestion => {
    const { continuations } = question;
    const isShort = (tokens: Int32Array, choice: number): boolean =>
      inputsOf(contextOf(question, choice), tokens) <= contextLength;
    if (continuations.every(isShort)) return question;
    const contexts = continuations.map((tokens, choice) => {
      const context = contextOf(question, choice);
      const excess = inputsOf(context, tokens) - contextLength;
      if (excess <= 0) return context;
      // The public harness asserts that a choice has at most L tokens.
      if (excess >= context.length) throw tooLong(question, choice, contextLength, 'context');
      choices++;
      return context.subarray(excess);
    });
    return { ...question, contexts };
  });
  return { questions: choices === 0 ? questions : truncated, choices };
}

/** The last token of a choice is only predicted, never an input. */
const inputsOf = (context: Int32Array, continuation: Int32Array): number => context.length + continuation.length - 1;

/** What a path must fit: how messages name it, and what makes room. */
const PATH_LIMITS = {
  call: {
    name: 'the largest micro-batch',
    advice:
      "use a larger --batch-tokens, if the model's context allows it, or --sharing tree --prefixes keep, which cuts " +
      'long questions into calls',
  },
  keys: { name: 'the longest list of keys', advice: 'or shorten its context' },
  context: { name: "the model's context", advice: 'or use a model with a longer context' },
} as const;

export interface PathLimit {
  readonly kind: keyof typeof PATH_LIMITS;
  readonly tokens: number;
}

function tooLong(
  question: TokenizedQuestion,
  choice: number,
  limit: number,
  kind: keyof typeof PATH_LIMITS,
): UserError {
  const context = contextOf(question, choice),
    tokens = question.continuations[choice] ?? new Int32Array();
  return new UserError(
    `${questionName(question)}, choice ${choice}: ${inputsOf(context, tokens)} input tokens ` +
      `(context ${context.length}, choice ${tokens.length}, its last is only predicted), ` +
      `but ${PATH_LIMITS[kind].name} is ${limit}` +
      (tokens.length > limit ? ': the choice alone is too long, so cutting its context cannot help' : ''),
    `${leaveOut(question, `Leave it out with --docs (all others are --docs ${allBut(question.docId)})`)}, ` +
      PATH_LIMITS[kind].advice,
  );
}

/** Throws UserError if a choice, with its context, is longer than `limit`. */
export function checkLengths(questions: readonly TokenizedQuestion[], limit: PathLimit): void {
  for (const question of questions) {
    for (const [choice, tokens] of question.continuations.entries()) {
      if (inputsOf(contextOf(question, choice), tokens) > limit.tokens)
        throw tooLong(question, choice, limit.tokens, limit.kind);
    }
  }
}

/** Texts that are scored as a whole: in windows, each token predicted from as much before it as fits. */

/**
 * Cuts a text into windows as the public harness does. The first begins with the prefix token alone; each further one
 * predicts `length` new tokens after one before them; the last is filled up on the left. Windows become the choices of
 * the question, with contexts of their own; a text without tokens has none. `added`: tokens that the tokenizer puts
 * first, which are predicted too.
 */
export function cutWindows(question: TokenizedQuestion, length: number, added: readonly number[]): TokenizedQuestion {
  if (question.isRolling !== true) return question;
  const prefix = contextOf(question, 0);
  const text = Int32Array.from([...added, ...question.continuations[0]!]);
  const { docId, where } = question;
  const named = { docId, ...defined({ where }) };
  if (text.length === 0) return { ...named, context: prefix, contexts: [], continuations: [] };
  const contexts = [prefix.subarray(0, 1)];
  const continuations = [text.subarray(0, Math.min(length, text.length))];
  for (let done = continuations[0]!.length; done < text.length;) {
    const end = Math.min(done + length, text.length);
    contexts.push(text.subarray(end - length - 1, done));
    continuations.push(text.subarray(done, end));
    done = end;
  }
  return { ...named, context: contexts[0]!, contexts, continuations };
}
