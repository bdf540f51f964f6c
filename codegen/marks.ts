/**
 * Marks of statements: which op of the graph each one computes. A generator that is given marks appends them to the
 * statements of scalar programs; `unmarked` takes them out again and says what they told. Without marks, and once they
 * are out, the text is the same.
 */
import { originOf, type Scalar } from '../ir/scalar.js';

/** Text to append to a statement that computes `s`; undefined where it belongs to what is computed around it. */
export type MarkOf = (s: Scalar) => string | undefined;

/** No character of any source. */
const MARK = '\u0001';
const MARKS = new RegExp(`${MARK}([^${MARK}\n]*)${MARK}`, 'g');

/** Marks that say the names of the ops' results. */
export const originMarks: MarkOf = (s) => {
  const name = originOf(s);
  return name === undefined ? undefined : `${MARK}${name}${MARK}`;
};

export interface UnmarkedSource {
  readonly text: string;
  /** For each line, the names of the ops that it computes; lines of a skeleton have none. */
  readonly origins: readonly (readonly string[])[];
}

export function unmarked(marked: string): UnmarkedSource {
  const origins: string[][] = [];
  const lines = marked.split('\n').map((line) => {
    const names: string[] = [];
    const text = line.replace(MARKS, (_, name: string) => {
      if (!names.includes(name)) names.push(name);
      return '';
    });
    origins.push(names);
    return text;
  });
  return { text: lines.join('\n'), origins };
}
