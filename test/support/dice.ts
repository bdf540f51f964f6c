/** Random numbers that are the same on every machine. */

/** Numbers of one seed, the same on every machine (Park–Miller). */
export class Dice {
  private state: number;

  constructor(seed: number) {
    // Neighbouring seeds begin far from each other.
    let mixed = Math.imul(seed + 1, 0x9e3779b1);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x85ebca6b);
    mixed ^= mixed >>> 13;
    this.state = ((mixed >>> 0) % 2147483646) + 1;
  }

  /** In [0, 1). */
  next(): number {
    this.state = (this.state * 48271) % 2147483647;
    return (this.state - 1) / 2147483646;
  }

  whole(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  pick<T>(from: readonly T[]): T {
    return from[this.whole(0, from.length - 1)]!;
  }

  chance(part: number): boolean {
    return this.next() < part;
  }
}
