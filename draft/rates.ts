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

/** Bounds of kinds of probabilities. */
const BOUNDS = [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9];
const KINDS = BOUNDS.length + 1;
/** Of right ones, seen before any. */
const PRIOR_RIGHT = 4;

function kindOf(chance: number): number {
  let kind = 0;
  while (kind < BOUNDS.length && chance >= BOUNDS[kind]!) kind++;
  return kind;
}

/**
 * Corrects what the noise of a place makes of a rate. A rate is the mean over places of which each has a probability of
 * its own; noise decides between tokens that are about as likely, and says nothing where one of them is nearly certain.
 * So the mean of both is taken, times how often that was right beside how often it should have been.
 */
export class NoiseCorrection {
  private readonly right = new Float64Array(KINDS * KINDS).fill(PRIOR_RIGHT);
  private readonly said = new Float64Array(KINDS * KINDS).fill(PRIOR_RIGHT);

  /** Of a rate, and what noise makes of it (chance.ts). */
  of(rate: number, noisy: number): number {
    const kind = KINDS * kindOf(rate) + kindOf(noisy);
    return Math.min(1, (((rate + noisy) / 2) * this.right[kind]!) / this.said[kind]!);
  }

  count(rate: number, noisy: number, isRight: boolean): void {
    const kind = KINDS * kindOf(rate) + kindOf(noisy);
    if (this.said[kind]! >= MOST) {
      this.right[kind]! /= 2;
      this.said[kind]! /= 2;
    }
    this.said[kind]! += (rate + noisy) / 2;
    if (isRight) this.right[kind]!++;
  }
}
