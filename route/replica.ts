/**
 * What a router knows of one replica: what it said last, and what this router has sent there. Own dispatches count at
 * once; what a report says beyond them is others' (another router, a client that asks the replica itself).
 */
import { hashText } from './hash.js';
import { type AdapterKey, POLICY_LIMITS, type ReplicaState } from './policy.js';
import type { CheckedReport } from './report.js';

/** An adapter at a replica. */
export interface Held {
  readonly key: AdapterKey;
  isResident: boolean;
  /** Requests under way that this router sent, and those of others. */
  own: number;
  others: number;
  /** It was confirmed to this router then: reports that were on their way may not know it yet. */
  confirmedAt: number;
  /** It was used last, or loaded, when the replica had counted so many uses. */
  usedBy: number;
}

/** A report that was made before something was confirmed may come so much later. */
const REPORT_LAG_MS = 3000;
/** A replica that did not have what it said it has is not believed about it for so long. */
const DISBELIEF_MS = 60_000;
/** What of the pace of prompts is kept from one to the next. */
const KEPT_PACE = 0.98;

export class Replica {
  readonly name: string;
  /** Hash of its name: its part in choices among the same holders. */
  readonly seed: number;
  state: ReplicaState = 'active';
  base: string | undefined;
  slots = 0;
  /** Requests of a step; undefined: not said. */
  maxRunning: number | undefined;
  /** This router's requests that are under way, and tokens of theirs that are still to be computed as prompts. */
  own = 0;
  ownTokens = 0;
  /** Tokens of the prompts of its requests that have no first token yet, in the order in which they were sent. */
  private readonly prompts = new Set<{ readonly tokens: number }>();
  /** When the replica began with the first of them: at its dispatch, or the last first token. */
  private computesSince = 0;
  /** Tokens of prompts that were computed, and the time they took; what was long ago counts less. */
  private computedTokens = 0;
  private computedMs = 0;
  /** What others have there. */
  others = 0;
  othersTokens = 0;
  reportedAt = -Infinity;
  readonly held = new Map<AdapterKey, Held>();
  /** Adapters with requests under way: their slots cannot be taken. */
  busySlots = 0;
  private readonly disbelieved = new Map<AdapterKey, number>();
  private uses = 0;

  constructor(name: string) {
    this.name = name;
    this.seed = hashText(name);
  }

  get inFlight(): number {
    return this.own + this.others;
  }

  get queueTokens(): number {
    return this.ownTokens + this.othersTokens;
  }

  /**
   * Tokens of prompts that are likely to be left: the replica is with the first one since a known time, and computes so
   * many a millisecond as it did of late. More than that one is not believed to be done: its first token is not there.
   */
  queueLeft(now: number): number {
    const first = this.prompts.values().next().value;
    if (first === undefined || this.computedMs <= 0) return this.queueTokens;
    const done = ((now - this.computesSince) * this.computedTokens) / this.computedMs;
    return this.queueTokens - Math.min(first.tokens, Math.max(0, done));
  }

  isResident(key: AdapterKey): boolean {
    return this.held.get(key)?.isResident === true;
  }

  /** Whether a request of the adapter finds a slot, or takes one that nobody uses. */
  hasSlot(key: AdapterKey): boolean {
    if (this.busySlots < this.slots) return true;
    const held = this.held.get(key);
    return held !== undefined && held.own + held.others > 0;
  }

  /** Takes a report whose adapters were resolved to keys of this router. */
  take(
    report: CheckedReport,
    adapters: ReadonlyMap<AdapterKey, { isResident: boolean; requests: number }>,
    now: number,
  ) {
    this.base = report.base;
    this.slots = report.slots;
    this.maxRunning = report.maxRunning;
    this.others = Math.max(0, report.running + report.waiting - this.own);
    this.othersTokens = Math.max(0, report.queueTokens - this.ownTokens);
    this.reportedAt = now;
    for (const [key, held] of this.held) {
      if (adapters.has(key)) continue;
      held.others = 0;
      if (now - held.confirmedAt < REPORT_LAG_MS) continue;
      // Requests of it are under way, which will find out.
      if (held.own > 0) held.isResident = false;
      else this.held.delete(key);
    }
    for (const [key, { isResident, requests }] of adapters) {
      if (this.isDisbelieved(key, now)) continue;
      const held = this.hold(key);
      held.isResident = isResident || now - held.confirmedAt < REPORT_LAG_MS;
      held.others = Math.max(0, requests - held.own);
    }
    this.countBusy();
  }

  private isDisbelieved(key: AdapterKey, now: number): boolean {
    const until = this.disbelieved.get(key);
    if (until === undefined) return false;
    if (now < until) return true;
    this.disbelieved.delete(key);
    return false;
  }

  private hold(key: AdapterKey): Held {
    let held = this.held.get(key);
    if (held === undefined) {
      held = { key, isResident: false, own: 0, others: 0, confirmedAt: -Infinity, usedBy: 0 };
      this.held.set(key, held);
    }
    return held;
  }

  private countBusy(): void {
    let busy = 0;
    for (const { own, others } of this.held.values()) if (own + others > 0) busy++;
    this.busySlots = busy;
  }

  /** It has the adapter: who loaded it says so. */
  confirm(key: AdapterKey, now: number): void {
    this.disbelieved.delete(key);
    const held = this.hold(key);
    if (!held.isResident) this.displace();
    held.isResident = true;
    held.confirmedAt = now;
    held.usedBy = ++this.uses;
  }

  forget(key: AdapterKey): void {
    const held = this.held.get(key);
    if (held === undefined) return;
    if (held.own > 0) Object.assign(held, { isResident: false, others: 0, confirmedAt: -Infinity });
    else this.held.delete(key);
    this.countBusy();
  }

  /** It has not got what it said it has, or will not have it: reports of it are not believed for a time. */
  disbelieve(key: AdapterKey, now: number, forMs = DISBELIEF_MS): void {
    this.forget(key);
    if (this.disbelieved.size < POLICY_LIMITS.reported) this.disbelieved.set(key, now + forMs);
  }

  /** It is known again that it has not got it, or still has it: reports count. */
  believe(key: AdapterKey): void {
    this.disbelieved.delete(key);
  }

  /** A request goes there. The adapter will be in a slot when it is computed. */
  begin(key: AdapterKey | undefined, prompt: { readonly tokens: number }, now: number): void {
    this.own++;
    this.ownTokens += prompt.tokens;
    if (this.prompts.size === 0) this.computesSince = now;
    this.prompts.add(prompt);
    if (key === undefined) return;
    const held = this.hold(key);
    if (held.own + held.others === 0) this.busySlots++;
    held.own++;
    held.usedBy = ++this.uses;
    if (held.isResident) return;
    this.displace();
    held.isResident = true;
  }

  /** An adapter is loaded: where no slot is free it takes that of the idle one that was used longest ago. */
  private displace(): void {
    let resident = 0;
    let oldest: Held | undefined;
    for (const each of this.held.values()) {
      if (!each.isResident) continue;
      resident++;
      if (each.own + each.others === 0 && (oldest === undefined || each.usedBy < oldest.usedBy)) oldest = each;
    }
    if (resident >= this.slots && oldest !== undefined) oldest.isResident = false;
  }

  /** The prompt waits no more: it is computed, which shows the replica's pace, or its request is over. */
  compute(prompt: { readonly tokens: number }, isComputed: boolean, now: number): void {
    const isFirst = this.prompts.values().next().value === prompt;
    if (!this.prompts.delete(prompt)) return;
    this.ownTokens -= prompt.tokens;
    if (isComputed) {
      this.computedTokens = KEPT_PACE * this.computedTokens + prompt.tokens;
      this.computedMs = KEPT_PACE * this.computedMs + Math.max(0, now - this.computesSince);
    }
    if (isComputed || isFirst) this.computesSince = now;
  }

  end(key: AdapterKey | undefined): void {
    this.own--;
    const held = key === undefined ? undefined : this.held.get(key);
    if (held === undefined) return;
    held.own--;
    held.usedBy = ++this.uses;
    if (held.own + held.others === 0) this.busySlots--;
  }
}
