/**
 * Tokens of the text form. Words are ops, element types, symbols and attribute names; the parser distinguishes them.
 */
import { Lexer, createToken, type IToken, type TokenType } from 'chevrotain';
import { GraphSyntaxError, type Spot } from './syntax.js';

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
