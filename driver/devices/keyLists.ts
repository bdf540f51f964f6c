/**
 * The list of keys that the function `step` reads: the rows of a cache that hold the keys of each path, path beside
 * path. Every path has a region with room to grow, so that a step writes the entries of its new tokens alone. Regions
 * that are given back are used again, and all are laid out anew where one does not fit. What lies between regions was
 * an entry once: every entry is a row of a page that has memory.
 */
import { PAGE_TOKENS } from '../../engine/pages.js';
import { RowList } from '../../runtime/rowList.js';

/** A path whose keys are listed. */
export interface ListedPath {
  /** Its pages: the first `pageCount` entries. */
  pages: Int32Array;
  pageCount: number;
  /** Its region, and the entries of it that are written. */
  begin: number;
  room: number;
  filled: number;
  /** Paths that begin as it does, with regions of their own (branches.ts). */
  readonly branches: ListedPath[];
}

export const emptyPath = (): ListedPath => ({
  pages: NO_PAGES,
  ...{ pageCount: 0, begin: 0, room: 0, filled: 0 },
  branches: [],
});

const NO_PAGES = new Int32Array(0);

/** Entries that a path can grow by before it moves: an eighth of its length, at least this many. */
const LEAST_GROWTH = 64;
/** Entries between regions that are left alone, whatever the share of the list. */
const IDLE_ENTRIES = 1 << 16;

/** The room of a path of `length` keys. There are eight sizes between two powers of two, so that they fit others. */
function roomFor(length: number): number {
  const least = length + Math.max(LEAST_GROWTH, length >> 3);
  const unit = 1 << Math.max(0, 28 - Math.clz32(least));
  return Math.ceil(least / unit) * unit;
}

export class KeyLists {
  /** Most entries. */
  private readonly most: number;
  private readonly rows: RowList;
  /** Entries up to the end of the last region, and those of all regions. */
  private end = 0;
  private used = 0;
  private readonly placed = new Set<ListedPath>();
  /** Begins of regions that were given back, by their room. */
  private readonly free = new Map<number, number[]>();

  constructor(most: number) {
    this.most = most;
    this.rows = new RowList(most);
  }

  /** The list, for the next call. It has an entry at least. */
  view(): Int32Array {
    return this.rows.view(Math.max(1, this.end));
  }

  /** There are so many pages from now on; where they are fewer than before, no path may have one that goes. */
  limit(pages: number): void {
    const rows = pages * PAGE_TOKENS;
    const isLess = rows < this.rows.rows;
    this.rows.limit(rows);
    if (isLess) for (const path of this.placed) this.refill(path, path.filled);
  }

  /** Has room for the first `lengths[i]` keys of each path; others may lose their regions. They fit together. */
  place(paths: readonly ListedPath[], lengths: ArrayLike<number>): void {
    for (let i = 0; i < paths.length; i++)
      if (lengths[i]! > paths[i]!.room && !this.find(paths[i]!, lengths[i]!)) return this.layOut(paths, lengths);
    if (this.end > 2 * this.used + IDLE_ENTRIES) this.layOut(paths, lengths);
  }

  /** Lists the first `length` keys of a path that has room for them. */
  fill(path: ListedPath, length: number): void {
    const { pages, begin, filled } = path;
    for (let at = filled; at < length;) {
      const within = at % PAGE_TOKENS;
      const count = Math.min(length - at, PAGE_TOKENS - within);
      const page = pages[(at - within) / PAGE_TOKENS]!;
      this.rows.write(begin + at, page * PAGE_TOKENS + within, count);
      at += count;
    }
    if (length > filled) path.filled = length;
  }

  /** The path has its first `pageCount` pages only. */
  truncate(path: ListedPath, pageCount: number): void {
    path.pageCount = pageCount;
    path.filled = Math.min(path.filled, pageCount * PAGE_TOKENS);
    for (const branch of path.branches) this.truncate(branch, Math.min(branch.pageCount, pageCount));
  }

  /** Entries from `at` on, in a region. */
  write(at: number, rows: readonly number[]): void {
    for (let first = 0; first < rows.length;) {
      let end = first + 1;
      while (end < rows.length && rows[end] === rows[end - 1]! + 1) end++;
      this.rows.write(at + first, rows[first]!, end - first);
      first = end;
    }
  }

  /** The path is gone. */
  release(path: ListedPath): void {
    for (const branch of path.branches) this.release(branch);
    this.vacate(path);
  }

  /** The path has no region. */
  private vacate(path: ListedPath): void {
    if (!this.placed.delete(path)) return;
    const others = this.free.get(path.room);
    if (others === undefined) this.free.set(path.room, [path.begin]);
    else others.push(path.begin);
    this.used -= path.room;
    path.room = path.filled = 0;
  }

  private refill(path: ListedPath, length: number): void {
    path.filled = 0;
    this.fill(path, length);
  }

  /** A region for a path whose own is too small. Returns false, and leaves it without one, where there is no room. */
  private find(path: ListedPath, length: number): boolean {
    this.vacate(path);
    const room = roomFor(length);
    const begin = this.free.get(room)?.pop() ?? this.end;
    if (begin + room > this.most) return false;
    this.put(path, begin, room);
    return true;
  }

  private put(path: ListedPath, begin: number, room: number): void {
    Object.assign(path, { begin, room, filled: 0 });
    this.placed.add(path);
    this.used += room;
    this.end = Math.max(this.end, begin + room);
  }

  /** All regions one behind another. Paths other than `paths` have none where there is too little room. */
  private layOut(paths: readonly ListedPath[], lengths: ArrayLike<number>): void {
    const wanted = new Map<ListedPath, number>([...this.placed].map((path) => [path, path.filled]));
    paths.forEach((path, i) => wanted.set(path, lengths[i]!));
    const sumOf = (room: (length: number) => number): number =>
      [...wanted.values()].reduce((sum, length) => sum + room(length), 0);
    let total = sumOf(roomFor);
    if (total > this.most) {
      const needed = new Set(paths);
      for (const path of this.placed) if (!needed.has(path)) wanted.delete(path);
      total = sumOf(roomFor);
    }
    for (const path of [...this.placed]) this.vacate(path);
    this.free.clear();
    this.end = 0;
    for (const [path, length] of wanted) this.put(path, this.end, total > this.most ? length : roomFor(length));
    // What a branch has behind its pages is listed by its call.
    for (const [path, length] of wanted) this.fill(path, Math.min(length, path.pageCount * PAGE_TOKENS));
  }
}
