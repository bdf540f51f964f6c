/**
 * Tokens of questions with their log-probabilities: a block for each run and each block of texts, by row from its
 * first. A token's text is a piece of the choice's text where the two agree, which the page has already.
 */

export interface ChoiceTokens {
  /** Tokens of this choice's own context that are left out between those that all share and the first of these. */
  readonly omitted: number;
  /** Lengths of the tokens' texts in characters, where together they are the choice as the page shows it. */
  readonly lengths?: readonly number[];
  /** Otherwise the texts; null for a token without one. */
  readonly texts?: readonly (string | null)[];
  /** In nats, rounded to two digits; of the last of the tokens. */
  readonly logProbs: readonly number[];
}

export interface QuestionTokens {
  /** Tokens with which all choices begin. */
  readonly shared: number;
  readonly choices: readonly ChoiceTokens[];
}

/** The content of a block; null for a row whose tokens are not known. */
export type TokenBlock = readonly (QuestionTokens | null)[];

export const tokensBlock = (run: number, block: number): string => `questions.tokens.${run}.${block}`;
