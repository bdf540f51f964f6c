/** Tokens of LaTeX, and a cursor over them. */
import { at } from '../../../system/at.js';

// A place in the tokens of an answer in LaTeX, and how reading goes on from there.

/** How an answer is read. */
export interface LatexReading {
  /**
   * As sympy's own reader of LaTeX does: one expression, of which the rest is left alone; pi, e and i are symbols; no
   * mixed numbers, texts, sets or matrices.
   */
  readonly isPlain: boolean;
}

/** What this grammar does not read. */
export class Unreadable extends Error {}

const MAX_DEPTH = 60;
/** The largest number of values, factors or sides. */
export const MAX_ITEMS = 200;
const END: LatexToken = { kind: 'end', text: '', isApart: false };

/** Reads tokens one after another. Its methods throw Unreadable at what this grammar does not read. */
export class LatexCursor {
  protected readonly tokens: readonly LatexToken[];
  /** See Reading. */
  protected readonly isPlain: boolean;
  /** The place of the next token. */
  protected at = 0;
  /** How deep the part that is read lies in others. */
  protected depth = 0;
  /** Bars that are open: another one closes the last. */
  protected bars = 0;

  constructor(tokens: readonly LatexToken[], { isPlain }: LatexReading) {
    this.tokens = tokens;
    this.isPlain = isPlain;
  }

  protected get next(): LatexToken {
    return this.tokens[this.at] ?? END;
  }

  protected is(text: string, kind: LatexToken['kind'] = 'mark'): boolean {
    return this.next.kind === kind && this.next.text === text;
  }

  protected take(text: string, kind: LatexToken['kind'] = 'mark'): boolean {
    if (!this.is(text, kind)) return false;
    this.at++;
    return true;
  }

  protected expect(text: string): void {
    if (!this.take(text)) throw new Unreadable(`expected ${text}`);
  }

  /** Reads a part that may nest. */
  protected within<T>(read: () => T): T {
    if (++this.depth > MAX_DEPTH) throw new Unreadable('too deep');
    const found = read();
    this.depth--;
    return found;
  }

  /** The sign that any number of + and − come to. */
  protected sign(): 1 | -1 {
    let sign: 1 | -1 = 1;
    while (this.is('+') || this.is('-')) if (at(this.tokens, this.at++).text === '-') sign = sign === 1 ? -1 : 1;
    return sign;
  }

  /** Takes the sign of degrees, alone or as a group. */
  protected isDegrees(): boolean {
    if (this.take('circ', 'command')) return true;
    const [open, degrees, close] = this.tokens.slice(this.at, this.at + 3);
    if (open?.text !== '{' || degrees?.text !== 'circ' || close?.text !== '}') return false;
    this.at += 3;
    return true;
  }

  protected subscript(): string {
    if (!this.is('{')) return this.tokens[this.at++]?.text ?? '';
    return this.group();
  }

  /** The text of a group with those in it, or of one token. */
  protected group(): string {
    let [text, depth] = ['', 0];
    do {
      const { kind, text: part } = this.next;
      if (kind === 'end') throw new Unreadable('an open group');
      depth += this.is('{') ? 1 : this.is('}') ? -1 : 0;
      text += kind === 'command' ? `\\${part}` : part;
      this.at++;
    } while (depth > 0);
    return text.replace(/^\{(.*)\}$/, '$1');
  }

  /** The text of a group. */
  protected environment(): string {
    this.expect('{');
    let text = '';
    while (!this.take('}')) {
      if (this.next.kind === 'end') throw new Unreadable('an open group');
      text += at(this.tokens, this.at++).text;
    }
    return text;
  }
}

// The tokens of an answer in LaTeX.

/** A command without its backslash, a number, a text in braces of \text, or one letter or mark. */
export interface LatexToken {
  readonly kind: 'command' | 'number' | 'text' | 'mark' | 'letter' | 'end';
  readonly text: string;
  /** Whether a space stands before it. */
  readonly isApart: boolean;
}

/** Letters of an answer; a longer one is a text. */
export const MAX_LETTERS = 2000;

const TOKEN =
  /(\s+)|\\(?:text|mbox|operatorname)\s*\{([^{}]*)\}|\\([a-zA-Z]+|.)|(\d+(?:\.\d+)?|\.\d+)|([a-zA-Z])|([<>!=]=|[^])/guy;
/** Commands that only change how an answer looks. */
const LOOKS = new Set(
  (
    'left right big Big bigg Bigg bigl bigr Bigl Bigr displaystyle textstyle limits quad qquad ! , ; : > space ' +
    'mathrm mathbf mathit mathbb mathcal boldsymbol bold rm bf it hfill phantom'
  ).split(' '),
);
/** Other ways to write a mark. */
const SAME: Readonly<Record<string, string>> = {
  dfrac: 'frac',
  tfrac: 'frac',
  cfrac: 'frac',
  dbinom: 'binom',
  tbinom: 'binom',
  leq: 'le',
  leqslant: 'le',
  geq: 'ge',
  geqslant: 'ge',
  neq: 'ne',
  lbrace: '{',
  rbrace: '}',
  lvert: 'vert',
  rvert: 'vert',
  ast: 'cdot',
  bullet: 'cdot',
};
const MARKS: Readonly<Record<string, string>> = {
  '<=': 'le',
  '>=': 'ge',
  '!=': 'ne',
  '==': 'equiv',
  '×': 'times',
  '·': 'cdot',
  '÷': 'div',
  '−': '-',
  '≤': 'le',
  '≥': 'ge',
  '≠': 'ne',
  π: 'pi',
  '∞': 'infty',
  '√': 'sqrt',
  '∪': 'cup',
  '°': 'circ',
};

/** Undefined for a text that is too long. */
export function tokensOf(latex: string): LatexToken[] | undefined {
  if (latex.length > MAX_LETTERS) return undefined;
  const tokens: LatexToken[] = [];
  let isApart = false;
  for (const [, space, text, command, number, letter, mark] of latex.matchAll(TOKEN)) {
    const add = (kind: LatexToken['kind'], value: string): unknown => tokens.push({ kind, text: value, isApart });
    if (space !== undefined || command === ' ' || mark === '~') {
      isApart = true;
      continue;
    }
    if (text !== undefined) add('text', text);
    else if (command !== undefined && !LOOKS.has(command)) add('command', SAME[command] ?? command);
    else if (number !== undefined) add('number', number);
    else if (letter !== undefined) add('letter', letter);
    else if (mark !== undefined && MARKS[mark] !== undefined) add(mark === '−' ? 'mark' : 'command', MARKS[mark]);
    else if (mark !== undefined && mark !== '$' && mark !== '"') add('mark', mark);
    isApart = false;
  }
  return tokens;
}
