/** The tokens of an answer in LaTeX. */

/** A command without its backslash, a number, a text in braces of \text, or one letter or mark. */
export interface Token {
  readonly kind: 'command' | 'number' | 'text' | 'mark' | 'letter' | 'end';
  readonly text: string;
  /** Whether a space stands before it. */
  readonly isApart: boolean;
}

/** Letters of an answer; a longer one is a text. */
export const MAX_LETTERS = 2000;

const TOKEN =
  /(\s+)|\\(?:text|mbox|operatorname)\s*\{([^{}]*)\}|\\([a-zA-Z]+|.)|(\d+(?:\.\d+)?|\.\d+)|([a-zA-Z])|([^])/guy;
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
export function tokensOf(latex: string): Token[] | undefined {
  if (latex.length > MAX_LETTERS) return undefined;
  const tokens: Token[] = [];
  let isApart = false;
  for (const [, space, text, command, number, letter, mark] of latex.matchAll(TOKEN)) {
    const add = (kind: Token['kind'], value: string): unknown => tokens.push({ kind, text: value, isApart });
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
