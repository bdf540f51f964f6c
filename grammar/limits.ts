/** Bounds of grammars: what comes from a request may be made to cost much. */
export const LIMITS = {
  /** Nesting of expressions, and of what their derivatives recurse into. */
  depth: 500,
  /** Steps of one call (work.ts). */
  compileSteps: 20_000_000,
  maskSteps: 5_000_000,
  takeSteps: 1_000_000,
  /** Expressions and threads of states that one call may add, of about 200 bytes each. */
  partsOfCall: 400_000,
  /** Expressions behind which a grammar is given up. */
  expressions: 400_000,
  /** Expressions behind which the next grammar does not share those of others. */
  expressionsShared: 150_000,
  /** Threads of new states behind which a text is given up. */
  threadsOfText: 1_000_000,
  /** States, and their threads, that a grammar remembers; it forgets all of them when there are more. */
  states: 20_000,
  threads: 500_000,
  /** Longer tokens are never allowed. */
  tokenBytes: 1_024,
  /** Masks, and masks of automaton states, that a vocabulary keeps. */
  cacheBytes: 64 * 2 ** 20,
} as const;
