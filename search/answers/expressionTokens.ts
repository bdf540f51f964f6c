/**
 * Tokens of an answer as latex2sympy has them. They are read one at a time: behind an expression may stand what is no
 * token. Answers in their normal form have no spaces, so a command ends where the longest known name does.
 */
import { Unreadable } from '../../tasks/hooks/math/latexLexer.js';

/** A number, a letter or a differential of two, a command without its backslash, a mark; a name is no factor. */
export interface ExpressionToken {
  readonly kind: 'number' | 'letter' | 'command' | 'mark' | 'name' | 'end';
  readonly text: string;
  /** Where it begins and ends. */
  readonly from: number;
  readonly to: number;
}

/** Functions that are written without a backslash. */
const NAMES =
  'arcsinh arccosh arctanh arsinh arcosh artanh gcd lcm floor ceil eye zeros ones cols rows diag norm rank ' +
  'trace tr rref hstack vstack orthogonalize orthogonal ortho orth nullspace diagonalize eigenvectors ' +
  'eigenvects eigenvalues eigenvals eigen eig svd SVD pmatrix bmatrix vmatrix matrix';
/** Letters of other alphabets and marks that stand for variables. */
const SYMBOLS =
  'alpha beta Gamma gamma Delta delta epsilon varepsilon zeta eta Theta theta vartheta iota kappa Lambda ' +
  'lambda mu nu Xi xi omicron Pi varpi rho varrho Sigma sigma varsigma tau Upsilon upsilon Phi phi varphi ' +
  'chi Psi psi Omega omega Bbbk wp nabla bigstar angle nexists diagdown measuredangle eth diagup ' +
  'sphericalangle clubsuit varnothing Diamond complement diamondsuit imath Finv triangledown heartsuit jmath ' +
  'Game triangle spadesuit ell hbar vartriangle hslash blacklozenge lozenge blacksquare mho blacktriangle ' +
  'sharp prime Im flat square backprime Re natural surd circledS';
/** Commands that make a variable of a group. */
const ACCENTS =
  'acute bar overline breve check widecheck dot ddot grave hat tilde widetilde vec overrightarrow bm ' +
  'boldsymbol text textit mathbb mathbin mathbf mathcal mathclap mathclose mathellipsis mathfrak mathinner ' +
  'mathnormal mathop mathopen mathord mathpunct mathrel mathring mathrlap mathrm mathscr mathsf mathsterling ' +
  'mathtt';
const OTHERS =
  'over lgroup rgroup lbrace rbrace lbrack rbrack lvert rvert vert lfloor rfloor llcorner lrcorner lceil ' +
  'rceil ulcorner urcorner left right mleft mright log ln exp sin cos tan csc sec cot arcsin arccos arctan ' +
  'arccsc arcsec arccot sinh cosh tanh arsinh arcosh artanh arcsinh arccosh arctanh sqrt gcd lcm floor ceil ' +
  'max min det times cdot div frac binom tbinom dbinom choose mod mathit operatorname in equiv leq le ' +
  'leqslant geq ge geqslant ne neq lim int sum prod to rightarrow Rightarrow longrightarrow Longrightarrow ' +
  'pi infty partial emptyset exponentialE';

export const SYMBOL_COMMANDS: ReadonlySet<string> = new Set(SYMBOLS.split(' '));
export const ACCENT_COMMANDS: ReadonlySet<string> = new Set(ACCENTS.split(' '));

const longestFirst = (words: string): string =>
  words
    .split(' ')
    .sort((a, b) => b.length - a.length)
    .join('|');
const TOKEN = new RegExp(
  [
    '(?<number>(?:\\d*(?:,\\d{3})*[.]\\d+|\\d+(?:,\\d{3})*)(?:E[-+]?\\d+)?)',
    `(?<name>E|${longestFirst(NAMES)})`,
    '(?<letter>d\\s*(?:[a-zA-Z]|\\\\[a-zA-Z]+)|[a-zA-Z])',
    '(?<command>\\\\(?:(?:begin|end)\\{[pbv]?matrix\\}|' +
      `${longestFirst([NAMES, SYMBOLS, ACCENTS, OTHERS].join(' '))}|[{}|\\\\]))`,
    "(?<mark>\\^T|\\^\\{T\\}|!==?|==|<->|<=>|[-+*/(){}[\\]|&_^:;,=<>!'.])",
  ].join('|'),
  'y',
);
/** Spaces, and what looks like them. */
const SKIPPED = /(?:\s|\$|~|\\\$|\\,|\\q?quad|\\displaystyle)*/y;

/** The token at a place of a text, or behind spaces there. Throws Unreadable where none is. */
export function tokenAt(text: string, place: number): ExpressionToken {
  SKIPPED.lastIndex = place;
  SKIPPED.exec(text);
  const from = SKIPPED.lastIndex;
  if (from >= text.length) return { kind: 'end', text: '', from, to: from };
  TOKEN.lastIndex = from;
  const found = TOKEN.exec(text)?.groups;
  if (found === undefined) throw new Unreadable(`no token begins at ${from}`);
  const to = TOKEN.lastIndex;
  for (const kind of ['number', 'letter', 'mark', 'name'] as const)
    if (found[kind] !== undefined) return { kind, text: found[kind], from, to };
  return { kind: 'command', text: found['command']!.slice(1), from, to };
}
