/** The tree of a question's tokens: what choices have in common is there once. */
import type { ChoiceTokens } from './tokens.js';

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
