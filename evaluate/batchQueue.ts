/** The micro-batches that are still to be computed, in the order in which devices take them. */
import { UserError } from '../errors.js';
import { halvePack } from './pack.js';
import type { Pack, Packable } from './packing.js';
import type { Scorer } from './scorer.js';

/** The smallest micro-batch that a model is compiled for, in tokens. */
const FEWEST_TOKENS = 32;

/**
 * Halves at the end are at least about this fraction of the largest micro-batch: reading the weights takes the same
 * time for less.
 */
const TAIL_PART = 1 / 32;
/** Limit on the time of two halves relative to the whole, by the scorer's own estimate. */
const TAIL_LOSS = 1.25;

/**
 * A single device takes micro-batches in the given order. Replicas take the largest first and, towards the end, halves,
 * so that all finish together: none gets a micro-batch that is longer than an even share of what is left. A pipeline
 * needs (stages − 1) times one stage's part of its largest micro-batch to fill and drain, wherever that micro-batch
 * comes, so halves at its end gain nothing. If there are fewer micro-batches than devices, all are halved.
 */
export class BatchQueue<T extends Packable> {
  readonly #scorer: Scorer;
  readonly #warn: ((line: string) => void) | undefined;
  /** In reverse order: the next one is the last. */
  readonly #left: Pack<T>[];
  /** Estimated seconds of all micro-batches, and of those that are left. */
  readonly #seconds: number;
  #secondsLeft: number;
  #isByLength = false;
  /** Micro-batches of a size that ran out of device memory are not tried again. */
  #tokensLimit = Infinity;

  constructor(packs: readonly Pack<T>[], scorer: Scorer, onWarning?: (line: string) => void) {
    this.#scorer = scorer;
    this.#warn = onWarning;
    this.#left = [...packs].reverse();
    this.#seconds = packs.reduce((sum, { seconds }) => sum + seconds, 0);
    this.#secondsLeft = this.#seconds;
  }

  get isEmpty(): boolean {
    return this.#left.length === 0;
  }

  /** The next micro-batch; undefined if none is left. */
  take(): Pack<T> | undefined {
    if (this.#scorer.replicas > 1 && !this.#isByLength) {
      // The sort is stable: micro-batches of equal cost stay shuffled.
      this.#left.sort((a, b) => a.seconds - b.seconds);
      this.#isByLength = true;
    }
    for (;;) {
      const pack = this.#left.pop();
      if (pack === undefined) return undefined;
      const halves = this.#halves(pack);
      this.#secondsLeft -= pack.seconds;
      if (halves === undefined) return pack;
      halves.forEach((half) => this.#put(half));
    }
  }

  /** Takes back a micro-batch that ran out of device memory, as halves. Throws UserError if it has no halves. */
  returnHalved(pack: Pack<T>, cause: unknown): void {
    if (pack.items.length < 2) {
      throw new UserError(
        `the device ran out of memory in a micro-batch of ${pack.tokens} tokens, ` +
          'which is a single tree and cannot be halved',
        'stop other processes on the device (nvidia-smi lists them), or make trees smaller: ' +
          `--batch-tokens ${Math.max(FEWEST_TOKENS, Math.floor(pack.tokens / 2))}, or --sharing context; ` +
          'with --out and --resume, finished questions are kept',
        { cause },
      );
    }
    if (pack.tokens / 2 < this.#tokensLimit) {
      this.#tokensLimit = pack.tokens / 2;
      this.#warn?.(`the device ran out of memory in a micro-batch of ${pack.tokens} tokens: continuing with halves`);
    }
    halvePack(pack, this.#scorer).forEach((half) => this.#put(half));
  }

  /**
   * Two micro-batches for one that is too large for the device's memory or, with several devices, for the time left.
   */
  #halves(pack: Pack<T>): readonly Pack<T>[] | undefined {
    if (pack.items.length < 2) return undefined;
    if (pack.tokens > this.#tokensLimit) return halvePack(pack, this.#scorer);
    const { replicas, devices, maxTokens } = this.#scorer;
    // A small tolerance, because sums of seconds are not exact.
    const share = Math.min(
      replicas > 1 ? this.#secondsLeft / replicas : Infinity,
      devices > 1 ? this.#seconds / devices : Infinity,
    );
    if (pack.seconds <= share * (1 + 1e-9)) return undefined;
    if (pack.tokens < Math.max(2 * FEWEST_TOKENS, 2 * maxTokens * TAIL_PART)) return undefined;
    const halves = halvePack(pack, this.#scorer);
    return halves.reduce((sum, { seconds }) => sum + seconds, 0) > pack.seconds * TAIL_LOSS ? undefined : halves;
  }

  #put(pack: Pack<T>): void {
    this.#secondsLeft += pack.seconds;
    let at = this.#left.length;
    if (this.#isByLength) while (at > 0 && this.#left[at - 1]!.seconds > pack.seconds) at--;
    this.#left.splice(at, 0, pack);
  }
}
