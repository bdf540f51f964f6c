/**
 * Whether a replica's next step takes drafts, and how many: those that give most tokens a second. A step with drafts
 * waits for the tokens before it and so does the step behind it, while steps without are planned ahead; the device does
 * nothing in these gaps. What drafts saved and cost is booked against the steps without, so that they cannot cost more
 * than they saved by more than a small share of the time, whatever drafters and texts do.
 */
import { type Allocation, allocateDrafts, type Survivals } from '../draft/allocate.js';
import { CallTimes } from './callTimes.js';
import type { StepLimits } from './device.js';

/** The share of the time that drafts may cost more than they save, in the long run. */
const SHARE = 0.003;
/** Steps that they may cost at the start, and that are saved up of the share; and of what they have saved. */
const FIRST_STEPS = 0.5;
/** The same where a device drafts, which somebody asked for. */
const FIRST_DEVICE_STEPS = 2;
const SHARE_STEPS = 2;
const SAVED_STEPS = 64;
/** Expected tokens a second must be larger by this: estimates are rough, and a change of ways costs a gap each. */
const MARGIN = 1.01;
const CHANGE_MARGIN = 1.03;
/** The share of the drafts that are expected to be accepted which counts when it is asked what they may cost. */
const CERTAIN = 0.4;
/** Steps after which the time of one without drafts is measured again, where all have them. */
const PLAIN_STEPS = 512;
/** A step that takes longer than this, for what was expected, is nothing that drafts did. */
const OUTLIER = 1.5;

/** What a step is to be decided for. */
export interface NextStep {
  /** Texts that get a token from it, and the tokens of all. */
  readonly texts: number;
  readonly keys: number;
  /** New tokens that it has without drafts, and whether some are of prompts. */
  readonly tokens: number;
  readonly hasPrompts: boolean;
  /** Drafts that it has room for. */
  readonly most: number;
}

/** A step that has ended. */
export interface EndedStep {
  readonly texts: number;
  readonly keys: number;
  /** All its new tokens. */
  readonly tokens: number;
  readonly hasPrompts: boolean;
  /** Its drafts, and those of them that are tokens of their texts. */
  readonly drafted: number;
  readonly accepted: number;
  /** The device had nothing to do before it. */
  readonly isLate: boolean;
  /** Seconds since the step before it ended, or since it began where there was none; and of the drafts before it. */
  readonly seconds: number;
  readonly draftSeconds: number;
  /** Those were for prompts, which is no cost of going on. */
  readonly readsPrompts: boolean;
  /** Planned while another ran, behind one that was read, or after a time without steps. */
  readonly follows: 'ahead' | 'read' | 'nothing';
}

export class DraftPolicy {
  readonly times: CallTimes;
  /** Steps so far. */
  steps = 0;
  /** Seconds that drafts may cost. */
  private credit: number | undefined;
  private readonly firstSteps: number;

  constructor({ keptRows = 0, groups = 1, callSeconds }: StepLimits, hasDevice = false) {
    this.firstSteps = hasDevice ? FIRST_DEVICE_STEPS : FIRST_STEPS;
    this.times = new CallTimes(keptRows > 0 && groups === 1, callSeconds);
  }

  /** Whether it is worth to wait for the tokens of the steps on their way. */
  isWorthWaiting(offers: readonly Survivals[], step: NextStep, draftSeconds = 0): boolean {
    return this.best(offers, step, this.times.gap + draftSeconds, CHANGE_MARGIN) !== undefined;
  }

  /** Which drafts the next step takes, where the tokens before it are known. `draftSeconds`: of a round of drafts. */
  choose(offers: readonly Survivals[], step: NextStep, draftSeconds = 0): Allocation | undefined {
    return this.best(offers, step, draftSeconds, MARGIN);
  }

  /** The best step with drafts, which take `more` seconds; undefined: one without is better, or none may be tried. */
  private best(offers: readonly Survivals[], step: NextStep, more: number, margin: number): Allocation | undefined {
    const { texts, tokens: base, hasPrompts, keys, most } = step;
    const { credit = 0, times } = this;
    if (!this.mayDraft(step)) return undefined;
    const [following, waiting] = [times.following(keys), times.waiting(keys)];
    if (following === undefined || waiting === undefined) return undefined;
    const share = hasPrompts ? times.promptShare : 1;
    const plain = share * following(base);
    const withDrafts = (drafts: number): number => share * waiting(base + drafts) + more;
    // Drafts cost no more than they may if as many are right as is as good as certain.
    let room = Math.min(most, times.reach(base) - base);
    const certain = certainTokens(offers);
    const isTooMuch = (drafts: number): boolean =>
      withDrafts(drafts) - plain * (1 + (certain[Math.min(drafts, certain.length - 1)] ?? 0) / texts) > credit;
    while (room > 0 && isTooMuch(room)) room = Math.floor((room * 7) / 8);
    const seconds = (drafts: number): number => (drafts === 0 ? plain : withDrafts(drafts) * margin);
    const found = allocateDrafts(offers, { texts, most: room, seconds });
    return found.drafts > 0 ? found : undefined;
  }

  /** Tokens a second of a step with drafts, or of one without. */
  rateOf(found: Allocation | undefined, { texts, keys, tokens, hasPrompts }: NextStep): number {
    if (found !== undefined) return found.tokens / found.seconds;
    const seconds = this.times.following(keys)?.(tokens) ?? Infinity;
    return texts / (seconds * (hasPrompts ? this.times.promptShare : 1));
  }

  /** Whether drafts may cost `seconds`, and it is known what a step without takes. */
  mayDraft({ texts }: NextStep, seconds = 0): boolean {
    return texts > 0 && this.credit !== undefined && this.credit > seconds && this.times.isKnown(texts, PLAIN_STEPS);
  }

  /** A step was read. */
  end(step: EndedStep): void {
    const { follows, tokens, keys, seconds, texts, hasPrompts, drafted, accepted, isLate, draftSeconds } = step;
    this.steps++;
    const following = this.times.following(keys);
    const share = hasPrompts ? this.times.promptShare : 1;
    if (hasPrompts) this.times.addPrompts(tokens, keys, seconds - draftSeconds);
    else if (follows !== 'nothing' || !this.times.looksAhead)
      this.times.add(follows === 'ahead', tokens, keys, seconds - draftSeconds);
    if (texts === 0 || following === undefined) return;
    const plain = share * following(tokens - drafted);
    this.credit ??= this.firstSteps * plain;
    this.credit = Math.max(this.credit, Math.min(this.credit + SHARE * seconds, SHARE_STEPS * plain));
    if (drafted === 0 && !isLate && draftSeconds === 0) return;
    const own = step.readsPrompts ? 0 : draftSeconds;
    const taken = Math.min(seconds, own + OUTLIER * Math.max(plain, share * following(tokens)));
    this.credit = Math.min(this.credit + plain * (1 + accepted / texts) - taken, SAVED_STEPS * plain);
  }
}

/** Of the likeliest drafts, none, one, two and so on, how many are accepted as good as certainly. */
function certainTokens(offers: readonly Survivals[]): Float64Array {
  const sorted = Float64Array.from(offers.flat()).sort().reverse();
  const sums = new Float64Array(sorted.length + 1);
  for (let i = 0; i < sorted.length; i++) sums[i + 1] = sums[i]! + CERTAIN * sorted[i]!;
  return sums;
}
