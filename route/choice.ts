/**
 * Which replica takes a request. Those that are to hold its adapter and have it come first, within their bounds; two of
 * them are compared. Where all are at their bounds, it spills to one that happens to have the adapter, else to the next
 * on the ring: spills of one adapter meet. Only where nobody has a slot for it is it put behind others.
 */
import type { Pool } from './fleet.js';
import { hashPair, hashText } from './hash.js';
import type { Name } from './names.js';
import type { AdapterKey, PolicySettings, RouteRequest } from './policy.js';
import type { Replica } from './replica.js';

export interface Chosen {
  readonly replica: Replica;
  readonly isHeld: boolean;
  readonly isSpill: boolean;
}

/** Replicas that a prefix is looked for on: those that come first on its walk. */
const PREFIX_WALK = 8;

export interface Moment {
  readonly now: number;
  /** Varies what is compared from request to request. */
  readonly turn: number;
  /** Tokens of prompts of late. */
  readonly meanPrompt: number;
}

/** Equal arguments give an equal choice. Undefined where no replica may take the request. */
export function chooseReplica(
  pool: Pool,
  name: Name | undefined,
  request: RouteRequest,
  moment: Moment,
  settings: PolicySettings,
): Chosen | undefined {
  const look = new Look(pool, request, moment, settings);
  return name === undefined ? look.plain() : look.adapted(name, name.current);
}

/** Part of the slots that count as idle at least. */
const LEAST_IDLE = 1 / 16;
/** Of the mean cost of a load, what it is at least for a long prompt, and at most for a short one. */
const LEAST_OF_LOAD = 1 / 4;
const MOST_OF_LOAD = 2;

/** One request's look at the replicas. */
class Look {
  private readonly pool: Pool;
  private readonly request: RouteRequest;
  private readonly moment: Moment;
  private readonly settings: PolicySettings;
  private readonly items: number;

  constructor(pool: Pool, request: RouteRequest, moment: Moment, settings: PolicySettings) {
    this.pool = pool;
    this.request = request;
    this.moment = moment;
    this.settings = settings;
    this.items = pool.inFlight + 1;
  }

  private isAllowed(name: string): boolean {
    const { except, among } = this.request;
    return except?.has(name) !== true && among?.has(name) !== false;
  }

  private isOpen(replica: Replica): boolean {
    return this.isAllowed(replica.name) && replica.inFlight < this.pool.boundFor(replica, this.items);
  }

  /** Names of replicas to those that are open, in the same order. */
  private open(names: readonly string[]): Replica[] {
    const found: Replica[] = [];
    for (const name of names) {
      const replica = this.pool.active.get(name);
      if (replica !== undefined && this.isOpen(replica)) found.push(replica);
    }
    return found;
  }

  plain(): Chosen | undefined {
    const { prefix } = this.request;
    const { active, ring, base } = this.pool;
    // A prefix has a place on the ring, as an adapter has: the same replicas for all who begin so.
    const names = prefix === undefined ? [...active.keys()] : ring.firstOn(`${base}\0\0${prefix}`, PREFIX_WALK);
    const found = this.better(this.open(names), prefix === undefined);
    const replica = found ?? this.leastLoaded(() => true);
    return replica && { replica, isHeld: true, isSpill: false };
  }

  adapted(name: Name, key: AdapterKey): Chosen | undefined {
    const walk = this.open(this.pool.ring.walk(name.ringKey));
    const having = this.better(
      walk.filter((replica) => replica.isResident(key)),
      true,
    );
    const next = this.loader(walk, name, key);
    const isHolderBehind =
      having !== undefined && next !== undefined && this.scoreOf(having) > this.scoreOf(next) + this.loadCost(next);
    const found =
      (isHolderBehind ? next : having) ??
      next ??
      this.leastLoaded((each) => each.slots > 0) ??
      this.leastLoaded(() => true);
    if (found === undefined) return undefined;
    const isSpill = name.holders.length > 0 && !name.holders.includes(found.name);
    return { replica: found, isHeld: found.held.has(key), isSpill };
  }

  private loader(walk: readonly Replica[], name: Name, key: AdapterKey): Replica | undefined {
    const able = walk.filter((each) => !each.isResident(key) && each.hasSlot(key));
    const holder = able.find((each) => name.holders.includes(each.name));
    if (holder !== undefined) return holder;
    let best: Replica | undefined;
    for (const each of able.slice(0, this.settings.spillChoices))
      if (best === undefined || this.scoreOf(each) < this.scoreOf(best)) best = each;
    return best;
  }

  /**
   * What loading there costs: the fewer slots are idle, the more likely it drives out what is asked for next. A long
   * prompt, whose first token comes late anyway, is spared the wait behind others; a short one is worth no load.
   */
  private loadCost({ busySlots, slots }: Replica): number {
    const { meanPrompt } = this.moment;
    const part = Math.min(MOST_OF_LOAD, Math.max(LEAST_OF_LOAD, meanPrompt / this.request.tokens));
    return (part * this.settings.loadPrompts * meanPrompt) / Math.max(LEAST_IDLE, 1 - busySlots / slots);
  }

  private scoreOf(replica: Replica): number {
    return replica.queueLeft(this.moment.now) + this.settings.runningTokens * replica.inFlight;
  }

  /** The better of the first `choices` in the order of the request's own draw. */
  private better(found: readonly Replica[], isDrawn: boolean): Replica | undefined {
    const { choices } = this.settings;
    if (found.length <= 1) return found[0];
    const compared = isDrawn && found.length > choices ? this.draw(found, choices) : found.slice(0, choices);
    const { prefix, prefixTokens = 0 } = this.request;
    // The first in the order of a prefix has computed it, if anybody has.
    const first = prefix === undefined ? undefined : isDrawn ? this.draw(compared, 1)[0] : compared[0];
    let best: Replica | undefined;
    let least = Infinity;
    for (const replica of compared) {
      const score = this.scoreOf(replica) - (replica === first ? prefixTokens : 0);
      if (score < least) [best, least] = [replica, score];
    }
    return best;
  }

  /** Those that rank first under a hash of the prefix, or else of the turn: the highest random weight. */
  private draw(found: readonly Replica[], count: number): Replica[] {
    const { prefix } = this.request;
    const seed = prefix === undefined ? this.moment.turn : hashText(prefix);
    const ranked = found.map((replica) => ({ replica, rank: hashPair(replica.seed, seed) }));
    ranked.sort((a, b) => a.rank - b.rank);
    return ranked.slice(0, count).map(({ replica }) => replica);
  }

  private leastLoaded(isFit: (replica: Replica) => boolean): Replica | undefined {
    let best: Replica | undefined;
    let least = Infinity;
    for (const replica of this.pool.active.values()) {
      if (!this.isAllowed(replica.name) || !isFit(replica)) continue;
      const load = replica.inFlight / this.pool.partOf(replica);
      if (load < least || (load === least && best !== undefined && replica.queueTokens < best.queueTokens))
        [best, least] = [replica, load];
    }
    return best;
  }
}
