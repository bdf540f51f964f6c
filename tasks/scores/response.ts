/** What a model answers to the requests of a document. */

/** The answer to a request for the likelihood of a text. */
export interface LogLikelihood {
  /** Natural log, a sum over the text's tokens. */
  readonly ll: number;
  /** Whether every token is the most likely one. */
  readonly isGreedy: boolean;
}

/** A log-likelihood, or the text that was generated. */
export type Response = LogLikelihood | string;

export const isText = (response: Response): response is string => typeof response === 'string';
