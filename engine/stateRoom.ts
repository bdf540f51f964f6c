/**
 * How many rows of recurrent states a model has beside its keys and values. A row may be as large as the keys of
 * thousands of tokens: there is one for each text that runs, and what is left keeps snapshots.
 */

/** What a model keeps, in bytes of all its layers. */
export interface StateSizes {
  /** Of a row of states. */
  readonly rowBytes: number;
  /** Of the keys and values of a token; 0: it keeps none. */
  readonly tokenBytes: number;
}

/** A model has a row for so many tokens at least: for texts of that length, if all run at a time. */
const TEXT_TOKENS = 1024;
/** Such rows are at least and at most so many: more than that take no more memory than keys and values do. */
const LEAST = 8;
const ENOUGH = 64;
/** No text of fewer tokens needs a row of its own, and steps take no more texts. */
const SHORT_TOKENS = 64;
const MOST = 512;

/** Rows for a model that keeps the keys and values of so many tokens. Of equal sizes, more tokens never have fewer. */
export function stateRowsFor(cacheTokens: number, { rowBytes, tokenBytes }: StateSizes): number {
  const needed = Math.min(ENOUGH, Math.ceil(cacheTokens / TEXT_TOKENS));
  const alike = Math.floor((cacheTokens * tokenBytes) / rowBytes);
  const most = Math.min(MOST, Math.ceil(cacheTokens / SHORT_TOKENS));
  return Math.max(LEAST, Math.min(most, Math.max(needed, alike)));
}
