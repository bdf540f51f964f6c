/**
 * The section of questions: numbers of all questions, which are read at once, and texts in blocks of some hundred
 * questions, which are read when they are looked at. A row is a question; rows of a task follow each other.
 */

/** JSON cannot express NaN and infinities. */
export type Likelihood = number | 'nan' | 'inf' | '-inf';

/** What a run answered, by row. */
export interface RunAnswers {
  /** Log-likelihoods of the choices in nats, rounded to four digits; null where the run has no choices for the row. */
  readonly lls: readonly (readonly Likelihood[] | null)[];
  /** The most likely choice, from 0; -1 where there is none. */
  readonly chosen: readonly number[];
  /**
   * By how much the right choice exceeds the best other one, in nats: below 0 where another is more likely. Where the
   * right one is not known, the most likely one takes its place. Null without two numbers.
   */
  readonly margins: readonly (number | null)[];
  /** For each metric of the document, by row: 1 is right, 0 is wrong; null where the row has no such value. */
  readonly values: readonly (readonly (number | null)[])[];
}

export interface QuestionsDocument {
  /** Names of the runs, as in the results. */
  readonly runs: readonly string[];
  readonly tasks: readonly { readonly task: string; readonly firstRow: number; readonly rows: number }[];
  /** `acc`, `acc_norm`, with their filters where these are named. */
  readonly metrics: readonly string[];
  /** Numbers of the questions in their task. */
  readonly docIds: readonly number[];
  /** The right choice, from 0; -1 where it is not known. */
  readonly golds: readonly number[];
  /** By run. */
  readonly answers: readonly RunAnswers[];
  /** First rows of the blocks of texts. */
  readonly blocks: readonly number[];
  /** Questions that are in the files and not on the page. */
  readonly left: number;
}

export interface QuestionText {
  /** What stands before the choices. */
  readonly context: string;
  /** How many characters of it other questions begin with, too: the examples before this one. */
  readonly shots: number;
  readonly choices: readonly string[];
  /** The right answer, where it is a text. */
  readonly target?: string;
  /** Of each run, the texts that it generated. */
  readonly outputs?: readonly (readonly string[])[];
  /** Characters that were too many for the page; -1 where all of its texts are. */
  readonly cut?: number;
}

/** The content of a block of texts, by row from its first. */
export type QuestionTexts = readonly QuestionText[];

export const textsBlock = (block: number): string => `questions.texts.${block}`;

/** As JSON holds it: four digits behind the point. */
export const likelihood = (value: number): Likelihood =>
  Number.isFinite(value) ? Math.round(value * 1e4) / 1e4 : Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';

export const numberOf = (value: Likelihood): number =>
  typeof value === 'number' ? value : value === 'nan' ? NaN : value === 'inf' ? Infinity : -Infinity;

/** Names of choices, in every report and comparison. */
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

/** `A` of choice 0; past Z its number, counted from 1. */
export const letter = (choice: number): string => LETTERS[choice] ?? String(choice + 1);

/**
 * Tokens of questions with their log-probabilities: a block for each run and each block of texts, by row from its
 * first. A token's text is a piece of the choice's text where the two agree, which the page has already.
 */

export interface ChoiceTokens {
  /** Tokens of this choice's own context that are left out between those that all share and the first of these. */
  readonly omitted: number;
  /** Lengths of the tokens' texts in characters, where together they are the choice as the page shows it. */
  readonly lengths?: readonly number[];
  /** Otherwise the texts; null for a token without one. */
  readonly texts?: readonly (string | null)[];
  /** In nats, rounded to two digits; of the last of the tokens. */
  readonly logProbs: readonly number[];
}

export interface QuestionTokens {
  /** Tokens with which all choices begin. */
  readonly shared: number;
  readonly choices: readonly ChoiceTokens[];
}

/** The content of a block; null for a row whose tokens are not known. */
export type TokenBlock = readonly (QuestionTokens | null)[];

export const tokensBlock = (run: number, block: number): string => `questions.tokens.${run}.${block}`;

/** The tree of a question's tokens: what choices have in common is there once. */

export interface Token {
  /** Null for a token without a text: a special one. */
  readonly text: string | null;
  /** In nats; null for a token of a context, which is not scored. */
  readonly logProb: number | null;
}

/** Tokens one after another, up to where choices part or one ends. */
export interface TokenNode {
  readonly tokens: readonly Token[];
  /** Choices that end here, from 0. */
  readonly ends: readonly number[];
  readonly children: readonly TokenNode[];
}

/** The tokens of a choice; `shown` is the choice as the page has it, of which lengths are. */
export function tokensOf({ lengths, texts, logProbs }: ChoiceTokens, shown: string): Token[] {
  const count = lengths?.length ?? texts?.length ?? 0;
  const unscored = count - logProbs.length;
  let at = 0;
  return Array.from({ length: count }, (_, i): Token => {
    const text = lengths === undefined ? (texts?.[i] ?? null) : shown.slice(at, (at += lengths[i]!));
    return { text, logProb: i < unscored ? null : (logProbs[i - unscored] ?? null) };
  });
}

interface Branch {
  readonly choice: number;
  readonly tokens: readonly Token[];
}

const isSame = (a: Token | undefined, b: Token | undefined): boolean =>
  a !== undefined && b !== undefined && a.text === b.text && a.logProb === b.logProb;

function nodeOf(branches: readonly Branch[], from: number): TokenNode {
  const [first] = branches;
  const tokens: Token[] = [];
  let at = from;
  // On while all have the same token and none has ended.
  while (first !== undefined && branches.every((branch) => isSame(branch.tokens[at], first.tokens[at])))
    tokens.push(first.tokens[at++]!);
  const rest = branches.filter((branch) => branch.tokens.length > at);
  const groups: Branch[][] = [];
  for (const branch of rest) {
    const group = groups.find(([each]) => isSame(each!.tokens[at], branch.tokens[at]));
    if (group === undefined) groups.push([branch]);
    else group.push(branch);
  }
  return {
    tokens,
    ends: branches.filter((branch) => branch.tokens.length === at).map(({ choice }) => choice),
    children: groups.map((group) => nodeOf(group, at)),
  };
}

/** Branches in the order of choices. The root has the tokens that all begin with, often none. */
export const tokenTree = (choices: readonly (readonly Token[])[]): TokenNode =>
  nodeOf(
    choices.map((tokens, choice) => ({ tokens, choice })),
    0,
  );

/** Tokens of all nodes. */
export const countOf = ({ tokens, children }: TokenNode): number =>
  tokens.length + children.reduce((sum, child) => sum + countOf(child), 0);
