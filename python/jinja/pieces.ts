/** Cuts texts and puts them together. The size of each result is known before it is made. */
import { codePointLength, codePoints, leftStrip, PYTHON_SPACE, rightStrip } from '../text.js';
import { searchBackFor, searchFor } from './search.js';
import type { Work } from './work.js';

/** separator.join(texts) */
export function join(texts: readonly string[], separator: string, work: Work): string {
  let length = Math.max(0, texts.length - 1) * separator.length;
  for (const text of texts) length += text.length;
  work.items(texts.length);
  work.text(length);
  return texts.join(separator);
}

/** The number of places where `part` is, which do not overlap; at most `most`. */
export function countOf(text: string, part: string, most: number, work: Work): number {
  const search = searchFor(part, work);
  let count = 0;
  for (let at = search(text); at >= 0 && count < most; at = search(text, at + part.length)) {
    work.spend(1 / 8);
    count++;
  }
  return count;
}

/** str.split(separator, count), where `separator` is not empty and a negative count means all. */
export function split(text: string, separator: string, count: number, work: Work): string[] {
  work.items(1 + countOf(text, separator, count < 0 ? Infinity : count, work));
  const search = searchFor(separator, work);
  const pieces: string[] = [];
  let from = 0;
  while (count < 0 || pieces.length < count) {
    const at = search(text, from);
    if (at < 0) break;
    pieces.push(text.slice(from, at));
    from = at + separator.length;
  }
  pieces.push(text.slice(from));
  return pieces;
}

/** str.rsplit(separator, count) */
export function splitFromRight(text: string, separator: string, count: number, work: Work): string[] {
  if (count < 0) return split(text, separator, count, work);
  work.items(1 + countOf(text, separator, count, work));
  const search = searchBackFor(separator, work);
  const pieces: string[] = [];
  let to = text.length;
  while (pieces.length < count) {
    const at = search(text, to);
    if (at < 0) break;
    pieces.push(text.slice(at + separator.length, to));
    to = at;
  }
  pieces.push(text.slice(0, to));
  return pieces.toReversed();
}

/** str.split(None, count): at runs of white space, without empty parts. */
export function splitAtSpaces(text: string, count: number, work: Work): string[] {
  const pieces: string[] = [];
  const space = new RegExp(`[${PYTHON_SPACE}]+`, 'g');
  const stripped = leftStrip(text);
  work.spend(text.length / 64);
  let from = 0;
  while (count < 0 || pieces.length < count) {
    const found = space.exec(stripped);
    if (found === null) break;
    if (found.index + found[0].length === stripped.length) break;
    work.spend(1 / 8);
    work.items(pieces.length % 1024 === 0 ? pieces.length : 0);
    pieces.push(stripped.slice(from, found.index));
    from = space.lastIndex;
  }
  // The last piece keeps its white space where the count ended the work.
  const isEnded = count >= 0 && pieces.length === count;
  const last = isEnded ? stripped.slice(from) : rightStrip(stripped.slice(from));
  if (last !== '') pieces.push(last);
  return pieces;
}

/** str.rsplit(None, count) */
export function splitAtSpacesFromRight(text: string, count: number, work: Work): string[] {
  const all = splitAtSpaces(text, -1, work);
  if (count < 0 || all.length <= count) return all;
  // Words are whole, so each of the last ones is where it was found last.
  let rest = rightStrip(text);
  const last = count === 0 ? [] : all.slice(-count);
  for (const word of last.toReversed()) rest = rightStrip(rest.slice(0, rest.length - word.length));
  work.spend((count * text.length) / 64);
  return rest === '' ? last : [rest, ...last];
}

/** str.splitlines(keepends) */
export function splitLines(text: string, keepsEnds: boolean, work: Work): string[] {
  const lines: string[] = [];
  const end = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;
  work.spend(text.length / 64);
  let from = 0;
  for (let found = end.exec(text); found !== null; found = end.exec(text)) {
    work.items(lines.length % 1024 === 0 ? lines.length : 0);
    work.spend(1 / 8);
    lines.push(text.slice(from, keepsEnds ? end.lastIndex : found.index));
    from = end.lastIndex;
  }
  if (from < text.length) lines.push(text.slice(from));
  return lines;
}

/** str.replace(old, new, count); a negative count means all. */
export function replaceText(text: string, old: string, by: string, count: number, work: Work): string {
  const most = count < 0 ? Infinity : count;
  if (old !== '') {
    const places = countOf(text, old, most, work);
    work.text(text.length + places * (by.length - old.length));
    return split(text, old, places, work).join(by);
  }
  // Python puts the new text before every character and at the end.
  const length = codePointLength(text);
  const places = Math.min(most, length + 1);
  work.items(length);
  work.text(text.length + places * by.length);
  const letters = codePoints(text).map((letter, i) => (i < places ? by + letter : letter));
  return letters.join('') + (places > length ? by : '');
}
