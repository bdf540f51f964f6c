/** What nearly every JSON Schema needs of a vocabulary, found before the first one comes. */
import { compile } from './compile.js';
import type { Vocabulary } from './vocabulary.js';

/** Strings whose ends are nearer than this are the same in all schemas; further off, the longest tokens are. */
const LENGTH = 130;

/** Finds the masks inside of strings, also of those with limits. About 0.2 s with 128,000 tokens. */
export const warm = (vocabulary: Vocabulary): void => {
  const tokenOf = (text: string): number =>
    vocabulary.bytes.findIndex(
      (bytes, id) => bytes?.length === 1 && bytes[0] === text.charCodeAt(0) && !vocabulary.isApart(id),
    );
  const [quote, letter, brace] = [tokenOf('"'), tokenOf('a'), tokenOf('{')];
  if (quote < 0 || letter < 0 || brace < 0) return;
  const follow = (schema: unknown, tokens: readonly number[]): void => {
    let state = compile({ kind: 'schema', schema }, vocabulary).start();
    state.mask();
    for (const token of tokens) {
      state = state.take(token);
      state.mask();
    }
  };
  const letters = Array.from({ length: LENGTH }, () => letter);
  follow({ type: 'string', maxLength: LENGTH }, [quote, ...letters, quote]);
  follow({ type: 'string', minLength: LENGTH }, [quote, ...letters, quote]);
  follow({ type: 'string' }, [quote, letter, quote]);
  follow({ type: 'object' }, [brace, quote, letter, quote]);
};
