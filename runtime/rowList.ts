/**
 * A long list of rows of a state that stays from call to call, and of which each call changes little. It is an input of
 * calls as any other array is, but nobody needs to look through it again: entries are checked when they are written.
 */
/** Ranges that are remembered as changed, and calls in which that was. */
const MAX_RANGES = 4096;

const lists = new WeakMap<object, RowList>();

export class RowList {
  private entries: Int32Array;
  private bound = 0;
  private readonly most: number;
  /** Views that were taken. */
  private version = 0;
  /** Begin, end and version of each range that was written, oldest first; those of older versions are not known. */
  private changes: number[] = [];
  private known = 0;

  /** A list of zeros, which has no rows yet. `most`: entries that it may have. */
  constructor(most: number) {
    this.most = most;
    this.entries = new Int32Array(Math.min(most, MAX_RANGES));
  }

  /** The list that an array is a view of: all its entries are below the list's `rows`. */
  static of(array: object): RowList | undefined {
    return lists.get(array);
  }

  /** Every entry is less than this. */
  get rows(): number {
    return this.bound;
  }

  /** There are so many rows from now on. Where they are fewer than before, all entries are zero then. */
  limit(rows: number): void {
    const isLess = rows < this.bound;
    this.bound = rows;
    if (!isLess) return;
    this.entries.fill(0);
    this.note(0, this.entries.length);
  }

  /** The entries from `at` on become `first`, `first` + 1 and so on. Throws RangeError where they are no rows. */
  write(at: number, first: number, count: number): void {
    const end = at + count;
    if (!(at >= 0 && count >= 0 && end <= this.most && first >= 0 && first + count <= this.bound))
      throw new RangeError(`Entries ${at} to ${end - 1} cannot be rows ${first} to ${first + count - 1}.`);
    if (end > this.entries.length) this.grow(end);
    for (let i = at, row = first; i < end; i++, row++) this.entries[i] = row;
    this.note(at, end);
  }

  /** The first `length` entries, for a call: later writes change them. */
  view(length: number): Int32Array {
    if (length > this.entries.length) this.grow(length);
    const view = this.entries.subarray(0, length);
    lists.set(view, this);
    this.version++;
    return view;
  }

  /**
   * What has changed, as begin, end and version of ranges: after the view of that number, and before the next one.
   * Versions below `known` are not told apart.
   */
  get history(): { readonly version: number; readonly known: number; readonly changes: Int32Array } {
    return { version: this.version, known: this.known, changes: Int32Array.from(this.changes) };
  }

  private note(begin: number, end: number): void {
    const { changes } = this;
    const last = changes.length - 3;
    // Writes that follow each other are one change.
    if (last >= 0 && changes[last + 2] === this.version && changes[last + 1] === begin) changes[last + 1] = end;
    else changes.push(begin, end, this.version);
    if (changes.length <= 3 * MAX_RANGES) return;
    this.known = changes[changes.length - 1]! + 1;
    this.changes = [];
  }

  private grow(length: number): void {
    const larger = new Int32Array(Math.min(this.most, Math.max(length, 2 * this.entries.length)));
    larger.set(this.entries);
    this.entries = larger;
  }
}
