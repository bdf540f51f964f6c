/** Texts that are scored as a whole: in windows, each token predicted from as much before it as fits. */
import { defined } from '../system/defined.js';
import { contextOf, type TokenizedQuestion } from './tokenize.js';

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
