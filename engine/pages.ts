/** Pages of keys and values: who holds them, what they contain, and which can be had. */
import { hash } from 'node:crypto';
import { LowestFirst } from '../system/lowestFirst.js';
import { PAGE_TOKENS } from './limits.js';
import { PageFacts } from './pageFacts.js';
import { PageStems, type Stem } from './pageStems.js';
import type { StatePool } from './states.js';

export { PAGE_TOKENS };

/** Contents that are remembered after their memory was taken. */
const MAX_TAKEN = 1 << 16;
/** What is hashed: the name of the content before, in base64, and the page's own tokens. */
const NAME_BYTES = 44;
const hashed = new Int32Array(NAME_BYTES / 4 + PAGE_TOKENS);
const hashedBytes = new Uint8Array(hashed.buffer);

/**
 * Names what a page contains: its own tokens, PAGE_TOKENS at most, and all that came before them. Names are SHA-256, so
 * that nobody can make two contents of one name.
 */
export function contentOf(before: string | undefined, tokens: readonly number[]): string {
  for (let i = 0; i < NAME_BYTES; i++) hashedBytes[i] = before?.charCodeAt(i) ?? 0;
  hashed.set(tokens, NAME_BYTES / 4);
  return hash('sha256', hashedBytes.subarray(0, NAME_BYTES + 4 * tokens.length), 'base64');
}

/**
 * What stands before the first page of a text that is computed with an adapter: keys and values depend on what the
 * adapter contains, so texts of two contents share no page, whatever they are called. Texts without adapter have
 * nothing before their first page. What is hashed is longer than a name and no list of tokens: its length is odd.
 */
export const rootOf = (adapterHash: string | undefined): string | undefined =>
  adapterHash === undefined ? undefined : hash('sha256', `adapter: ${adapterHash}`, 'base64');

/**
 * Pages are shared by reference, and copied where only their first rows are shared. A page that nobody holds keeps its
 * content, and can be held again by whoever needs the same tokens after the same path, until its memory is taken for
 * something else: blank pages first, the lowest of them, and then the least recently used. So the last pages become
 * idle, whose memory can be given to others.
 */
export class PagePool {
  /** Pages that have memory. */
  private count: number;
  /** Pages that had a content and were taken for another one. */
  evictions = 0;
  /** Times that a page came to be available. */
  freed = 0;
  /** Pages that nobody held and that were found again. */
  found = 0;
  /** Pages that were computed again after their memory was taken, and how many others were taken meanwhile, in all. */
  lost = 0;
  lostDistance = 0;
  private readonly holders: Int32Array;
  private readonly contents: (string | undefined)[];
  private readonly byContent = new Map<string, number>();
  private readonly blank: LowestFirst;
  /** Pages with a content that nobody holds, in order of their release. */
  private readonly unheld = new Set<number>();
  /** Contents whose memory was taken, and how many had been taken before. The oldest are dropped. */
  private readonly taken = new Map<string, number>();
  private readonly stems: PageStems;
  /** What was computed about the tokens of pages. */
  readonly facts: PageFacts;
  /** Of each page how many of its first rows the function that drafts has computed as well. */
  readonly drafted: Uint8Array;
  /** Rows of recurrent states, if the model has such: some are snapshots behind tokens of pages. */
  readonly states: StatePool | undefined;

  /** `most`: pages that there may be; as many as are there, unless `count` says fewer. */
  constructor(most: number, count = most, states?: StatePool) {
    this.states = states;
    this.count = 0;
    this.holders = new Int32Array(most);
    this.contents = new Array<string | undefined>(most);
    this.blank = new LowestFirst(most);
    this.stems = new PageStems(most);
    this.facts = new PageFacts(most);
    this.drafted = new Uint8Array(most);
    this.resize(count);
  }

  get total(): number {
    return this.count;
  }

  /** Pages that can be taken. */
  get available(): number {
    return this.blank.size + this.unheld.size;
  }

  /** Pages that keep a content which nobody needs at the moment. */
  get idle(): number {
    return this.unheld.size;
  }

  /** Pages that are held. */
  get held(): number {
    return this.count - this.available;
  }

  /**
   * There are pages 0 to `count` − 1 from now on. Nobody may hold one of those that go: throws where somebody does.
   */
  resize(count: number): void {
    if (!(Number.isInteger(count) && count >= 0 && count <= this.holders.length))
      throw new RangeError(`${count} pages, where there are addresses for ${this.holders.length}`);
    for (let page = count; page < this.count; page++)
      if (this.holders[page]! > 0) throw new Error(`Page ${page} is held, and cannot go.`);
    for (let page = count; page < this.count; page++) {
      this.remember(page);
      this.forget(page);
      this.blank.delete(page);
    }
    for (let page = this.count; page < count; page++) this.offer(page);
    this.count = count;
  }

  /** A page for new content, held once; undefined where every page is held. */
  take(): number | undefined {
    let page = this.blank.take();
    if (page === undefined) {
      [page] = this.unheld;
      if (page === undefined) return undefined;
      this.remember(page);
      this.unheld.delete(page);
      this.erase(page);
    }
    this.holders[page] = 1;
    return page;
  }

  /** Holds the page with this content; undefined where there is none. */
  find(content: string): number | undefined {
    const page = this.byContent.get(content);
    if (page !== undefined && this.hold(page)) this.found++;
    return page;
  }

  /** Holds `page` once more. It has a content. Returns whether nobody held it. */
  hold(page: number): boolean {
    const wasIdle = this.unheld.delete(page);
    this.holders[page]!++;
    return wasIdle;
  }

  /** The page with this content. */
  pageOf(content: string): number | undefined {
    return this.byContent.get(content);
  }

  /** Whether a page has this content. */
  has(content: string): boolean {
    return this.byContent.has(content);
  }

  /** Whether a page has this content that nobody holds: who finds it leaves one less for others. */
  hasIdle(content: string): boolean {
    const page = this.byContent.get(content);
    return page !== undefined && this.holders[page] === 0;
  }

  /** Whether nobody holds the page. */
  isIdle(page: number): boolean {
    return this.holders[page] === 0;
  }

  /**
   * The held `page` is full and will not change. Where another page has the same content, that one stays known.
   * `isAgain`: its sequence had it before, and gave it back. Returns whether it is known.
   */
  publish(page: number, content: string, isAgain = false): boolean {
    const known = this.byContent.get(content);
    if (known !== undefined && known !== page) {
      this.stems.delete(page);
      this.states?.move(page, known);
    }
    if (known !== undefined) return known === page;
    const before = this.taken.get(content);
    if (before !== undefined) {
      this.taken.delete(content);
      if (!isAgain) {
        this.lost++;
        this.lostDistance += this.evictions - before;
      }
    }
    this.byContent.set(content, page);
    this.contents[page] = content;
    return true;
  }

  /** The first rows of the held `page` will not change: those of `tokens`, behind the content `before`. */
  lend(page: number, before: string | undefined, tokens: readonly number[]): void {
    this.stems.set(page, before, tokens);
  }

  /** A page that begins with some of these tokens behind the content `before`: with as many as any. */
  stem(before: string | undefined, tokens: readonly number[]): Stem | undefined {
    return this.stems.longest(before, tokens);
  }

  /** The snapshot of states behind as many of these tokens as any, fewer than a page, and the page they are in. */
  stateStem(before: string | undefined, tokens: readonly number[]): (Stem & { readonly state: number }) | undefined {
    let found: (Stem & { readonly state: number }) | undefined;
    for (const { page, rows: alike } of this.stems.alike(before, tokens)) {
      const snapshot = this.states?.longest(page, alike);
      if (snapshot !== undefined && snapshot.rows > (found?.rows ?? 0))
        found = { page, rows: snapshot.rows, state: snapshot.row };
    }
    return found;
  }

  /** How many of the first rows of `page` others can copy. */
  lentRows(page: number): number {
    return this.stems.rowsOf(page);
  }

  /** What `page` contains is not to be found any more. */
  forget(page: number): void {
    this.erase(page);
    if (this.unheld.delete(page)) this.blank.add(page);
  }

  private erase(page: number): void {
    this.facts.forget(page);
    this.states?.forget(page);
    this.drafted[page] = 0;
    this.stems.delete(page);
    const content = this.contents[page];
    if (content === undefined) return;
    this.byContent.delete(content);
    this.contents[page] = undefined;
  }

  /** The memory was lost: nothing is to be found any more. */
  clear(): void {
    for (const page of [...this.byContent.values(), ...this.stems.pages()]) this.forget(page);
  }

  /** Gives up one hold. */
  release(page: number): void {
    const left = this.holders[page]! - 1;
    if (!(left >= 0)) throw new Error(`Page ${page} is held by nobody.`);
    this.holders[page] = left;
    if (left > 0) return;
    if (this.contents[page] === undefined && !this.stems.has(page)) return this.offer(page);
    this.unheld.add(page);
    this.freed++;
  }

  /** The memory of a page goes to another content. */
  private remember(page: number): void {
    const content = this.contents[page];
    if (content === undefined) return;
    this.taken.set(content, this.evictions++);
    if (this.taken.size > MAX_TAKEN) this.taken.delete(this.taken.keys().next().value!);
  }

  private offer(page: number): void {
    this.facts.forget(page);
    this.drafted[page] = 0;
    this.blank.add(page);
    this.freed++;
  }
}
