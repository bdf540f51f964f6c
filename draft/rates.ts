/**
 * How often what a drafter found turned out to be what came: a rate for each kind of evidence, counted while texts go
 * on. Each is counted before any noise is looked at, for everything that was found and not only for what was drafted,
 * so a rate is the probability that chance.ts wants.
 */

/** Seen beside what comes, so that the first few answers do not decide. */
const PRIOR_WEIGHT = 4;
/** Counts are halved here: a rate follows traffic that changes. */
const MOST = 4096;

/** Kinds of how many tokens agree before a place: 0 for none, then finer for few than for many. */
const LENGTH_KINDS = [0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24];
export const LENGTHS = LENGTH_KINDS.length;
const KIND_OF_LENGTH = Uint8Array.from({ length: LENGTH_KINDS.at(-1)! + 1 }, (_, length) =>
  LENGTH_KINDS.findLastIndex((least) => least <= length),
);

/** Below LENGTHS, and not falling with `length`. */
export const lengthKind = (length: number): number => KIND_OF_LENGTH[Math.min(length, KIND_OF_LENGTH.length - 1)] ?? 0;

export class Rates {
  private readonly right: Float64Array;
  private readonly seen: Float64Array;

  /** The rate of each kind before anything is known, from 0 to 1. */
  constructor(prior: readonly number[]) {
    this.right = Float64Array.from(prior, (rate) => rate * PRIOR_WEIGHT);
    this.seen = new Float64Array(prior.length).fill(PRIOR_WEIGHT);
  }

  of(kind: number): number {
    return this.right[kind]! / this.seen[kind]!;
  }

  count(kind: number, isRight: boolean): void {
    if (this.seen[kind]! >= MOST) {
      this.right[kind]! /= 2;
      this.seen[kind]! /= 2;
    }
    this.seen[kind]!++;
    if (isRight) this.right[kind]!++;
  }
}
