/** Texts to ids. */
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';

/** With the special tokens that the tokenizer adds, or without. */
export const encodeTexts = (
  tokenizer: Tokenizer,
  texts: readonly string[],
  addSpecialTokens: boolean,
): Promise<readonly ArrayLike<number>[]> =>
  addSpecialTokens
    ? tokenizer.encodeBatch(texts)
    : Promise.all(texts.map((text): Promise<ArrayLike<number>> => tokenizer.encodeWritten(text)));
