/** A question in the list: whether it is right, its beginning, its margin. */
import type { QuestionsDocument, QuestionText } from '../../document/questions.js';
import { signed } from '../parts/numbers.js';
import { Shown } from '../parts/Text.js';
import { taskOf, type Selection } from './select.js';

const MOST = 160;

/** The beginning of the question, on one line. */
function snippet(text: QuestionText | undefined): string {
  if (text === undefined) return '…';
  const line = text.context
    .slice(text.shots, text.shots + MOST)
    .replace(/\s+/g, ' ')
    .trim();
  return line === '' ? (text.choices[0] ?? '').slice(0, MOST).trim() : line;
}

export interface QuestionRowProps {
  readonly document: QuestionsDocument;
  readonly row: number;
  readonly text: QuestionText | undefined;
  readonly selection: Selection;
}

export function QuestionRow({ document, row, text, selection: { run, base, metric } }: QuestionRowProps) {
  const { answers, docIds, tasks } = document;
  const value = answers[run]!.values[metric]?.[row];
  const before = answers[base]!.values[metric]?.[row];
  const margin = answers[run]!.margins[row];
  const isFlipped = run !== base && typeof value === 'number' && typeof before === 'number' && value !== before;
  return (
    <>
      <span class={value === 1 ? 'sign is-right' : value === 0 ? 'sign is-wrong' : 'sign'}>
        <span aria-hidden="true">{value === 1 ? '✓' : value === 0 ? '✗' : '·'}</span>
        <span class="hidden">{value === 1 ? 'right' : value === 0 ? 'wrong' : 'no verdict'}</span>
      </span>
      <span class="what">
        <span class="line">
          <Shown text={snippet(text)} />
        </span>
        <span class="about">
          {docIds[row]}
          {tasks.length > 1 && (
            <>
              {' · '}
              <Shown text={taskOf(document, row)} />
            </>
          )}
          {isFlipped && <span class="flip"> · {value === 1 ? 'was wrong' : 'was right'}</span>}
        </span>
      </span>
      <span class="margin">{typeof margin === 'number' ? signed(margin, 2) : ''}</span>
    </>
  );
}
