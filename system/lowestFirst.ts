/** Whole numbers below a bound, the lowest of which can be taken at once, whatever came and went. */

const BITS = 32;

/**
 * A bit for each number, and above 32 of them one that says whether any is set, up to a single word: each operation
 * touches one word a level, which are four for a million numbers.
 */
export class LowestFirst {
  size = 0;
  private readonly levels: readonly Int32Array[];

  /** Holds none of the numbers from 0 to `bound` − 1. */
  constructor(bound: number) {
    const levels: Int32Array[] = [];
    let words = bound;
    do {
      words = Math.max(1, Math.ceil(words / BITS));
      levels.push(new Int32Array(words));
    } while (words > 1);
    this.levels = levels;
  }

  has(value: number): boolean {
    return (this.levels[0]![value >>> 5]! & (1 << (value & 31))) !== 0;
  }

  add(value: number): void {
    if (this.has(value)) return;
    this.size++;
    let at = value;
    for (const words of this.levels) {
      const word = at >>> 5;
      const before = words[word]!;
      words[word] = before | (1 << (at & 31));
      if (before !== 0) return;
      at = word;
    }
  }

  /** Returns whether it was there. */
  delete(value: number): boolean {
    if (!this.has(value)) return false;
    this.size--;
    let at = value;
    for (const words of this.levels) {
      const word = at >>> 5;
      const left = words[word]! & ~(1 << (at & 31));
      words[word] = left;
      if (left !== 0) break;
      at = word;
    }
    return true;
  }

  /** Takes the lowest; undefined where there is none. */
  take(): number | undefined {
    if (this.size === 0) return undefined;
    let at = 0;
    for (let level = this.levels.length - 1; level >= 0; level--) {
      const word = this.levels[level]![at]!;
      at = (at << 5) + (31 - Math.clz32(word & -word));
    }
    this.delete(at);
    return at;
  }
}
