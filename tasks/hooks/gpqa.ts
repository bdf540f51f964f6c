/** GPQA: four choices in an order that Python's own generator draws. */
import type { PythonRandom } from '../../python/random.js';
import { strip } from '../../python/text.js';
import type { Dict, Value } from '../../python/value.js';
import { fieldOf, textOf } from './hook.js';
import { withoutNotes } from './sentences.js';

const RIGHT = 'Correct Answer';
const ANSWERS = ['Incorrect Answer 1', 'Incorrect Answer 2', 'Incorrect Answer 3', RIGHT];

export interface GpqaForm {
  /** The leaderboard's form loses what stands in brackets. */
  readonly dropsNotes?: boolean;
  /** The forms that generate have a list of choices too. */
  readonly hasList?: boolean;
}

export const gpqaDocument =
  ({ dropsNotes = false, hasList = false }: GpqaForm) =>
  (document: Dict, random: PythonRandom): Dict => {
    const read = (column: string): string => {
      if (fieldOf(document, column) === null) return ' ';
      const text = strip(textOf(document, column)).replaceAll(' [title]', '. ');
      return (dropsNotes ? withoutNotes(text) : text).replaceAll('  ', ' ');
    };
    const choices = ANSWERS.map(read);
    random.shuffle(choices);
    const right = choices.indexOf(read(RIGHT));
    return new Map<string, Value>([
      ...document,
      ...choices.map((choice, i): [string, Value] => [`choice${i + 1}`, choice]),
      ...(hasList ? ([['choices', choices]] as const) : []),
      ['answer', `(${'ABCD'.charAt(right)})`],
    ]);
  };
