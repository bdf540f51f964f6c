/**
 * Quoted scalars of several lines. YAML demands that the further lines are indented; PyYAML does not look, and task
 * files rely on that. Spaces at the beginning of such a line have no meaning, so they may be added.
 */
import { Scalar, visit, type Document } from 'yaml';

/** Columns by which a line may be moved. */
const MAX_COLUMNS = 200;
/** Scalars of one file that are mended. */
const MAX_SCALARS = 100;
/** Ends a document, also in quotes. */
const MARKER = /\n(?:---|\.\.\.)(?:\s|$)/;

/** Where the quoted scalar at `start` ends, behind its quote; undefined where it does not. */
function endOf(text: string, start: number): number | undefined {
  const isDouble = text[start] === '"';
  const mark = isDouble ? /["\\]/g : /'/g;
  for (let at = start + 1; ;) {
    mark.lastIndex = at;
    const found = mark.exec(text)?.index;
    if (found === undefined) return undefined;
    if (isDouble ? text[found] === '"' : text[found + 1] !== "'") return found + 1;
    at = found + 2;
  }
}

/** The first quoted scalar that the parser ended before its quote. */
function cutScalar(document: Document.Parsed, text: string): { start: number; end: number } | undefined {
  let cut: { start: number; end: number } | undefined;
  visit(document, {
    Scalar(_, { type, range }) {
      if ((type !== Scalar.QUOTE_DOUBLE && type !== Scalar.QUOTE_SINGLE) || !range) return undefined;
      const [start, parsed] = range;
      const end = endOf(text, start);
      if (end === undefined || end === parsed) return undefined;
      cut = { start, end };
      return visit.BREAK;
    },
  });
  return cut;
}

/** The text with every line of a scalar indented; undefined where that would change what it means. */
function indented(text: string, { start, end }: { start: number; end: number }): string | undefined {
  const column = start - (text.lastIndexOf('\n', start) + 1);
  const scalar = text.slice(start, end);
  if (column > MAX_COLUMNS || MARKER.test(scalar)) return undefined;
  return text.slice(0, start) + scalar.replaceAll('\n', `\n${' '.repeat(column + 1)}`) + text.slice(end);
}

/** Parses, and again with such scalars mended. Lines keep their numbers. */
export function parseQuoted(text: string, parse: (text: string) => Document.Parsed): Document.Parsed {
  let current = text;
  let document = parse(current);
  for (let i = 0; i < MAX_SCALARS && document.errors.length > 0; i++) {
    const cut = cutScalar(document, current);
    const mended = cut && indented(current, cut);
    if (mended === undefined) break;
    current = mended;
    document = parse(current);
  }
  return document;
}
