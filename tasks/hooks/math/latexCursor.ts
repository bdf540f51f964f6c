/** A place in the tokens of an answer in LaTeX, and how reading goes on from there. */
import type { Token } from './latexTokens.js';

/** How an answer is read. */
export interface Reading {
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
const END: Token = { kind: 'end', text: '', isApart: false };

/** Reads tokens one after another. Its methods throw Unreadable at what this grammar does not read. */
export class LatexCursor {
  protected readonly tokens: readonly Token[];
  /** See Reading. */
  protected readonly isPlain: boolean;
  /** The place of the next token. */
  protected at = 0;
  /** How deep the part that is read lies in others. */
  protected depth = 0;
  /** Bars that are open: another one closes the last. */
  protected bars = 0;

  constructor(tokens: readonly Token[], { isPlain }: Reading) {
    this.tokens = tokens;
    this.isPlain = isPlain;
  }

  protected get next(): Token {
    return this.tokens[this.at] ?? END;
  }

  protected is(text: string, kind: Token['kind'] = 'mark'): boolean {
    return this.next.kind === kind && this.next.text === text;
  }

  protected take(text: string, kind: Token['kind'] = 'mark'): boolean {
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
    while (this.is('+') || this.is('-')) if (this.tokens[this.at++]!.text === '-') sign = sign === 1 ? -1 : 1;
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
    if (!this.take('{')) return this.tokens[this.at++]?.text ?? '';
    let text = '';
    while (!this.is('}') && this.next.kind !== 'end') text += this.tokens[this.at++]!.text;
    this.expect('}');
    return text;
  }

  /** The text of a group. */
  protected environment(): string {
    this.expect('{');
    let text = '';
    while (!this.take('}')) {
      if (this.next.kind === 'end') throw new Unreadable('an open group');
      text += this.tokens[this.at++]!.text;
    }
    return text;
  }
}
