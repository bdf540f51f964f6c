/**
 * Pages by how they begin: by the content before them and their first token. A sequence that begins like one of them
 * copies the rows that they have in common, where no whole page is the same.
 */
import { PAGE_TOKENS } from './limits.js';

/** Of pages that begin alike, as many are compared, the latest first. */
const MAX_COMPARED = 32;

/** The first rows of a page. */
export interface Stem {
  readonly page: number;
  readonly rows: number;
}

const keyOf = (before: string | undefined, first: number): string => `${before ?? ''}${first}`;

export class PageStems {
  private readonly groups = new Map<string, Set<number>>();
  private readonly keys: (string | undefined)[];
  /** Of each page its tokens as far as they are known, and their number. */
  private readonly tokens: Int32Array;
  private readonly counts: Uint8Array;

  constructor(pages: number) {
    this.keys = new Array<string | undefined>(pages);
    this.tokens = new Int32Array(pages * PAGE_TOKENS);
    this.counts = new Uint8Array(pages);
  }

  has(page: number): boolean {
    return this.keys[page] !== undefined;
  }

  /** `page` holds these tokens, at least one, behind the content `before`. */
  set(page: number, before: string | undefined, tokens: readonly number[]): void {
    const key = keyOf(before, tokens[0]!);
    if (this.keys[page] !== key) {
      this.delete(page);
      this.keys[page] = key;
      const group = this.groups.get(key);
      if (group === undefined) this.groups.set(key, new Set([page]));
      else group.add(page);
    }
    this.tokens.set(tokens, page * PAGE_TOKENS);
    this.counts[page] = tokens.length;
  }

  delete(page: number): void {
    const key = this.keys[page];
    if (key === undefined) return;
    this.keys[page] = undefined;
    const group = this.groups.get(key)!;
    group.delete(page);
    if (group.size === 0) this.groups.delete(key);
  }

  /** All that it has. */
  *pages(): Iterable<number> {
    for (const group of this.groups.values()) yield* group;
  }

  /** How many of its first rows are known. */
  rowsOf(page: number): number {
    return this.has(page) ? this.counts[page]! : 0;
  }

  /** The page that begins with most of these tokens behind `before`. */
  longest(before: string | undefined, tokens: readonly number[]): Stem | undefined {
    const group = tokens.length === 0 ? undefined : this.groups.get(keyOf(before, tokens[0]!));
    if (group === undefined) return undefined;
    let found: Stem | undefined;
    for (const page of [...group].slice(-MAX_COMPARED).reverse()) {
      const rows = this.common(page, tokens);
      if (rows > (found?.rows ?? 0)) found = { page, rows };
      if (rows === tokens.length) break;
    }
    return found;
  }

  /** All that begin with the first of these tokens behind `before`, the latest first, and the rows they have alike. */
  *alike(before: string | undefined, tokens: readonly number[]): Iterable<Stem> {
    const group = tokens.length === 0 ? undefined : this.groups.get(keyOf(before, tokens[0]!));
    if (group === undefined) return;
    for (const page of [...group].slice(-MAX_COMPARED).reverse()) yield { page, rows: this.common(page, tokens) };
  }

  /** How many of these tokens a page begins with that has the first. */
  private common(page: number, tokens: readonly number[]): number {
    const most = Math.min(tokens.length, this.counts[page]!);
    let rows = 1;
    while (rows < most && this.tokens[page * PAGE_TOKENS + rows] === tokens[rows]) rows++;
    return rows;
  }
}
