/**
 * What a chat template writes around the texts of turns, found once by writing marks. A text of any turns is then put
 * together without the template, so that what a new turn adds is known without writing those before again.
 */
import { UserError } from '../../errors.js';
import { leftStrip, rightStrip, stripCharacters } from '../../python/value.js';
import type { Turn } from './layout.js';

export interface ChatFrame {
  /** What stands before each text, and behind the last. */
  readonly around: readonly string[];
  /** A text as the template writes it in its place: published ones strip some. */
  readonly written: (text: string, place: number) => string;
}

/** Spaces around a mark tell what a template strips: nothing, line ends or all white space. */
const BEFORE = '\n\n\t ';
const BEHIND = ' \t\n\n';
const MARKED = 'Mark of text ';
const markOf = (place: number): string => `${MARKED}${place}: "it's" <b> & \\ here.`;

interface Stripping {
  /** What is left of the white space before or behind a mark. */
  readonly left: string;
  readonly strip: (text: string) => string;
}

/** The first that fits is taken: those that leave most come first. */
const AT_BEGINNING: readonly Stripping[] = [
  { left: BEFORE, strip: (text) => text },
  { left: leftLines(BEFORE), strip: leftLines },
  { left: '', strip: leftStrip },
];
const AT_END: readonly Stripping[] = [
  { left: BEHIND, strip: (text) => text },
  { left: rightLines(BEHIND), strip: rightLines },
  { left: '', strip: rightStrip },
];

function leftLines(text: string): string {
  return stripCharacters(text, '\n', { left: true, right: false });
}

function rightLines(text: string): string {
  return stripCharacters(text, '\n', { left: false, right: true });
}

/**
 * The frame of a conversation with `count` texts. Rejects with UserError, that begins with `where`, where the template
 * does not write each of them once, in their order and as they are given.
 */
export async function frameOf(
  where: string,
  count: number,
  turnsOf: (texts: readonly string[]) => readonly Turn[],
  write: (turns: readonly Turn[]) => Promise<string>,
): Promise<ChatFrame> {
  const places = Array.from({ length: count }, (_, place) => place);
  const written = await write(turnsOf(places.map((place) => BEFORE + markOf(place) + BEHIND)));
  const around: string[] = [];
  const strips: { readonly begin: Stripping; readonly end: Stripping }[] = [];
  let from = 0;
  for (const place of places) {
    const mark = markOf(place);
    const at = written.indexOf(mark, from);
    if (at < 0 || written.indexOf(mark, at + 1) >= 0) throw notInOrder(where);
    const before = written.slice(from, at);
    const begin = AT_BEGINNING.find(({ left }) => before.endsWith(left))!;
    const behind = written.slice(at + mark.length);
    const end = AT_END.find(({ left }) => behind.startsWith(left))!;
    around.push(before.slice(0, before.length - begin.left.length));
    strips.push({ begin, end });
    from = at + mark.length + end.left.length;
  }
  around.push(written.slice(from));
  return {
    around,
    written: (text, place) => {
      const { begin, end } = strips[place]!;
      return end.strip(begin.strip(text));
    },
  };
}

export const notInOrder = (where: string): UserError =>
  new UserError(
    `${where}: the chat template does not write turns behind one another as they are given`,
    'use the template of the verifier, or give token ids: {"tokens": […], "rows": […]}',
  );
