/** What log-probabilities of tokens are written with: the tokens of questions, and their texts. */
import type { LoadedQuestions } from '../evaluate/index.js';
import { tokensOfLines, type TokenSource } from '../evaluate/tokenLines.js';
import { type Tokenizer, tokenTexts } from '../models/tokenizer/tokenizer.js';

export async function tokenSource(tokenizer: Tokenizer, { tokenized }: LoadedQuestions): Promise<TokenSource> {
  const texts = await tokenTexts(tokenizer, tokensOfLines(tokenized));
  return {
    questions: new Map(tokenized.map((question) => [question.docId, question])),
    textOf: (id) => texts.get(id) ?? null,
  };
}
