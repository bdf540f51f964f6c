/** What parts of a question beneath its choices are given. */
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
