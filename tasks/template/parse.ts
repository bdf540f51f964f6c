/** Parses a template into statements. */
import { ExpressionParser } from './expressions.js';
import { TemplateProblem, type Branch, type Statement } from './syntax.js';
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
        statements.push({ kind: 'print', value: parser.tuple(), line: piece.line });
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
      case 'set':
        return this.#set(parser, line, depth);
      case 'if':
        return this.#if(parser, line, depth);
      case 'for':
        return this.#for(parser, line, depth);
      default:
        throw new TemplateProblem(`the block "{% ${keyword} %}" is not supported; there are if, for, set, raw`, line);
    }
  }

  #set(parser: ExpressionParser, line: number, depth: number): Statement {
    const target = parser.target();
    if (parser.isNext('.')) throw parser.problem('a field cannot be set: namespace() is not supported');
    if (parser.takeIf('=')) {
      const value = parser.tuple();
      parser.end();
      return { kind: 'set', target, value, line };
    }
    if (parser.isNext('|')) throw parser.problem('a filter of "{% set %}" without "=" is not supported');
    parser.end();
    return { kind: 'capture', target, body: this.#last('endset', line, depth), line };
  }

  /** Statements up to the block that ends the whole, which is taken. */
  #last(keyword: string, line: number, depth: number): readonly Statement[] {
    const { statements, end } = this.body([keyword], depth + 1, line);
    end.name();
    end.end();
    return statements;
  }

  #if(first: ExpressionParser, line: number, depth: number): Statement {
    const branches: Branch[] = [];
    for (let parser = first; ;) {
      const { line: at } = parser.next;
      const condition = parser.tuple();
      parser.end();
      const { statements, end } = this.body(['elif', 'else', 'endif'], depth + 1, line);
      branches.push({ condition, body: statements, line: at });
      const keyword = end.name();
      parser = end;
      if (keyword === 'elif') continue;
      end.end();
      return { kind: 'if', branches, otherwise: keyword === 'else' ? this.#last('endif', line, depth) : [] };
    }
  }

  #for(parser: ExpressionParser, line: number, depth: number): Statement {
    const target = parser.target();
    parser.expect('in');
    const of = parser.visited();
    const condition = parser.takeIf('if') ? { condition: parser.expression() } : {};
    if (parser.isNext('recursive')) throw parser.problem('"recursive" of "{% for %}" is not supported');
    parser.end();
    const { statements: body, end } = this.body(['else', 'endfor'], depth + 1, line);
    const keyword = end.name();
    end.end();
    const otherwise = keyword === 'else' ? this.#last('endfor', line, depth) : [];
    return { kind: 'for', target, of, ...condition, body, otherwise, line };
  }
}

/** Throws TemplateProblem for what is not in the subset. */
export function parseTemplate(source: string): readonly Statement[] {
  if (source.length > MAX_LENGTH) throw new TemplateProblem(`the template is longer than ${MAX_LENGTH} characters`, 1);
  return new Parser(cutTemplate(source.replace(/\r\n?/g, '\n'))).body([], 0, 1).statements;
}
