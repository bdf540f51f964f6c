/** How many tokens a verifier must compute at least for the scores that it is asked for, and how many it is given. */
import type { Path } from '../path.js';

export interface JudgeCounts {
  /** Texts that were scored. */
  readonly requests: number;
  /** Tokens of these texts, as far as their last score. */
  readonly askedTokens: number;
  /** How many of them were in pages already; the others were computed. */
  readonly foundTokens: number;
  /** Tokens that no score before had computed: what would be computed if nothing were computed twice. */
  readonly neededTokens: number;
}

export class NeededTokens {
  private requests = 0;
  private askedTokens = 0;
  private foundTokens = 0;
  private neededTokens = 0;
  /** Of each path, the first text that was scored of its children. */
  private readonly firstOf = new WeakMap<Path, readonly number[]>();

  get counts(): JudgeCounts {
    const { requests, askedTokens, foundTokens, neededTokens } = this;
    return { requests, askedTokens, foundTokens, neededTokens };
  }

  /** `length` tokens are asked for, the first `scored` of which a score of the path has computed. */
  ask({ parent }: Path, tokens: readonly number[], length: number, scored: number): void {
    const first = parent && this.firstOf.get(parent);
    let known = scored;
    while (first !== undefined && known < Math.min(first.length, length) && first[known] === tokens[known]) known++;
    if (parent !== undefined && first === undefined) this.firstOf.set(parent, tokens);
    this.requests++;
    this.askedTokens += length;
    this.neededTokens += length - known;
  }

  answer(foundTokens: number): void {
    this.foundTokens += foundTokens;
  }
}
