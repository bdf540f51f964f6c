/**
 * Rows of recurrent states: those of sequences that run, and snapshots. A snapshot is the states behind the first rows
 * of a page, and of all that comes before it: whoever begins like that goes on from there. It goes with what the page
 * contains, or alone, the least recently used first, where a row is needed.
 */
import { LowestFirst } from '../system/lowestFirst.js';
import { PAGE_TOKENS } from './limits.js';

/** Where a snapshot stands: behind the first `rows` tokens of a page, from 1 to PAGE_TOKENS. */
export interface StatePlace {
  readonly page: number;
  readonly rows: number;
}

/** Drafts leave so much of all rows to snapshots. */
const KEPT_SHARE = 1 / 4;

export class StatePool {
  /** All rows, which never change. */
  readonly total: number;
  /** Snapshots that were made, found again, and taken for something else. */
  made = 0;
  found = 0;
  evictions = 0;
  private readonly blank: LowestFirst;
  /** Rows that are snapshots, the least recently used first. */
  private readonly snapshots = new Map<number, StatePlace>();
  /** Of pages that have some, by how many rows of the page they have seen. */
  private readonly byPage = new Map<number, Map<number, number>>();
  /** Rows that parts of the step which is being planned go on from: nobody else may write them in it. */
  private readonly reading = new Set<number>();
  /** Snapshots among them, and those that were released meanwhile. */
  private pinned = 0;
  private readonly released: number[] = [];

  constructor(total: number) {
    this.total = total;
    this.blank = new LowestFirst(total);
    for (let row = 0; row < total; row++) this.blank.add(row);
  }

  /** Rows that a sequence can have. */
  get available(): number {
    return this.blank.size + this.snapshots.size - this.pinned;
  }

  /** Rows that drafts can have. */
  get availableForDrafts(): number {
    const spare = this.snapshots.size - Math.floor(KEPT_SHARE * this.total);
    return this.blank.size + Math.max(0, Math.min(spare, this.snapshots.size - this.pinned));
  }

  /** Snapshots that there are. */
  get kept(): number {
    return this.snapshots.size;
  }

  /** Rows that somebody has. */
  get held(): number {
    return this.total - this.blank.size - this.snapshots.size;
  }

  /** A row that nobody has, other than the snapshot `except`; undefined where there is none. */
  take(except = -1): number | undefined {
    const row = this.blank.take();
    if (row !== undefined) return row;
    for (const oldest of this.snapshots.keys()) {
      if (oldest === except || this.reading.has(oldest)) continue;
      this.remove(oldest);
      this.evictions++;
      return oldest;
    }
    return undefined;
  }

  /** The snapshot becomes the row of whoever goes on from it. */
  claim(row: number): void {
    this.remove(row);
  }

  /** Nobody has the row any more. */
  release(row: number): void {
    if (this.reading.has(row)) this.released.push(row);
    else this.blank.add(row);
  }

  /** A part of the step which is being planned goes on from the row. */
  read(row: number): void {
    if (this.reading.has(row)) return;
    this.reading.add(row);
    const place = this.snapshots.get(row);
    if (place === undefined) return;
    this.found++;
    this.pinned++;
    this.touch(row, place);
  }

  /** The step is planned: later ones may write what it reads. */
  planned(): void {
    this.reading.clear();
    this.pinned = 0;
    for (const row of this.released.splice(0)) this.blank.add(row);
  }

  /** The row is a snapshot from now on. One that is there already stays, and the row is released. */
  keep(row: number, place: StatePlace): void {
    const { page, rows } = place;
    const own = this.byPage.get(page) ?? new Map<number, number>();
    const known = own.get(rows);
    if (known !== undefined) {
      this.touch(known, place);
      return this.release(row);
    }
    this.byPage.set(page, own.set(rows, row));
    this.snapshots.set(row, place);
    this.made++;
    if (this.reading.has(row)) this.pinned++;
  }

  /** The snapshot behind the first `rows` of a page. */
  at(page: number, rows: number): number | undefined {
    return this.byPage.get(page)?.get(rows);
  }

  /** The snapshot of a page that has seen most of its rows, `most` at most and fewer than all. */
  longest(page: number, most: number): { readonly row: number; readonly rows: number } | undefined {
    const own = this.byPage.get(page);
    if (own === undefined) return undefined;
    for (let rows = Math.min(most, PAGE_TOKENS - 1); rows > 0; rows--) {
      const row = own.get(rows);
      if (row !== undefined) return { row, rows };
    }
    return undefined;
  }

  /** What the page contains is not to be found any more. */
  forget(page: number): void {
    for (const row of this.byPage.get(page)?.values() ?? []) {
      this.remove(row);
      this.release(row);
    }
  }

  /** Page `to` contains what `page` contains, which nobody finds any more. */
  move(page: number, to: number): void {
    for (const [rows, row] of this.byPage.get(page) ?? []) {
      this.remove(row);
      this.keep(row, { page: to, rows });
    }
  }

  /** Nothing is known of any row, and nobody has one. */
  clear(): void {
    this.planned();
    this.snapshots.clear();
    this.byPage.clear();
    for (let row = 0; row < this.total; row++) this.blank.add(row);
  }

  private touch(row: number, place: StatePlace): void {
    this.snapshots.delete(row);
    this.snapshots.set(row, place);
  }

  /** The row is no snapshot. */
  private remove(row: number): void {
    const { page, rows } = this.snapshots.get(row)!;
    this.snapshots.delete(row);
    if (this.reading.has(row)) this.pinned--;
    const own = this.byPage.get(page)!;
    own.delete(rows);
    if (own.size === 0) this.byPage.delete(page);
  }
}
