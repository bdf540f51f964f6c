/** The replicas of a router, and those of each base that take requests. */
import { boundOf } from './bound.js';
import type { PolicySettings } from './policy.js';
import type { Replica } from './replica.js';
import { Ring } from './ring.js';

/** The replicas of one base that take requests: those that joined, reported and are not draining. */
export class Pool {
  readonly base: string;
  readonly ring: Ring;
  readonly active = new Map<string, Replica>();
  private readonly settings: PolicySettings;
  private weights = 0;
  private meanRunning = 1;

  constructor(base: string, settings: PolicySettings) {
    this.base = base;
    this.settings = settings;
    this.ring = new Ring(settings.points);
  }

  add(replica: Replica): void {
    this.active.set(replica.name, replica);
    this.ring.add(replica.name);
    this.weigh();
  }

  delete(replica: Replica): void {
    this.active.delete(replica.name);
    this.ring.delete(replica.name);
    this.weigh();
  }

  /** After a replica said how large it is. */
  weigh(): void {
    const said = [...this.active.values()].flatMap(({ maxRunning }) => maxRunning ?? []);
    this.meanRunning = said.length > 0 ? said.reduce((sum, each) => sum + each, 0) / said.length : 1;
    this.weights = 0;
    for (const replica of this.active.values()) this.weights += replica.maxRunning ?? this.meanRunning;
  }

  /** Its part of all that the replicas can do. */
  partOf(replica: Replica): number {
    return this.weights > 0 ? (replica.maxRunning ?? this.meanRunning) / this.weights : 0;
  }

  get inFlight(): number {
    let sum = 0;
    for (const replica of this.active.values()) sum += replica.inFlight;
    return sum;
  }

  /** Requests that they run at once where all say so; Infinity where one does not. */
  get maxRunning(): number {
    let sum = 0;
    for (const replica of this.active.values()) sum += replica.maxRunning ?? Infinity;
    return sum;
  }

  /**
   * Requests that the replica may have when `items` are under way, a new one among them. A replica that runs few is not
   * loaded, however few the others run.
   */
  boundFor(replica: Replica, items: number): number {
    const free = Math.floor((replica.maxRunning ?? 0) * this.settings.freePart);
    return Math.max(free, boundOf(this.settings.epsilon, items, this.partOf(replica)));
  }
}

export class Fleet {
  readonly replicas = new Map<string, Replica>();
  readonly pools = new Map<string, Pool>();
  private readonly settings: PolicySettings;

  constructor(settings: PolicySettings) {
    this.settings = settings;
  }

  /** Puts the replica where it belongs after its state or its base changed. Returns whether anything moved. */
  settle(replica: Replica): boolean {
    const isIn = this.replicas.get(replica.name) === replica && replica.state === 'active';
    const base = isIn ? replica.base : undefined;
    let hasMoved = false;
    for (const pool of this.pools.values()) {
      if (pool.base === base || pool.active.get(replica.name) !== replica) continue;
      pool.delete(replica);
      if (pool.active.size === 0) this.pools.delete(pool.base);
      hasMoved = true;
    }
    if (base === undefined) return hasMoved;
    let pool = this.pools.get(base);
    if (pool === undefined) this.pools.set(base, (pool = new Pool(base, this.settings)));
    if (pool.active.has(replica.name)) {
      pool.weigh();
      return hasMoved;
    }
    pool.add(replica);
    return true;
  }
}
