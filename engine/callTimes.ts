/**
 * Seconds of steps that continue texts, by their new tokens: measured ones, and between and beyond those what the
 * tuner's table says, scaled to them. A step that is planned while another runs follows it at once; one that waits for
 * the tokens of the step before it comes a *gap* later, in which the device does nothing.
 */
import type { CallSeconds } from './device.js';

/** Steps of a size that its mean goes back to, and those that tell what keys cost. */
const MEMORY = 16;
const KEY_MEMORY = 64;
/** Keys tell nothing about time while they change by less than this. */
const KEY_CHANGE = 0.05;
/** A step that takes longer by more than this than those before it counts as one that takes so much longer. */
const OUTLIER = 2;
/** The same for the first step of a size, for what was expected of it. */
const FIRST_OUTLIER = 1.5;
/** Steps after which a size with a single step is not known any more. */
const FORGOTTEN = 128;
/** Rows of a call at least, as a share of the call so far, where nothing is known about larger ones. */
const STEEPEST = 0.25;
/** Steps whose sizes differ by less tell little of what a token more takes. */
const APART = 0.75;
/** How much larger than the largest so far a step may be. */
const [REACH, REACH_TOKENS] = [2, 8];
/** Sizes of steps that say something about each other. */
const NEAR = 1.5;

/** Means of the steps of about one size. */
interface Size {
  tokens: number;
  keys: number;
  seconds: number;
  count: number;
  keyVariance: number;
  covariance: number;
  /** When the last one was. */
  last: number;
}

/** Sizes up to 32 tokens are kept apart, larger ones as far as they differ by a sixteenth. */
const sizeOf = (tokens: number): number => {
  const unit = 2 ** Math.max(0, Math.floor(Math.log2(tokens)) - 4);
  return Math.round(tokens / unit) * unit;
};

class Sizes {
  readonly sizes = new Map<number, Size>();

  /** One step of a size tells little: where it was before this, others may be tried. */
  forget(before: number): void {
    for (const [key, { count, last }] of this.sizes) if (count === 1 && last < before) this.sizes.delete(key);
  }

  /** `expected`: seconds that it was thought to take. */
  add(tokens: number, keys: number, seconds: number, now: number, expected = Infinity): void {
    const key = sizeOf(tokens);
    const known = this.sizes.get(key);
    if (known === undefined) {
      // One step that was held up would keep others of its size from being tried.
      const first = Math.min(seconds, FIRST_OUTLIER * expected);
      this.sizes.set(key, { tokens, keys, seconds: first, count: 1, keyVariance: 0, covariance: 0, last: now });
      return;
    }
    const { seconds: mean } = known;
    const taken = known.count < 2 ? Math.min(mean, seconds) : Math.min(OUTLIER * mean, seconds);
    known.count++;
    known.last = now;
    const rate = 1 / Math.min(known.count, MEMORY);
    const slow = 1 / Math.min(known.count, KEY_MEMORY);
    const [apart, more] = [keys - known.keys, taken - mean];
    known.tokens += rate * (tokens - known.tokens);
    known.keys += rate * apart;
    known.seconds += rate * more;
    known.keyVariance = (1 - slow) * (known.keyVariance + slow * apart * apart);
    known.covariance = (1 - slow) * (known.covariance + slow * apart * more);
  }
}

export type Curve = (tokens: number) => number;

interface Point {
  readonly tokens: number;
  readonly seconds: number;
}

export class CallTimes {
  /** Whether steps are planned while others run. Where they are not, all wait alike. */
  readonly looksAhead: boolean;
  private readonly table: readonly CallSeconds[];
  private readonly ahead = new Sizes();
  private readonly alone = new Sizes();
  /** Means of steps with prompts, and how they compare with steps of so many tokens that continue texts. */
  private readonly prompts = { tokens: 0, seconds: 0, count: 0, share: 1, shares: 0 };
  private measuredGap = 0;
  private gaps = 0;
  private now = 0;

  constructor(looksAhead: boolean, table: readonly CallSeconds[] = []) {
    this.looksAhead = looksAhead;
    this.table = table.filter(({ seconds }) => seconds > 0).toSorted((a, b) => a.tokens - b.tokens);
  }

  /** Seconds from the end of a step to that of the next one, which was planned while it ran, or else behind it. */
  add(isAhead: boolean, tokens: number, keys: number, seconds: number): void {
    if (++this.now % FORGOTTEN === 0) this.alone.forget(this.now - FORGOTTEN);
    if (!this.looksAhead || isAhead) return this.ahead.add(tokens, keys, seconds, this.now);
    const same = this.ahead.sizes.get(sizeOf(tokens));
    if (same !== undefined && same.count > 1) {
      const gap = Math.min(Math.max(0, seconds - this.at(same, keys)), same.seconds);
      this.measuredGap += (gap - this.measuredGap) / Math.min(++this.gaps, MEMORY);
    }
    this.alone.add(tokens, keys, seconds, this.now, this.waiting(keys)?.(tokens));
  }

  /** A step with prompts. */
  addPrompts(tokens: number, keys: number, seconds: number): void {
    const { prompts } = this;
    const alike = this.following(keys)?.(tokens);
    if (alike !== undefined) {
      const share = Math.min(OUTLIER * prompts.share, seconds / alike);
      prompts.share += (share - prompts.share) / Math.min(++prompts.shares, MEMORY);
    }
    const rate = 1 / Math.min(++prompts.count, MEMORY);
    prompts.tokens += rate * (tokens - prompts.tokens);
    prompts.seconds += rate * (seconds - prompts.seconds);
  }

  /** Seconds that a device does nothing before a step that waits for tokens. */
  get gap(): number {
    return this.looksAhead ? this.measuredGap : 0;
  }

  /** Seconds of a step with prompts, for each that a step of as many tokens takes which continues texts. */
  get promptShare(): number {
    return this.prompts.share;
  }

  /** Most tokens of a step that is to be tried, where one of `tokens` is to be had anyway. */
  reach(tokens: number): number {
    let largest = Math.max(tokens, this.table.at(-1)?.tokens ?? 0);
    for (const { sizes } of [this.ahead, this.alone])
      for (const { tokens: size } of sizes.values()) largest = Math.max(largest, size);
    return Math.floor(Math.max(REACH * largest, largest + REACH_TOKENS));
  }

  /** Whether a step of about so many tokens was measured, among the last `steps` ones, without a gap. */
  isKnown(tokens: number, steps: number): boolean {
    for (const { tokens: size, count, last } of this.ahead.sizes.values())
      if (size * NEAR >= tokens && size <= tokens * NEAR && count > 1 && this.now - last < steps) return true;
    return false;
  }

  /** Seconds of steps that follow another at once; undefined: nothing was measured. */
  following(keys: number): Curve | undefined {
    const points = new Map<number, Point>();
    for (const [size, each] of this.alone.sizes)
      points.set(size, { tokens: each.tokens, seconds: Math.max(each.seconds / 2, this.at(each, keys) - this.gap) });
    for (const [size, each] of this.ahead.sizes)
      points.set(size, { tokens: each.tokens, seconds: this.at(each, keys) });
    return this.curveOf([...points.values()]);
  }

  /** Seconds of steps that wait for the tokens of the one before them, with the gap. */
  waiting(keys: number): Curve | undefined {
    const { looksAhead, gap } = this;
    if (!looksAhead) return this.following(keys);
    const points = new Map<number, Point>();
    for (const [size, each] of this.ahead.sizes)
      points.set(size, { tokens: each.tokens, seconds: this.at(each, keys) + gap });
    for (const [size, each] of this.alone.sizes)
      points.set(size, { tokens: each.tokens, seconds: this.at(each, keys) });
    return this.curveOf([...points.values()]);
  }

  /** The mean of a size, for as many keys. */
  private at({ seconds, keys: mean }: Size, keys: number): number {
    return Math.max(seconds / 4, seconds + this.keySeconds * (keys - mean));
  }

  /** Seconds of a key: steps of one size differ in little else. */
  private get keySeconds(): number {
    let [covariance, variance, most] = [0, 0, Infinity];
    for (const { sizes } of [this.ahead, this.alone])
      for (const size of sizes.values()) {
        const weight = Math.min(size.count, KEY_MEMORY);
        covariance += weight * size.covariance;
        variance += weight * (size.keyVariance + (KEY_CHANGE * size.keys) ** 2);
        if (size.keys > 0) most = Math.min(most, size.seconds / size.keys);
      }
    return variance > 0 ? Math.min(most, Math.max(0, covariance / variance)) : 0;
  }

  private curveOf(unordered: readonly Point[]): Curve | undefined {
    const points = unordered.toSorted((a, b) => a.tokens - b.tokens);
    const [first, last] = [points[0], points.at(-1)];
    if (first === undefined || last === undefined) return undefined;
    const shares = points.map(({ tokens, seconds }) => seconds / this.tableAt(tokens));
    const slope = this.slopeBehind(points);
    return (tokens) => {
      if (tokens <= first.tokens) return shares[0]! * this.tableAt(tokens);
      if (tokens >= last.tokens)
        return this.table.length > 0
          ? shares.at(-1)! * this.tableAt(tokens)
          : last.seconds + slope * (tokens - last.tokens);
      let [low, high] = [0, points.length - 1];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points[middle]!.tokens <= tokens) low = middle;
        else high = middle;
      }
      const [a, b] = [points[low]!.tokens, points[high]!.tokens];
      const part = (tokens - a) / (b - a);
      return ((1 - part) * shares[low]! + part * shares[high]!) * this.tableAt(tokens);
    };
  }

  /**
   * Seconds of a token more than any step had: as between the largest steps; where those are of one size, the least
   * that something speaks for. A step that is tried tells what is true, and one that is not tells nothing.
   */
  private slopeBehind(points: readonly Point[]): number {
    const last = points.at(-1)!;
    const before = points.findLast(({ tokens }) => tokens <= APART * last.tokens);
    if (before !== undefined) return slopeOf(before, last);
    const { prompts } = this;
    const steepest = (STEEPEST * last.seconds) / last.tokens;
    return prompts.count > 0 && prompts.tokens > last.tokens ? Math.min(steepest, slopeOf(last, prompts)) : steepest;
  }

  /** The table between its calls on a straight line; a model without one counts as equally fast for all. */
  private tableAt(tokens: number): number {
    const { table } = this;
    const [first, last] = [table[0], table.at(-1)];
    if (first === undefined || last === undefined) return 1;
    if (tokens <= first.tokens) return first.seconds;
    if (tokens >= last.tokens) return (last.seconds * tokens) / last.tokens;
    const next = table.findIndex((call) => call.tokens >= tokens);
    const [a, b] = [table[next - 1]!, table[next]!];
    return a.seconds + ((b.seconds - a.seconds) * (tokens - a.tokens)) / (b.tokens - a.tokens);
  }
}

const slopeOf = (a: Point, b: Point): number =>
  b.tokens > a.tokens ? Math.max(0, b.seconds - a.seconds) / (b.tokens - a.tokens) : Infinity;
