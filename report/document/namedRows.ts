/** Rows of a chart that have names at their left: as much room as the names need, and no more than a page has. */

/** Characters of a name need this many pixels each. */
const LETTER = 7;
/** Names get at most this part of a chart's width. */
const MAX_OF_WIDTH = 0.42;

/** `text` in at most `most` characters, without its middle where it has more. */
export function withoutMiddle(text: string, most: number): string {
  const letters = [...text];
  if (letters.length <= most) return text;
  const head = Math.ceil((most - 1) / 2);
  return `${letters.slice(0, head).join('')}…${letters.slice(letters.length - (most - 1 - head)).join('')}`;
}

/** The left margin of a chart, and its axis of rows. */
interface NamedRows {
  readonly marginLeft: number;
  readonly y: {
    readonly domain: readonly string[];
    readonly label: null;
    readonly tickSize: 0;
    readonly tickFormat: (name: string) => string;
  };
}

/** Margin and axis for rows of these names, in a chart of `width` pixels. `most`: the widest margin, in pixels. */
export function namedRows(names: readonly string[], width: number, most: number): NamedRows {
  const marginLeft = Math.floor(Math.min(most, MAX_OF_WIDTH * width));
  const room = Math.max(3, Math.floor((marginLeft - 8) / LETTER));
  return {
    marginLeft,
    y: { domain: names, label: null, tickSize: 0, tickFormat: (name) => withoutMiddle(name, room) },
  };
}
