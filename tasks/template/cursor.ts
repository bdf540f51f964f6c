/** Walks over the tokens of one tag. */
import { TemplateProblem } from './syntax.js';
import type { Token } from './tokens.js';

export class Cursor {
  readonly #tokens: readonly Token[];
  #at = 0;

  /** `tokens` ends with an `end`. */
  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  get next(): Token {
    return this.#tokens[Math.min(this.#at, this.#tokens.length - 1)]!;
  }

  take(): Token {
    const token = this.next;
    this.#at++;
    return token;
  }

  /** Whether the next token is this mark or keyword; it is taken then. */
  takeIf(text: string): boolean {
    const isNext = this.isNext(text);
    if (isNext) this.#at++;
    return isNext;
  }

  /** Whether the next token is this mark or keyword. */
  isNext(text: string): boolean {
    return (this.next.kind === 'mark' || this.next.kind === 'name') && this.next.text === text;
  }

  expect(text: string): void {
    if (!this.takeIf(text)) throw this.problem(`"${text}" is missing before "${this.next.text}"`);
  }

  name(): string {
    const token = this.take();
    if (token.kind !== 'name') throw this.problem(`expected a name, found "${token.text}"`);
    return token.text;
  }

  end(): void {
    if (this.next.kind !== 'end') throw this.problem(`"${this.next.text}" is not expected here`);
  }

  problem(message: string): TemplateProblem {
    return new TemplateProblem(message, this.next.line);
  }
}
