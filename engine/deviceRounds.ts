/**
 * When a device makes drafts, and how deep: its calls take time that steps do not have. It is tried at first, and again
 * after times that double while it does not pay; between those, what it would give is what it last gave.
 */
import type { Draft } from '../draft/drafter.js';
import type { Survivals } from '../draft/allocate.js';
import type { DeviceDrafts, DraftAsk } from './deviceDrafts.js';
import type { DraftPolicy, NextStep } from './draftPolicy.js';
import type { Sequence } from './sequence.js';

/** Depths that are compared. */
const DEPTHS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15] as const;
/** Rounds of a try, those apart in which no text had drafts; and steps until the next one, which double. */
const TRY_ROUNDS = 4;
const MOST_ROUNDS = 32;
const [FIRST_PAUSE, MOST_PAUSE] = [16, 1 << 14];
/** Tokens of each text and call above which a round has read prompts. */
const PROMPT_TOKENS = 16;
/** Rounds that the seconds of a call are a mean of. */
const MEMORY = 16;

export interface Round {
  readonly drafts: ReadonlyMap<Sequence, Draft>;
  readonly seconds: number;
  readonly readsPrompts: boolean;
}

export class DeviceRounds {
  private readonly device: DeviceDrafts;
  private readonly policy: DraftPolicy;
  /** Seconds of a call, as a mean of so many rounds. */
  private callSeconds = 0;
  private measured = 0;
  /** Rounds left of a try, and all of it that may be had. */
  private tries = TRY_ROUNDS;
  private rounds = MOST_ROUNDS;
  private pause = FIRST_PAUSE;
  /** The step from which on it is tried again. */
  private next = 0;

  constructor(device: DeviceDrafts, policy: DraftPolicy) {
    this.device = device;
    this.policy = policy;
  }

  get name(): string {
    return this.device.name;
  }

  /** Whether the next step is to be one of a try. */
  isTime(step: NextStep): boolean {
    const { steps, times } = this.policy;
    return steps >= this.next && this.policy.mayDraft(step, triedDepth(step) * this.callSeconds + times.gap);
  }

  /** Whether it is worth to wait for the tokens of the steps on their way. `usual`: as for `depths`. */
  isWorthWaiting(usual: readonly Survivals[], isOfDevice: readonly boolean[], step: NextStep): boolean {
    const { policy } = this;
    if (this.isTime(step) || policy.isWorthWaiting(cut(usual, isOfDevice, 0), step)) return true;
    if (this.measured === 0) return false;
    return DEPTHS.some((depth) => policy.isWorthWaiting(cut(usual, isOfDevice, depth), step, depth * this.callSeconds));
  }

  /**
   * How many drafts of each text a round is to make, 0 for those that no device drafts for. `usual`: what such drafts
   * give, or those of the host.
   */
  depths(usual: readonly Survivals[], isOfDevice: readonly boolean[], step: NextStep): readonly number[] {
    const { policy } = this;
    if (this.isTime(step)) {
      const depth = triedDepth(step);
      return isOfDevice.map((isSo) => (isSo ? depth : 0));
    }
    let rate = policy.rateOf(policy.choose(cut(usual, isOfDevice, 0), step), step);
    let best: readonly (readonly number[])[] | undefined;
    for (const depth of this.measured === 0 ? [] : DEPTHS) {
      const found = policy.choose(cut(usual, isOfDevice, depth), step, depth * this.callSeconds);
      const own = policy.rateOf(found, step);
      if (found !== undefined && own > rate) [best, rate] = [found.taken, own];
    }
    if (best !== undefined) this.pause = FIRST_PAUSE;
    return isOfDevice.map((isSo, i) => (isSo ? (best?.[i]?.length ?? 0) : 0));
  }

  async round(asks: readonly DraftAsk[]): Promise<Round> {
    const isTry = this.policy.steps >= this.next;
    const before = performance.now();
    const { calls, tokens } = this.device.totals;
    const drafts = await this.device.round(asks);
    const count = this.device.totals.calls - calls;
    // To read prompts is no cost of going on.
    const readsPrompts = this.device.totals.tokens - tokens > PROMPT_TOKENS * asks.length * count;
    const seconds = (performance.now() - before) / 1000;
    if (count > 0 && !readsPrompts)
      this.callSeconds += (seconds / count - this.callSeconds) / Math.min(++this.measured, MEMORY);
    if (isTry) this.tried(drafts.size > 0);
    return { drafts, seconds, readsPrompts };
  }

  private tried(hasDrafts: boolean): void {
    if (hasDrafts) this.tries--;
    if (--this.rounds > 0 && this.tries > 0) return;
    this.tries = TRY_ROUNDS;
    this.rounds = MOST_ROUNDS;
    this.next = this.policy.steps + this.pause;
    this.pause = Math.min(2 * this.pause, MOST_PAUSE);
  }
}

/** Drafts of each text in a try: rows of many texts cost more. */
const triedDepth = ({ texts }: NextStep): number => (texts <= 8 ? 4 : texts <= 64 ? 2 : 1);

/** What texts offer where the device drafts only so deep. */
const cut = (usual: readonly Survivals[], isOfDevice: readonly boolean[], depth: number): readonly Survivals[] =>
  usual.map((each, i) => (isOfDevice[i]! ? each.slice(0, depth) : each));
