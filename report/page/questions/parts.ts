/** What is shown of a question beneath its choices: a line here for each part, which reads its own blocks. */
import type { ComponentType } from 'preact';
import type { QuestionPartProps } from './partProps.js';
import { Tokens } from './Tokens.js';

export interface QuestionPart {
  readonly name: string;
  /** Shows nothing where it has no data for the question. */
  readonly Part: ComponentType<QuestionPartProps>;
}

export const QUESTION_PARTS: readonly QuestionPart[] = [{ name: 'tokens', Part: Tokens }];
