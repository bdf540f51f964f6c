/**
 * How often drafts were accepted lately: by drafter, by depth and by what the drafter said of their chance, and for
 * each text by itself. Drafters may know nothing of chances, or be wrong about them.
 */
import { MAX_DRAFTS } from './limits.js';

/** Upper ends of the classes of chances that drafters state; a further class is for drafts of which nothing is said. */
const CLASSES = [0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1] as const;
/** Depths from this one on are one class. */
const DEPTHS = 5;
/** Drafts after which older ones of a class, or of a text, count a third. */
const MEMORY = 64;
const TEXT_MEMORY = 24;
/** Rounds that a text and a drafter remember. */
const TEXT_ROUNDS = 12;
const ROUNDS = 128;
/** Drafts that an estimate counts for, beside those that were seen. */
const PRIOR = 3;
const UNKNOWN = 0.5;
const LEAST = 1e-3;

/** Decayed counts. */
class Share {
  seen = 0;
  hits = 0;

  add(isHit: boolean, memory: number): void {
    const keep = 1 - 1 / memory;
    this.seen = keep * this.seen + 1;
    this.hits = keep * this.hits + (isHit ? 1 : 0);
  }

  from(prior: number): number {
    return (this.hits + PRIOR * prior) / (this.seen + PRIOR);
  }
}

/** How many drafts rounds accepted: how often at least so many. A round is a step of a text, with drafts or without. */
class Rounds {
  count = 0;
  readonly reached = new Float64Array(MAX_DRAFTS);

  add(accepted: number, memory: number): void {
    this.count = Math.min(this.count + 1, memory);
    for (let depth = 0; depth < MAX_DRAFTS; depth++)
      this.reached[depth]! += ((depth < accepted ? 1 : 0) - this.reached[depth]!) / this.count;
  }
}

const classOf = (stated: number | undefined): number =>
  stated === undefined
    ? CLASSES.length
    : Math.max(
        0,
        CLASSES.findIndex((end) => stated <= end),
      );

/** Of one drafter, over all its texts. */
export class Acceptance {
  private readonly shares = Array.from({ length: (CLASSES.length + 1) * (DEPTHS + 1) }, () => new Share());
  private readonly rounds = new Rounds();
  private readonly depths = Array.from({ length: MAX_DRAFTS }, () => new Share());

  /** The chance of a draft at a depth, from 1, where all before it are accepted. `stated`: what the drafter says. */
  chanceOf(depth: number, stated: number | undefined): number {
    const [own, all] = this.sharesOf(depth, stated);
    return Math.min(1 - LEAST, Math.max(LEAST, own.from(all.from(stated ?? UNKNOWN))));
  }

  note(depth: number, stated: number | undefined, isAccepted: boolean): void {
    for (const share of this.sharesOf(depth, stated)) share.add(isAccepted, MEMORY);
    this.depths[Math.min(depth, MAX_DRAFTS) - 1]!.add(isAccepted, MEMORY);
  }

  noteRound(accepted: number): void {
    this.rounds.add(accepted, ROUNDS);
  }

  /**
   * How often a draft of a chain was accepted where all before it were, by depth. Depths that were not tried are taken
   * for what is before them.
   */
  get chain(): readonly number[] {
    let last = UNKNOWN;
    return this.depths.map((share) => (last = share.from(last)));
  }

  /** How often a round accepted at least as many drafts as each depth, from 1, says. */
  get reached(): Float64Array {
    return this.rounds.reached;
  }

  private sharesOf(depth: number, stated: number | undefined): readonly [Share, Share] {
    const first = classOf(stated) * (DEPTHS + 1);
    return [this.shares[first + Math.min(depth, DEPTHS)]!, this.shares[first]!];
  }
}

const oddsOf = (hits: number, seen: number): number => (hits + 1) / (seen - hits + 1);

/** Of one text: what is known of its drafter, and how much better or worse this text's drafts are. */
export class TextAcceptance {
  readonly drafter: Acceptance;
  private seen = 0;
  private hits = 0;
  private expected = 0;
  private readonly rounds = new Rounds();

  constructor(drafter: Acceptance) {
    this.drafter = drafter;
  }

  chanceOf(depth: number, stated: number | undefined): number {
    return this.ownOf(this.drafter.chanceOf(depth, stated));
  }

  private ownOf(chance: number): number {
    const odds = (chance / (1 - chance)) * (oddsOf(this.hits, this.seen) / oddsOf(this.expected, this.seen));
    return odds / (1 + odds);
  }

  /** The chances that a chain of this text is accepted up to each depth, from 1, whatever is said of it. */
  chain(): readonly number[] {
    let survival = 1;
    return this.drafter.chain.map((chance) => (survival *= this.ownOf(chance)));
  }

  note(depth: number, stated: number | undefined, isAccepted: boolean): void {
    const keep = 1 - 1 / TEXT_MEMORY;
    this.expected = keep * this.expected + this.drafter.chanceOf(depth, stated);
    this.seen = keep * this.seen + 1;
    this.hits = keep * this.hits + (isAccepted ? 1 : 0);
    this.drafter.note(depth, stated, isAccepted);
  }

  noteRound(accepted: number): void {
    this.rounds.add(accepted, TEXT_ROUNDS);
    this.drafter.noteRound(accepted);
  }

  /** How often the next round will accept at least as many drafts as each depth, from 1, says. */
  reached(): readonly number[] {
    const { count, reached } = this.rounds;
    return Array.from(this.drafter.reached, (all, depth) => (count * reached[depth]! + PRIOR * all) / (count + PRIOR));
  }
}
