/**
 * Drafts: tokens that may follow a text. A step computes them beside the last token, with a row for each that draws
 * with the key of its place, and they are accepted as long as they are what was drawn before them. So a text does not
 * depend on its drafts: a wrong one costs time and nothing else, and whoever proposes may be as rough as they like.
 */
import type { Draw } from '../ir/gumbel.js';
import { MAX_DRAFTS } from './limits.js';

/**
 * Tokens that may follow a text, as a tree below its last token. A parent comes before its children, and the nodes
 * before the first with another parent than the one before it are a chain: the likeliest continuation.
 */
export interface Draft {
  readonly tokens: readonly number[];
  /**
   * The index of each node's parent in `tokens`, smaller than the node's own. −1 stands for the last token of the text.
   * Default: a chain.
   */
  readonly parents?: readonly number[] | undefined;
  /** Of each node the estimated probability, from 0 to 1, that it is what follows its parent. Default: not known. */
  readonly chances?: readonly number[] | undefined;
}

export const NO_DRAFT: Draft = { tokens: [] };

/** A text that goes on. */
export interface DraftText {
  /** Its prompt, and what was generated so far. It changes after the call: what is kept of it must be a copy. */
  readonly tokens: readonly number[];
  readonly promptLength: number;
  /**
   * What the token at place `at` is drawn with, known before anything is computed; undefined: the most likely one is
   * taken. Drafts that are chosen with the same noise are accepted more often (chance.ts).
   */
  drawAt(at: number): Draw | undefined;
}

/** Follows one text. It must be quick: it is asked in the loop that feeds the device. */
export interface DraftState {
  /** What may follow, at most `most` tokens (nodes). What it throws ends the request. */
  propose(text: DraftText, most: number): Draft;
  /** The text is over. */
  end?(text: Pick<DraftText, 'tokens' | 'promptLength'>): void;
}

/** Proposes on the host. One serves all texts of a model. */
export interface Drafter {
  /** For summaries and metrics: `ngram`, `suffix`. */
  readonly name: string;
  begin(text: Pick<DraftText, 'tokens' | 'promptLength'>): DraftState;
}

/** A drafter without memory, of a function that is given the tokens so far. */
export const drafterOf = (propose: (tokens: readonly number[]) => readonly number[], name = 'custom'): Drafter => ({
  name,
  begin: () => ({ propose: ({ tokens }) => ({ tokens: Array.from(propose(tokens)) }) }),
});

/**
 * What is left of a draft: the nodes of the first `most` whose tokens are of the vocabulary and whose parents are left.
 * Whatever a drafter returned, the result is a tree.
 */
export function usableDraft(proposed: Draft, most: number, vocabSize = Infinity): Draft {
  const { parents, chances } = proposed;
  const count = Math.min(proposed.tokens.length, Math.max(0, Math.min(most, MAX_DRAFTS)));
  const isToken = (token: unknown): boolean =>
    typeof token === 'number' && Number.isInteger(token) && token >= 0 && token < vocabSize;
  const places = new Map<number, number>([[-1, -1]]);
  const tokens: number[] = [];
  const kept: number[] = [];
  const likely: number[] = [];
  for (let node = 0; node < count; node++) {
    const parent = places.get(parents === undefined ? node - 1 : (parents[node] ?? NaN));
    const token = proposed.tokens[node]!;
    if (parent === undefined || !isToken(token)) continue;
    places.set(node, tokens.length);
    tokens.push(token);
    kept.push(parent);
    const chance = chances?.[node];
    likely.push(chance !== undefined && chance >= 0 && chance <= 1 ? chance : NaN);
  }
  const isChain = kept.every((parent, node) => parent === node - 1);
  return {
    tokens,
    ...(isChain ? {} : { parents: kept }),
    ...(likely.length > 0 && likely.every((chance) => !Number.isNaN(chance)) ? { chances: likely } : {}),
  };
}
