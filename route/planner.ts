/**
 * What has to change: who is to hold what, and the loads and unloads that lead there. Demand is looked at once a
 * period; a replica that comes, leaves or drains, and a new revision, at the next plan.
 */
import { type Actions } from './actions.js';
import { endPeriod } from './demand.js';
import type { Fleet, Pool } from './fleet.js';
import type { Name, Names } from './names.js';
import { place, type Item } from './placement.js';
import type { Action, AdapterKey, PolicySettings } from './policy.js';
import type { Replica } from './replica.js';

export class Planner {
  /** Replicas came, left or began to drain, or demand changed: holders are found anew. */
  isStale = true;
  private readonly fleet: Fleet;
  private readonly names: Names;
  private readonly actions: Actions;
  private readonly settings: PolicySettings;
  private periodEnd: number | undefined;

  constructor(fleet: Fleet, names: Names, actions: Actions, settings: PolicySettings) {
    this.fleet = fleet;
    this.names = names;
    this.actions = actions;
    this.settings = settings;
  }

  plan(now: number): Action[] {
    this.periodEnd ??= now + this.settings.periodMs;
    const isNewPeriod = now >= this.periodEnd;
    if (isNewPeriod) this.periodEnd = now + this.settings.periodMs;
    for (const pool of this.fleet.pools.values()) {
      if (isNewPeriod) this.endPeriod(pool);
      if (isNewPeriod || this.isStale) this.findHolders(pool);
    }
    this.isStale = false;
    const actions: Action[] = [];
    for (const name of this.names) {
      const pool = this.fleet.pools.get(name.base);
      if (pool !== undefined && !name.isWithdrawn) {
        actions.push(...this.follow(name, pool, now));
        actions.push(...this.fill(name, pool, now));
      }
    }
    for (const replica of this.fleet.replicas.values()) {
      actions.push(...this.handOver(replica, now));
      actions.push(...this.clear(replica, now));
    }
    this.forget();
    return actions;
  }

  private endPeriod(pool: Pool): void {
    const names = [...this.names.ofBase(pool.base)];
    endPeriod(
      names.map(({ demand }) => demand),
      pool.active.size,
      this.settings,
    );
    for (const name of names) name.spills.clear();
  }

  private findHolders(pool: Pool): void {
    const wanted: Name[] = [];
    for (const name of this.names.ofBase(pool.base)) {
      const { demand } = name;
      if (name.isWithdrawn || (demand.mean === 0 && demand.now === 0 && demand.holders === 1)) name.holders = [];
      else wanted.push(name);
    }
    const replicas = [...pool.active.values()];
    const items = new Map<Item, Name>(
      wanted.map((name) => [
        {
          order: name.order,
          walk: pool.ring.walk(name.ringKey),
          holders: Math.min(name.demand.holders, replicas.length),
          demand: name.demand.mean,
        },
        name,
      ]),
    );
    const rooms = new Map(replicas.map((each) => [each.name, { slots: each.slots, part: pool.partOf(each) }]));
    for (const [item, holders] of place([...items.keys()], rooms, this.settings.epsilon))
      items.get(item)!.holders = holders;
  }

  /** Loads what is wanted where there is room for it: a slot that is free, or one of what is not wanted there. */
  private fill(name: Name, pool: Pool, now: number): Action[] {
    return name.holders.flatMap((holder, copy) => {
      const replica = pool.active.get(holder);
      if (replica === undefined || replica.held.has(name.current) || !this.hasRoom(replica, now)) return [];
      return this.actions.load(replica, name.current, copy === 0 ? 'moved' : 'demand', now);
    });
  }

  private hasRoom(replica: Replica, now: number): boolean {
    let kept = this.actions.loads(replica, now);
    for (const { key, isResident, own, others } of replica.held.values())
      if (isResident && (own + others > 0 || this.isWanted(replica, key))) kept++;
    return kept < replica.slots;
  }

  private isWanted(replica: Replica, key: AdapterKey): boolean {
    const name = this.names.get(key.base, key.name);
    return name !== undefined && name.holders.includes(replica.name) && (key === name.current || key === name.next);
  }

  /** Brings the next revision to whoever has the present one; once all have it, it is the present one. */
  private follow(name: Name, pool: Pool, now: number): Action[] {
    const { current, next } = name;
    if (next === undefined) return [];
    const behind = [...pool.active.values()].filter((each) => each.held.has(current) && !each.held.has(next));
    if (behind.length > 0) return behind.flatMap((each) => this.actions.load(each, next, 'revision', now));
    name.current = next;
    name.next = undefined;
    name.retire(current);
    name.mean(next);
    return [{ kind: 'swap', from: current, to: next }];
  }

  /** What a replica that drains holds alone is loaded by the first on the ring. */
  private handOver(replica: Replica, now: number): Action[] {
    if (replica.state !== 'draining') return [];
    return this.onlyAt(replica).flatMap((key) => {
      const name = this.names.get(key.base, key.name)!;
      const pool = this.fleet.pools.get(key.base)!;
      const heir = pool.active.get(name.holders[0] ?? pool.ring.walk(name.ringKey)[0]!);
      return heir === undefined ? [] : this.actions.load(heir, key, 'drain', now);
    });
  }

  /** What a name means, and nobody who takes requests has but this replica. */
  onlyAt(replica: Replica): AdapterKey[] {
    const pool = replica.base === undefined ? undefined : this.fleet.pools.get(replica.base);
    if (pool === undefined || pool.active.size === 0) return [];
    const others = [...pool.active.values()].filter((each) => each !== replica && each.slots > 0);
    if (others.length === 0) return [];
    return [...replica.held.keys()].filter((key) => {
      const name = this.names.get(key.base, key.name);
      if (name?.current !== key || name.isWithdrawn) return false;
      return !others.some((each) => each.held.has(key));
    });
  }

  /** Unloads what means nothing any more, and, where slots are full, what others hold by now. */
  private clear(replica: Replica, now: number): Action[] {
    const pool = this.fleet.pools.get(replica.base ?? '');
    const isFull = replica.held.size >= replica.slots;
    return [...replica.held.values()].flatMap(({ key, own, others }) => {
      if (own + others > 0) return [];
      const name = this.names.get(key.base, key.name);
      if (name === undefined) return [];
      const isOver = name.isWithdrawn || name.retired.has(key);
      const isElsewhere =
        isFull &&
        key === name.current &&
        name.next === undefined &&
        name.holders.length > 0 &&
        !name.holders.includes(replica.name) &&
        name.holders.some((each) => pool?.active.get(each)?.isResident(key) === true);
      if (!isOver && !isElsewhere) return [];
      const unload = this.actions.unload(replica, key, now);
      // No request may be sent after it.
      if (unload.length > 0) replica.disbelieve(key, now, this.settings.actionTimeoutMs);
      return unload;
    });
  }

  /** Forgets names and revisions that mean nothing and that nobody holds. */
  private forget(): void {
    const held = new Set<AdapterKey>();
    for (const replica of this.fleet.replicas.values()) for (const key of replica.held.keys()) held.add(key);
    for (const name of this.names) {
      for (const [revision, key] of name.revisions) {
        if (key === name.current || key === name.next || held.has(key)) continue;
        name.revisions.delete(revision);
        name.retired.delete(key);
      }
      const isNobodys = name.revisions.size === 1 && !held.has(name.current);
      if (isNobodys && (name.isWithdrawn || name.isHeard)) this.names.delete(name);
    }
  }
}
