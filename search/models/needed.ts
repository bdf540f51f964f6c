/** How many tokens a verifier must compute at least for the scores that it is asked for, and how many it is given. */
import type { Problem } from '../path.js';
import { TokenTrie } from './tokenTrie.js';

export interface JudgeCounts {
  /** Texts that were scored. */
  readonly requests: number;
  /** Tokens of these texts, as far as their last score. */
  readonly askedTokens: number;
  /** How many of them were in pages already; the others were computed. */
  readonly foundTokens: number;
  /** What would be computed if nothing were computed twice: of each problem every different beginning once. */
  readonly neededTokens: number;
}

export class NeededTokens {
  private requests = 0;
  private askedTokens = 0;
  private foundTokens = 0;
  private neededTokens = 0;
  /** Problems that nobody has any more are forgotten. */
  private readonly tries = new WeakMap<Problem, TokenTrie>();

  get counts(): JudgeCounts {
    const { requests, askedTokens, foundTokens, neededTokens } = this;
    return { requests, askedTokens, foundTokens, neededTokens };
  }

  /** The first `length` of these tokens are asked for. */
  ask(problem: Problem, tokens: readonly number[], length: number): void {
    const trie = this.tries.get(problem) ?? new TokenTrie();
    this.tries.set(problem, trie);
    const before = trie.size;
    trie.add(tokens, length);
    this.requests++;
    this.askedTokens += length;
    this.neededTokens += trie.size - before;
  }

  answer(foundTokens: number): void {
    this.foundTokens += foundTokens;
  }
}
