/** Who says which tokens may come next. It may think: meanwhile its sequence takes no part in steps, and others do. */

/** Tokens that are allowed: bit t % 32 of word t >> 5 stands for token t. ⌈vocabulary / 32⌉ words. */
export type TokenMask = Uint32Array;

/** Follows one continuation. */
export interface GuideState {
  /**
   * The tokens that may come behind all that were taken, the last of which is `token`; none before the first. Tokens
   * that end the text are among them where it may end. Rejects where nothing may come: the continuation fails.
   */
  next(token?: number): TokenMask | Promise<TokenMask>;
  /** The continuation is over. */
  close(): void;
}

export interface TokenGuide {
  begin(sample: number): GuideState;
}
