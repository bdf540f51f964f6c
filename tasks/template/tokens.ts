/** Cuts a template into text and tags, and tags into tokens, as Jinja does with trim_blocks and lstrip_blocks off. */
import { unescapeText } from '../../python/literal.js';
import { leftStrip, rightStrip } from '../../python/text.js';
import { TemplateProblem } from './syntax.js';

export interface Token {
  readonly kind: 'name' | 'text' | 'int' | 'float' | 'mark' | 'end';
  /** The name, mark or number as written; the value of a text. */
  readonly text: string;
  readonly line: number;
}

export type Piece =
  | { readonly kind: 'data'; readonly text: string }
  | { readonly kind: 'print' | 'block'; readonly tokens: readonly Token[]; readonly line: number };

const FLOAT = /(\d[\d_]*(?:\.\d[\d_]*(?:[eE][-+]?\d+)?|[eE][-+]?\d+))/;
const INT = /0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[\da-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*/;
const QUOTED = /('(?:[^'\\]|\\[^])*'|"(?:[^"\\]|\\[^])*")/;
const MARK = /(\/\/|\*\*|==|!=|<=|>=|[-+*/%~<>=.,:|()[\]{}])/;
const TOKEN = new RegExp(`(\\s+)|([A-Za-z_]\\w*)|${FLOAT.source}|(${INT.source})|${QUOTED.source}|${MARK.source}`, 'y');

const CLOSING = { '{{': '}}', '{%': '%}', '{#': '#}' } as const;

const linesIn = (text: string): number => text.split('\n').length - 1;

/** Tokens from `start` to the tag's end; the place behind it, and whether white space after it is removed. */
function readTag(
  source: string,
  start: number,
  close: string,
  firstLine: number,
): { tokens: Token[]; end: number; trims: boolean } {
  const tokens: Token[] = [];
  let at = start,
    line = firstLine,
    depth = 0;
  for (;;) {
    // Inside brackets, `}}` closes two of them.
    if (depth === 0) {
      const mark = /^[-+]/.test(source[at] ?? '') && source.startsWith(close, at + 1) ? source[at]! : '';
      if (source.startsWith(close, at + mark.length)) {
        tokens.push({ kind: 'end', text: close, line });
        return { tokens, end: at + mark.length + close.length, trims: mark === '-' };
      }
    }
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(source);
    if (match === null) {
      const next = source.slice(at, at + 10).split('\n')[0] ?? '';
      throw new TemplateProblem(next === '' ? `"${close}" is missing` : `cannot read ${JSON.stringify(next)}`, line);
    }
    const [all, , name, float, int, text, mark] = match;
    if (name !== undefined) tokens.push({ kind: 'name', text: name, line });
    else if (float !== undefined) tokens.push({ kind: 'float', text: float.replaceAll('_', ''), line });
    else if (int !== undefined) tokens.push({ kind: 'int', text: int.replaceAll('_', ''), line });
    else if (text !== undefined) tokens.push({ kind: 'text', text: textOf(text, line), line });
    else if (mark !== undefined) {
      tokens.push({ kind: 'mark', text: mark, line });
      if ('([{'.includes(mark)) depth++;
      else if (')]}'.includes(mark)) depth--;
    }
    line += linesIn(all);
    at += all.length;
  }
}

function textOf(quoted: string, line: number): string {
  try {
    return unescapeText(quoted.slice(1, -1));
  } catch (error) {
    if (error instanceof SyntaxError) throw new TemplateProblem(error.message, line);
    throw error;
  }
}

/** The text of a block "raw" that starts at `start`; undefined if none does. Throws TemplateProblem. */
function readRaw(
  source: string,
  start: number,
  line: number,
): { text: string; end: number; trims: boolean } | undefined {
  const open = /\{%[-+]?\s*raw\s*(-?)%\}/y;
  open.lastIndex = start;
  const opened = open.exec(source);
  if (opened === null) return undefined;
  const close = /\{%([-+]?)\s*endraw\s*([-+]?)%\}/g;
  close.lastIndex = open.lastIndex;
  const closed = close.exec(source);
  if (closed === null) throw new TemplateProblem('"{% endraw %}" is missing', line);
  const inside = source.slice(open.lastIndex, closed.index);
  const left = opened[1] === '-' ? leftStrip(inside) : inside;
  return {
    text: closed[1] === '-' ? rightStrip(left) : left,
    end: close.lastIndex,
    trims: closed[2] === '-',
  };
}

/** Throws TemplateProblem. `source` has \n as its only line ends. */
export function cutTemplate(source: string): Piece[] {
  const pieces: Piece[] = [];
  let at = 0,
    line = 1,
    isTrimmed = false;
  const data = (text: string, trimsEnd: boolean): void => {
    const left = isTrimmed ? leftStrip(text) : text;
    const kept = trimsEnd ? rightStrip(left) : left;
    if (kept !== '') pieces.push({ kind: 'data', text: kept });
  };
  const opening = /\{[{%#]/g;
  for (;;) {
    opening.lastIndex = at;
    const open = opening.exec(source);
    if (open === null) {
      data(source.slice(at), false);
      return pieces;
    }
    const mark = open[0] as keyof typeof CLOSING;
    const inside = open.index + 2;
    const modifier = /^[-+]/.test(source[inside] ?? '') ? source[inside]! : '';
    data(source.slice(at, open.index), modifier === '-');
    line += linesIn(source.slice(at, open.index));
    const raw = mark === '{%' ? readRaw(source, open.index, line) : undefined;
    if (raw !== undefined) {
      if (raw.text !== '') pieces.push({ kind: 'data', text: raw.text });
      isTrimmed = raw.trims;
      at = raw.end;
    } else if (mark === '{#') {
      const end = source.indexOf('#}', inside);
      if (end < 0) throw new TemplateProblem('"#}" is missing', line);
      isTrimmed = source[end - 1] === '-' && end - 1 >= inside;
      at = end + 2;
    } else {
      const tag = readTag(source, inside + modifier.length, CLOSING[mark], line);
      pieces.push({ kind: mark === '{{' ? 'print' : 'block', tokens: tag.tokens, line });
      isTrimmed = tag.trims;
      at = tag.end;
    }
    line += linesIn(source.slice(open.index, at));
  }
}
