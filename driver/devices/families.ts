/**
 * Which sequences of a call go on from the same pages, as children of one path do. Kernels that decode read once what
 * neighbours have in common (decision 49), so a large call lists such sequences one behind another, wherever the
 * message has them. What a token gets does not depend on its place in a call.
 */
import type { ListedPath } from './keyLists.js';

export class Families {
  /** How many sequences have each page. */
  private users: Int32Array;

  constructor(pages: number) {
    this.users = new Int32Array(pages);
  }

  /** There are so many pages from now on; no sequence may have one that goes. */
  resize(pages: number): void {
    const users = new Int32Array(pages);
    users.set(this.users.subarray(0, pages));
    this.users = users;
  }

  /** A sequence has these pages from now on. */
  add(pages: Int32Array): void {
    for (const page of pages) this.users[page]!++;
  }

  /** A sequence has these pages no more. */
  remove(pages: Int32Array): void {
    for (const page of pages) this.users[page]!--;
  }

  /**
   * The places of the paths in the order that a call should have: those of a family behind its first one. Undefined
   * where that is the order they have.
   */
  order(paths: readonly ListedPath[]): Int32Array | undefined {
    const numbers = new Map<number, number>();
    const sizes: number[] = [];
    let isInOrder = true;
    const families = Int32Array.from(paths, (path) => {
      const page = this.lastShared(path);
      const known = page === undefined ? undefined : numbers.get(page);
      if (known !== undefined) {
        isInOrder &&= known === sizes.length - 1;
        sizes[known]!++;
        return known;
      }
      if (page !== undefined) numbers.set(page, sizes.length);
      return sizes.push(1) - 1;
    });
    if (isInOrder) return undefined;
    let end = 0;
    const next = sizes.map((size) => (end += size) - size);
    const order = new Int32Array(paths.length);
    families.forEach((family, place) => (order[next[family]!++] = place));
    return order;
  }

  /** The last page of a path that others have too. Pages that are shared come before those that are not. */
  private lastShared({ pages, pageCount }: ListedPath): number | undefined {
    let [shared, own] = [0, pageCount];
    while (shared < own) {
      const middle = (shared + own) >> 1;
      if (this.users[pages[middle]!]! > 1) shared = middle + 1;
      else own = middle;
    }
    return shared === 0 ? undefined : pages[shared - 1];
  }
}
