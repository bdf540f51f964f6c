/** Syntax tree of the text form: names with their places, nothing resolved. Also the error that names a place. */
import { createToken, type IToken, Lexer, type TokenType } from 'chevrotain';
import { UserError } from '../../errors.js';

/** Line and column, both from 1. */
export interface Spot {
  readonly line: number;
  readonly column: number;
}

/** Thrown for wrong text of a graph: `file:line:column: found …, expected …`. */
export class GraphSyntaxError extends UserError {
  readonly spot: Spot;
  readonly found: string;
  readonly expected: string;

  constructor(file: string, spot: Spot, found: string, expected: string) {
    super(`${file}:${spot.line}:${spot.column}: found ${found}, expected ${expected}`);
    this.name = 'GraphSyntaxError';
    this.spot = spot;
    this.found = found;
    this.expected = expected;
  }
}

/** A token's text, with its sigil or quotes. */
export interface Leaf {
  readonly text: string;
  readonly spot: Spot;
}

export interface TypeSyntax {
  readonly dtype: Leaf;
  readonly dims: readonly Leaf[];
}

export interface DeclarationSyntax {
  readonly name: Leaf;
  readonly type: TypeSyntax;
  /** For a parameter. */
  readonly role?: RoleSyntax;
}

/** `row(T)`, `position`. */
export interface RoleSyntax {
  readonly kind: Leaf;
  readonly argument: Leaf | undefined;
}

/** `%logProb: f32[R]`, or the type alone. */
export interface ResultSyntax {
  readonly name: Leaf | undefined;
  readonly type: TypeSyntax;
}

/** `T tokens`, `F filtered within R`. */
export interface ExtentSyntax {
  readonly name: Leaf;
  readonly counts: Leaf | undefined;
  readonly within: Leaf | undefined;
}

export interface AttributeSyntax {
  readonly name: Leaf;
  /** One leaf, or a list of leaves in brackets. */
  readonly value: Leaf | readonly Leaf[];
}

export interface NodeSyntax {
  readonly result: Leaf;
  readonly op: Leaf;
  readonly operands: readonly Leaf[];
  readonly attributes: readonly AttributeSyntax[];
  readonly type: TypeSyntax;
  /** With its quotes. */
  readonly path: Leaf | undefined;
}

/** `%kv: state @kv`. */
export interface TakenSyntax {
  readonly name: Leaf;
  readonly state: Leaf;
}

export interface ModuleSyntax {
  /** Absent: the text is one function. */
  readonly name: Leaf | undefined;
  readonly states: readonly DeclarationSyntax[];
  readonly functions: readonly GraphSyntax[];
}

export interface GraphSyntax {
  readonly name: Leaf;
  /** If absent, the extents of the parameters in order of appearance. */
  readonly extents: readonly ExtentSyntax[] | undefined;
  readonly params: readonly DeclarationSyntax[];
  readonly takes: readonly TakenSyntax[];
  readonly resultTypes: readonly ResultSyntax[];
  readonly gives: readonly Leaf[];
  readonly weights: readonly DeclarationSyntax[];
  readonly nodes: readonly NodeSyntax[];
  readonly returned: readonly Leaf[];
  /** The operands of `return`. */
  readonly returnSpot: Spot;
}

// Tokens of the text form. Words are ops, element types, symbols and attribute names; the parser distinguishes them.

/**
 * Longest accepted text, in UTF-16 units. A decoder layer takes 6 KB, so a model of 80 layers needs 6 % of this. Each
 * unit costs the parser about 100 bytes.
 */
export const MAX_TEXT = 8 << 20;

const WORD_END = '(?![A-Za-z0-9_])';
const keyword = (word: string): TokenType =>
  createToken({ name: `Keyword_${word}`, label: `'${word}'`, pattern: new RegExp(word + WORD_END) });
const punctuation = (name: string, image: string): TokenType =>
  createToken({ name, label: `'${image}'`, pattern: image });

export const ModuleKeyword = keyword('module');
export const StateKeyword = keyword('state');
export const FuncKeyword = keyword('func');
export const WeightKeyword = keyword('weight');
export const ReturnKeyword = keyword('return');
export const AtKeyword = keyword('at');
export const IsKeyword = keyword('is');
export const WithinKeyword = keyword('within');
export const True = keyword('true');
export const False = keyword('false');
export const Arrow = punctuation('Arrow', '->');
export const LParen = punctuation('LParen', '(');
export const RParen = punctuation('RParen', ')');
export const LBrace = punctuation('LBrace', '{');
export const RBrace = punctuation('RBrace', '}');
export const LBracket = punctuation('LBracket', '[');
export const RBracket = punctuation('RBracket', ']');
export const Colon = punctuation('Colon', ':');
export const Comma = punctuation('Comma', ',');
export const Semicolon = punctuation('Semicolon', ';');
export const Equals = punctuation('Equals', '=');
export const Local = createToken({ name: 'Local', label: 'a value (%name)', pattern: /%[A-Za-z_][A-Za-z0-9_]*/ });
export const Global = createToken({
  name: 'Global',
  label: 'a global name (@name)',
  pattern: /@[A-Za-z_][A-Za-z0-9_.-]*/,
});
export const NumberToken = createToken({
  name: 'Number',
  label: 'a number',
  pattern: new RegExp(`-?(?:inf|[0-9]+(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)${WORD_END}`),
});
export const StringToken = createToken({
  name: 'String',
  label: 'a string',
  pattern: /"(?:[^"\\\u0000-\u001f]|\\[^\u0000-\u001f])*"/,
});
export const Word = createToken({ name: 'Word', label: 'a word', pattern: /[A-Za-z_][A-Za-z0-9_]*/ });

const WhiteSpace = createToken({ name: 'WhiteSpace', pattern: /[ \t\r\n]+/, group: Lexer.SKIPPED, line_breaks: true });
const Comment = createToken({ name: 'Comment', pattern: /\/\/[^\n]*/, group: Lexer.SKIPPED });

/** The order matters: the first pattern that matches is used. */
export const TOKENS: TokenType[] = [
  WhiteSpace,
  Comment,
  ModuleKeyword,
  StateKeyword,
  FuncKeyword,
  WeightKeyword,
  ReturnKeyword,
  AtKeyword,
  IsKeyword,
  WithinKeyword,
  True,
  False,
  Arrow,
  LParen,
  RParen,
  LBrace,
  RBrace,
  LBracket,
  RBracket,
  Colon,
  Comma,
  Semicolon,
  Equals,
  Local,
  Global,
  NumberToken,
  StringToken,
  Word,
];

const LEXER = new Lexer(TOKENS, { positionTracking: 'onlyStart', ensureOptimizations: false });

/** Tokens of `text`. Throws GraphSyntaxError if it is too long, or if a character cannot start a token. */
export function tokenize(text: string, file: string): IToken[] {
  const start: Spot = { line: 1, column: 1 };
  if (text.length > MAX_TEXT)
    throw new GraphSyntaxError(file, start, `${text.length} characters`, `at most ${MAX_TEXT}`);
  const { tokens, errors } = LEXER.tokenize(text);
  const [first] = errors;
  if (first === undefined) return tokens;
  const character = JSON.stringify(String.fromCodePoint(text.codePointAt(first.offset) ?? 0xfffd));
  const expected =
    character === '"\\""' ? 'the closing quote of a string on the same line' : 'a token of the graph text form';
  throw new GraphSyntaxError(file, { line: first.line ?? 1, column: first.column ?? 1 }, character, expected);
}
