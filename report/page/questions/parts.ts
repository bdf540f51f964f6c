/** What is shown of a question beneath its choices: a line here for each part, which reads its own blocks. */
import type { ComponentType } from 'preact';
import type { QuestionsDocument, QuestionText } from '../../document/questions.js';

export interface QuestionPartProps {
  readonly document: QuestionsDocument;
  readonly row: number;
  readonly task: string;
  readonly docId: number;
  readonly text: QuestionText;
  /** The run that is looked at: place in `document.runs`. */
  readonly run: number;
}

export interface QuestionPart {
  readonly name: string;
  /** Shows nothing where it has no data for the question. */
  readonly Part: ComponentType<QuestionPartProps>;
}

export const QUESTION_PARTS: readonly QuestionPart[] = [];
