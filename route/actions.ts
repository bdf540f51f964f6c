/** Actions under way: none is proposed twice before it is done, has failed, or was given up. */
import type { Action, AdapterKey, LoadReason } from './policy.js';
import type { Replica } from './replica.js';

/** A replica loads so many at a time; the others wait for the next plan. */
const MOST_LOADS = 4;

interface UnderWay {
  readonly kind: 'load' | 'unload';
  /** Given up then, and may be proposed again. */
  readonly until: number;
}

export class Actions {
  private readonly timeoutMs: number;
  private readonly underWay = new Map<Replica, Map<AdapterKey, UnderWay>>();

  constructor(timeoutMs: number) {
    this.timeoutMs = timeoutMs;
  }

  private of(replica: Replica, now: number): Map<AdapterKey, UnderWay> {
    let actions = this.underWay.get(replica);
    if (actions === undefined) this.underWay.set(replica, (actions = new Map()));
    for (const [key, { until }] of actions) if (now >= until) actions.delete(key);
    return actions;
  }

  /** The action, unless the replica is at it, or has enough to do. */
  load(replica: Replica, adapter: AdapterKey, why: LoadReason, now: number): Action[] {
    const actions = this.of(replica, now);
    let loads = 0;
    for (const { kind } of actions.values()) if (kind === 'load') loads++;
    if (actions.has(adapter) || loads >= MOST_LOADS) return [];
    actions.set(adapter, { kind: 'load', until: now + this.timeoutMs });
    return [{ kind: 'load', replica: replica.name, adapter, why }];
  }

  unload(replica: Replica, adapter: AdapterKey, now: number): Action[] {
    const actions = this.of(replica, now);
    if (actions.has(adapter)) return [];
    actions.set(adapter, { kind: 'unload', until: now + this.timeoutMs });
    return [{ kind: 'unload', replica: replica.name, adapter }];
  }

  isUnloading(replica: Replica, adapter: AdapterKey): boolean {
    return this.underWay.get(replica)?.get(adapter)?.kind === 'unload';
  }

  /** Adapters that are being loaded there. */
  loads(replica: Replica, now: number): number {
    let loads = 0;
    for (const { kind } of this.of(replica, now).values()) if (kind === 'load') loads++;
    return loads;
  }

  /** A report shows that it is done. */
  doneIf(replica: Replica, adapter: AdapterKey, kind: 'load' | 'unload'): void {
    const actions = this.underWay.get(replica);
    if (actions?.get(adapter)?.kind === kind) actions.delete(adapter);
  }

  done(replica: Replica, adapter: AdapterKey): void {
    this.underWay.get(replica)?.delete(adapter);
  }

  /** It failed: it is proposed again after a time. */
  failed(replica: Replica, adapter: AdapterKey, now: number): void {
    const actions = this.of(replica, now);
    const kind = actions.get(adapter)?.kind ?? 'load';
    actions.set(adapter, { kind, until: now + this.timeoutMs / 4 });
  }

  forget(replica: Replica): void {
    this.underWay.delete(replica);
  }
}
