/** Parses a template into statements. */
import { ExpressionParser } from './expressions.js';
import { TemplateProblem, type Statement } from './syntax.js';
import { cutTemplate, type Piece } from './tokens.js';

const MAX_LENGTH = 1 << 18;
const MAX_DEPTH = 30;

class Parser {
  readonly #pieces: readonly Piece[];
  #at = 0;

  constructor(pieces: readonly Piece[]) {
    this.#pieces = pieces;
  }

  /** Statements up to a block that starts with one of `ends`, which is taken; of the whole template for no ends. */
  body(ends: readonly string[], depth: number, opened: number): { statements: Statement[]; end: ExpressionParser } {
    const statements: Statement[] = [];
    if (depth > MAX_DEPTH) throw new TemplateProblem(`blocks nest more than ${MAX_DEPTH} deep`, opened);
    for (;;) {
      const piece = this.#pieces[this.#at++];
      if (piece === undefined) {
        if (ends.length > 0) throw new TemplateProblem(`"{% ${ends.at(-1)} %}" is missing`, opened);
        return { statements, end: new ExpressionParser([{ kind: 'end', text: '', line: opened }]) };
      }
      if (piece.kind === 'data') {
        statements.push({ kind: 'text', text: piece.text });
        continue;
      }
      const parser = new ExpressionParser(piece.tokens);
      if (piece.kind === 'print') {
        statements.push({ kind: 'print', value: parser.expression(), line: piece.line });
        parser.end();
        continue;
      }
      const { text: keyword } = parser.next;
      if (ends.includes(keyword)) return { statements, end: parser };
      parser.name();
      statements.push(this.#block(keyword, parser, piece.line, depth));
    }
  }

  #block(keyword: string, parser: ExpressionParser, line: number, depth: number): Statement {
    switch (keyword) {
      case 'set': {
        const name = parser.name();
        parser.expect('=');
        const value = parser.expression();
        parser.end();
        return { kind: 'set', name, value, line };
      }
      case 'if':
        return this.#if(parser, line, depth);
      case 'for':
        return this.#for(parser, line, depth);
      default:
        throw new TemplateProblem(`the block "{% ${keyword} %}" is not supported; there are if, for, set`, line);
    }
  }

  #if(parser: ExpressionParser, line: number, depth: number): Statement {
    const condition = parser.expression();
    parser.end();
    const { statements: then, end } = this.body(['elif', 'else', 'endif'], depth + 1, line);
    let otherwise: readonly Statement[] = [];
    const keyword = end.name();
    if (keyword === 'elif') otherwise = [this.#if(end, end.next.line, depth + 1)];
    else {
      end.end();
      if (keyword === 'else') {
        const last = this.body(['endif'], depth + 1, line);
        last.end.name();
        last.end.end();
        otherwise = last.statements;
      }
    }
    return { kind: 'if', condition, then, otherwise, line };
  }

  #for(parser: ExpressionParser, line: number, depth: number): Statement {
    const names = [parser.name()];
    while (parser.takeIf(',')) names.push(parser.name());
    parser.expect('in');
    const of = parser.expression();
    parser.end();
    const { statements: body, end } = this.body(['else', 'endfor'], depth + 1, line);
    let otherwise: readonly Statement[] = [];
    const keyword = end.name();
    end.end();
    if (keyword === 'else') {
      const last = this.body(['endfor'], depth + 1, line);
      last.end.name();
      last.end.end();
      otherwise = last.statements;
    }
    return { kind: 'for', names, of, body, otherwise, line };
  }
}

/** Throws TemplateProblem for what is not in the subset. */
export function parseTemplate(source: string): readonly Statement[] {
  if (source.length > MAX_LENGTH) throw new TemplateProblem(`the template is longer than ${MAX_LENGTH} characters`, 1);
  return new Parser(cutTemplate(source.replace(/\r\n?/g, '\n'))).body([], 0, 1).statements;
}
