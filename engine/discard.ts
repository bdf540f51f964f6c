/**
 * Texts that nobody goes on with: what only they have is given up before anything else. A path of a search that was not
 * chosen is one. Nothing depends on it but what has to be computed again.
 */
import type { AdapterRef } from './device.js';
import { namesOf, PageNames } from './promptNames.js';
import { PAGE_TOKENS, type PagePool, rootOf } from './pages.js';

export interface Discarded {
  readonly tokens: readonly number[];
  /** The first token that other texts do not have. */
  readonly from: number;
  /** What it was computed with. */
  readonly adapter?: AdapterRef | undefined;
}

/** Forgets the pages of its own tokens that nobody holds. */
export function discardPages({ tokens, from, adapter }: Discarded, pool: PagePool): void {
  const names = namesOf(tokens) ?? new PageNames(tokens);
  const root = rootOf(adapter?.hash);
  const full = Math.floor(tokens.length / PAGE_TOKENS);
  const give = (page: number | undefined): void => {
    if (page !== undefined && pool.isIdle(page)) pool.forget(page);
  };
  // The last page first: the pages before it are part of its name.
  const rest = tokens.slice(full * PAGE_TOKENS);
  const stem = pool.stem(full === 0 ? root : names.at(full - 1, root), rest);
  // One that has less of them is another text's that begins alike. The last token need not have been computed.
  if (stem !== undefined && stem.rows >= rest.length - 1 && full * PAGE_TOKENS + stem.rows > from) give(stem.page);
  for (let index = full - 1; index >= 0 && (index + 1) * PAGE_TOKENS > from; index--)
    give(pool.pageOf(names.at(index, root)));
}
