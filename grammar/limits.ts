/** Bounds of grammars: what comes from a request may be made to cost much. */
export const LIMITS = {
  /** Nesting of expressions, and of what their derivatives recurse into. */
  depth: 500,
  /** Nodes of a grammar as it is given: expressions, and bytes of literals. */
  sourceNodes: 2_000_000,
  /** Steps of one call (work.ts): about 50 ms. */
  compileSteps: 20_000_000,
  maskSteps: 5_000_000,
  takeSteps: 1_000_000,
  /** Interned expressions that following one grammar may add, of about 200 bytes each. */
  nodesOfGrammar: 250_000,
  /** Interned expressions behind which the next grammar begins with a table of its own. */
  nodesShared: 150_000,
  /** States that a grammar remembers; it forgets all of them when there are more. */
  states: 20_000,
  /** Longer tokens are never allowed. */
  tokenBytes: 1_024,
  /** Masks, and masks of automaton states, that a vocabulary keeps. */
  cacheBytes: 128 * 2 ** 20,
} as const;
