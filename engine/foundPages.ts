/**
 * What a sequence need not compute: whole pages that contain its first tokens, and the first rows of another that
 * begins as its next one does. Rows that are asked for of these tokens are answered by what lies beside the pages;
 * where one is not, its token is left to compute.
 */
import type { TokenFact } from './pageFacts.js';
import { PAGE_TOKENS, type PagePool } from './pages.js';
import type { Adopted, Sequence } from './sequence.js';

export interface FoundPages extends Adopted {
  /** Pages that the sequence takes from those that are available: those that nobody holds are not there for others. */
  readonly missing: number;
  /** The content before its next page, and the tokens of that page that it need not compute if others have. */
  readonly before: string | undefined;
  readonly rest: readonly number[];
  /** Answers of its rows, from the first that is not answered on. */
  readonly facts: readonly TokenFact[];
  /** Tokens that it need not compute, and the most that others could spare it: what is behind them is asked for. */
  readonly at: number;
  readonly limit: number;
  /** Whole pages that contain its first tokens. Those past `pages` have no states to go on from. */
  readonly known: number;
  /** The snapshot of states that it goes on from. */
  readonly state?: number;
}

/** `takesStems`: whether it can have a page for rows that it copies. */
export function findPages(sequence: Sequence, pool: PagePool, takesStems = true): FoundPages {
  const { tokens, asks } = sequence;
  const most = sequence.isAlone ? 0 : tokens.length - 1;
  const facts: TokenFact[] = [];
  const nextAsk = (): number => asks.positions[asks.answered + facts.length] ?? Infinity;
  /** Answers rows whose targets are among the first `rows` tokens of `page`, which is the one at `begin`. */
  const answer = (page: number, begin: number, rows: number): void => {
    for (let place = nextAsk() + 1; place < begin + rows; place = nextAsk() + 1) {
      const ask = asks.answered + facts.length;
      const isOfPath = asks.targets[ask] === tokens[place] && asks.tops[ask] === 0;
      const fact = isOfPath ? pool.facts.get(page, place - begin) : undefined;
      if (fact === undefined) return;
      facts.push(fact);
    }
  };
  let [pages, idle] = [0, 0];
  let last: number | undefined;
  for (; (pages + 1) * PAGE_TOKENS <= most; pages++) {
    const page = pool.pageOf(sequence.content(pages)!);
    if (page === undefined) break;
    answer(page, pages * PAGE_TOKENS, PAGE_TOKENS);
    // A row in it is to be computed. The row behind it is the next page's.
    if (nextAsk() < (pages + 1) * PAGE_TOKENS - 1) break;
    if (pool.isIdle(page)) idle++;
    last = page;
  }
  const begin = pages * PAGE_TOKENS;
  const before = sequence.content(pages - 1);
  const restOf = (limit: number): readonly number[] =>
    tokens.slice(begin, Math.max(begin, Math.min(begin + PAGE_TOKENS, limit)));
  // What lies beside a token which is computed again may answer for the one before it.
  const found = most === 0 ? undefined : pool.stem(before, restOf(tokens.length));
  if (found !== undefined) answer(found.page, begin, found.rows);
  const rest = restOf(Math.min(most, nextAsk()));
  const missing = sequence.neededPages - pages + idle;
  const all = { facts, known: pages, limit: Math.max(0, Math.min(most, nextAsk())) };
  if (pool.states !== undefined) return { ...all, ...findStates(sequence, pool, all, takesStems) };
  if (nextAsk() >= begin) {
    const rows = Math.min(found?.rows ?? 0, rest.length);
    const stem = rows > 0 ? { page: found!.page, rows } : undefined;
    return { ...all, pages, missing, before, rest, stem, at: begin + rows };
  }
  // The last token of the last page is to be computed again: in a page of its own.
  const stem = { page: last!, rows: PAGE_TOKENS - 1 };
  const own = { pages: pages - 1, before: sequence.content(pages - 2), stem, rest: [], at: begin - 1 };
  return { ...all, ...own, missing: missing + (pool.isIdle(last!) ? 0 : 1) };
}

/** The last snapshot behind its first tokens, `limit` at most and `known` pages of them; else its beginning. */
function findStates(
  sequence: Sequence,
  pool: PagePool,
  { known, limit }: Pick<FoundPages, 'known' | 'limit'>,
  takesStems: boolean,
): Pick<FoundPages, 'pages' | 'stem' | 'at' | 'missing' | 'before' | 'rest' | 'state'> {
  const { tokens, neededPages } = sequence;
  const rest = { before: undefined, rest: [] };
  let pages = pool.states!.kept === 0 ? 0 : Math.min(known, Math.floor(limit / PAGE_TOKENS));
  const pageBefore = (index: number): number => pool.pageOf(sequence.content(index - 1)!)!;
  const missing = (): number => {
    let idle = 0;
    for (let i = 1; i <= pages; i++) if (pool.isIdle(pageBefore(i))) idle++;
    return neededPages - pages + idle;
  };
  for (; ; pages--) {
    const begin = pages * PAGE_TOKENS;
    const own = takesStems && pool.states!.kept > 0 ? tokens.slice(begin, Math.min(begin + PAGE_TOKENS, limit)) : [];
    const stem = pool.stateStem(sequence.content(pages - 1), own);
    if (stem !== undefined)
      return { ...rest, pages, missing: missing(), stem, at: begin + stem.rows, state: stem.state };
    if (pages === 0) return { ...rest, pages, missing: missing(), stem: undefined, at: 0 };
    const state = pool.states!.at(pageBefore(pages), PAGE_TOKENS);
    if (state !== undefined) return { ...rest, pages, missing: missing(), stem: undefined, at: begin, state };
  }
}
