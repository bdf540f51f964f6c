/** The filter tojson: json.dumps() with sorted keys, in ASCII, with the letters that mean something in HTML escaped. */
import { dumpJson } from '../../python/show.js';
import { isDict, isList, Sequence, Shown, type Value } from '../../python/value.js';
import { Failure } from './failure.js';
import { compareText } from './operators.js';
import type { Work } from './work.js';

const escape = (letter: string): string => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`;

function textOf(value: Value, indent: number | undefined, depth: number): string {
  if (value instanceof Shown || (value instanceof Sequence && value.type !== 'tuple'))
    throw new Failure(`${value.type} is nothing that JSON has`);
  if (!isList(value) && !isDict(value))
    return dumpJson(value).replace(/[<>&'\u007f-\uffff]/g, (letter) => (letter === '\u007f' ? letter : escape(letter)));
  const items = isDict(value)
    ? [...value]
        .toSorted(([a], [b]) => compareText(a, b))
        .map(([key, item]) => `${textOf(key, indent, 0)}: ${textOf(item, indent, depth + 1)}`)
    : value.map((item) => textOf(item, indent, depth + 1));
  const [open, close] = isDict(value) ? '{}' : '[]';
  if (items.length === 0) return `${open}${close}`;
  if (indent === undefined) return `${open}${items.join(', ')}${close}`;
  const line = (level: number): string => `\n${' '.repeat(indent * level)}`;
  return `${open}${line(depth + 1)}${items.join(`,${line(depth + 1)}`)}${line(depth)}${close}`;
}

/** Levels of lists and dictionaries; values were walked before, so they nest within bounds. */
function depthOf(value: Value): number {
  const items = isList(value) ? value : isDict(value) ? [...value.values()] : undefined;
  return items === undefined ? 0 : 1 + items.reduce<number>((most, item) => Math.max(most, depthOf(item)), 0);
}

/** `indent`: spaces a level, each item on a line of its own; undefined for one line. */
export function toJson(value: Value, indent: number | undefined, work: Work): string {
  const letters = work.walk(value, 1);
  work.text(indent === undefined ? letters : letters * (1 + indent * depthOf(value)));
  const text = textOf(value, indent, 0);
  work.text(text.length);
  return text;
}
