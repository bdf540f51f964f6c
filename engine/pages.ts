/** Pages of keys and values: who holds them, what they contain, and which can be had. */
import { createHash } from 'node:crypto';

/** Tokens of a page. Attention takes keys in groups of this size, so no group of a path lies in two pages. */
export const PAGE_TOKENS = 16;

/** Names what a full page contains: its own tokens, and all that came before them. */
export function contentOf(before: string | undefined, tokens: readonly number[]): string {
  const hash = createHash('sha256');
  if (before !== undefined) hash.update(before);
  return hash.update(Int32Array.from(tokens)).digest('base64');
}

/**
 * Pages are shared by reference. A page that nobody holds keeps its content, and can be held again by whoever needs
 * the same tokens after the same path, until its memory is taken for something else: blank pages first, then the least
 * recently used.
 */
export class PagePool {
  readonly total: number;
  /** Pages that had a content and were taken for another one. */
  evictions = 0;
  private readonly holders: Int32Array;
  private readonly contents: (string | undefined)[];
  private readonly byContent = new Map<string, number>();
  private readonly blank: number[];
  /** Pages with a content that nobody holds, in order of their release. */
  private readonly idle = new Set<number>();

  constructor(total: number) {
    this.total = total;
    this.holders = new Int32Array(total);
    this.contents = new Array<string | undefined>(total);
    this.blank = Array.from({ length: total }, (_, i) => total - 1 - i);
  }

  /** Pages that can be taken. */
  get available(): number {
    return this.blank.length + this.idle.size;
  }

  /** Pages that are held. */
  get held(): number {
    return this.total - this.available;
  }

  /** A page for new content, held once; undefined where every page is held. */
  take(): number | undefined {
    let page = this.blank.pop();
    if (page === undefined) {
      [page] = this.idle;
      if (page === undefined) return undefined;
      this.idle.delete(page);
      this.byContent.delete(this.contents[page]!);
      this.contents[page] = undefined;
      this.evictions++;
    }
    this.holders[page] = 1;
    return page;
  }

  /** Holds the page with this content; undefined where there is none. */
  find(content: string): number | undefined {
    const page = this.byContent.get(content);
    if (page === undefined) return undefined;
    this.idle.delete(page);
    this.holders[page]!++;
    return page;
  }

  /** Whether a page has this content. */
  has(content: string): boolean {
    return this.byContent.has(content);
  }

  /** The held `page` is full and will not change. Where another page has the same content, that one stays known. */
  publish(page: number, content: string): void {
    if (this.byContent.has(content)) return;
    this.byContent.set(content, page);
    this.contents[page] = content;
  }

  /** What `page` contains is not to be found any more. */
  forget(page: number): void {
    const content = this.contents[page];
    if (content === undefined) return;
    this.byContent.delete(content);
    this.contents[page] = undefined;
    if (this.idle.delete(page)) this.blank.push(page);
  }

  /** The memory was lost: nothing is to be found any more. */
  clear(): void {
    for (let page = 0; page < this.total; page++) this.forget(page);
  }

  /** Gives up one hold. */
  release(page: number): void {
    const left = this.holders[page]! - 1;
    if (!(left >= 0)) throw new Error(`Page ${page} is held by nobody.`);
    this.holders[page] = left;
    if (left > 0) return;
    if (this.contents[page] === undefined) this.blank.push(page);
    else this.idle.add(page);
  }
}
