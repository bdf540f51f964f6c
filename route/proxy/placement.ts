/**
 * Adapters on their way to replicas and away: what the policy plans, done by the endpoints that vLLM has for it. A
 * name's next revision is loaded wherever the old one is before the name means it; the old one leaves a replica when no
 * request of it is left there.
 */
import { isRecord } from '../../system/json.js';
import type { Action, AdapterKey, Routing } from '../policy.js';
import { type AdapterBook, heldName, parseHeldName } from './adapterBook.js';
import type { RouteConfig } from './config.js';
import type { Tell } from './events.js';
import type { Fleet } from './fleet.js';
import type { Replica } from './replica.js';

const MAX_ANSWER_BYTES = 64 << 10;
/** A load that failed is not tried again at that replica for so long. */
const RETRY_MS = 10_000;
const PLAN_MS = 1000;

export interface PlacementCounts {
  loads: number;
  failedLoads: number;
  unloads: number;
  swaps: number;
}

export class Placement {
  readonly counts: PlacementCounts = { loads: 0, failedLoads: 0, unloads: 0, swaps: 0 };
  private readonly fleet: Fleet;
  private readonly book: AdapterBook;
  private readonly routing: Routing;
  private readonly config: RouteConfig;
  private readonly tell: Tell;
  private readonly now: () => number;
  /** By replica and name: loads that are being done. */
  private readonly loading = new Map<string, Promise<boolean>>();
  private readonly unloading = new Set<string>();
  /** By replica and name: until when a load is not tried again. */
  private readonly refused = new Map<string, number>();
  /** One change at a time for each replica. */
  private readonly queues = new Map<string, Promise<unknown>>();
  /** Names that the policy knows. */
  private readonly announced = new Set<string>();
  private timers: NodeJS.Timeout[] = [];
  private isLooking = false;
  private isClosed = false;

  constructor(fleet: Fleet, book: AdapterBook, routing: Routing, config: RouteConfig, tell: Tell, now: () => number) {
    this.fleet = fleet;
    this.book = book;
    this.routing = routing;
    this.config = config;
    this.tell = tell;
    this.now = now;
  }

  /** Begins: names are told to the policy once replicas have been asked what they hold. */
  async open(): Promise<void> {
    await this.look();
    const { placementSeconds } = this.config.policy;
    const every = (ms: number, work: () => void): void => void this.timers.push(setInterval(work, ms).unref());
    every(1000 * placementSeconds, () => void this.look());
    every(Math.min(PLAN_MS, 250 * placementSeconds), () => this.act());
  }

  close(): void {
    this.isClosed = true;
    for (const timer of this.timers) clearInterval(timer);
    this.timers = [];
  }

  isAnnounced(name: string): boolean {
    return this.announced.has(name);
  }

  /** Reads folders again, and tells the policy of revisions. */
  async look(): Promise<void> {
    if (this.isLooking || this.isClosed) return;
    this.isLooking = true;
    try {
      await this.book.look();
      const known = this.fleet.isKnown;
      for (const name of this.book.names) this.sync(name, known);
      this.act();
    } finally {
      this.isLooking = false;
    }
  }

  private sync(name: string, isKnown: boolean): void {
    const config = this.book.configOf(name);
    const source = this.book.sourceOf(name);
    if (config === undefined || !isKnown) return;
    const { base } = config;
    const now = this.now();
    const held = this.heldRevisions(name, base);
    const wanted = source?.revision ?? held[0];
    if (wanted === undefined) return;
    if (!this.announced.has(name)) {
      // What replicas hold is served until all of them have what is wanted.
      const first = held.find((revision) => revision !== wanted) ?? wanted;
      this.routing.announce({ base, name, revision: first }, now);
      this.announced.add(name);
      this.tell({
        event: 'revision',
        adapter: name,
        revision: first,
        why: held.includes(first) ? 'replicas hold it' : '',
      });
      this.fleet.signalChange();
    }
    if (this.routing.resolve(name, base)?.revision === wanted) return;
    this.tell({
      event: 'revision',
      adapter: name,
      revision: wanted,
      why: 'it takes the place of the one that is served',
    });
    this.routing.revise({ base, name, revision: wanted }, now);
  }

  /** Revisions that replicas of the base list, the most frequent first. */
  private heldRevisions(name: string, base: string): readonly string[] {
    const counts = new Map<string, number>();
    for (const replica of this.fleet.ready) {
      if (replica.base !== base) continue;
      for (const { id } of replica.models) {
        const held = parseHeldName(id);
        if (held?.name === name) counts.set(held.revision, (counts.get(held.revision) ?? 0) + 1);
      }
    }
    return [...counts].sort((a, b) => b[1] - a[1]).map(([revision]) => revision);
  }

  /** Does what the policy plans now. */
  act(): void {
    if (this.isClosed) return;
    for (const action of this.routing.plan(this.now())) this.do(action);
  }

  private do(action: Action): void {
    switch (action.kind) {
      case 'load':
        void this.load(action.replica, action.adapter, action.why);
        return;
      case 'unload':
        void this.unload(action.replica, action.adapter);
        return;
      case 'swap':
        this.counts.swaps++;
        this.tell({
          event: 'swap',
          ...{ adapter: action.to.name, from: action.from.revision, to: action.to.revision },
        });
        this.fleet.signalChange();
        return;
      default:
        action satisfies never;
    }
  }

  /** Whether the replica will have the adapter, where it is on its way there. Never rejects. */
  underWay(replicaId: string, adapter: AdapterKey): Promise<boolean> | undefined {
    return this.loading.get(`${replicaId}\0${heldName(adapter)}`);
  }

  /** Whether the replica has the adapter now. Loads of the same one are one load. Never rejects. */
  load(replicaId: string, adapter: AdapterKey, why: string): Promise<boolean> {
    const replica = this.fleet.replicas.get(replicaId);
    const key = `${replicaId}\0${heldName(adapter)}`;
    const before = this.loading.get(key);
    if (before !== undefined) return before;
    if (replica === undefined || (this.refused.get(key) ?? 0) > this.now()) {
      this.routing.loadFailed(replicaId, adapter, this.now());
      return Promise.resolve(false);
    }
    const load = this.inTurn(replica, () => this.loadNow(replica, adapter)).then((problem) => {
      this.loading.delete(key);
      const now = this.now();
      if (problem === undefined) {
        this.counts.loads++;
        this.refused.delete(key);
        this.routing.loaded(replicaId, adapter, now);
        this.tell({ event: 'load', replica: replicaId, adapter: heldName(adapter), why });
        this.act();
      } else {
        this.counts.failedLoads++;
        this.refused.set(key, now + RETRY_MS);
        this.routing.loadFailed(replicaId, adapter, now);
        this.tell({ event: 'load failed', replica: replicaId, adapter: heldName(adapter), why: problem });
      }
      this.fleet.signalChange();
      return problem === undefined;
    });
    this.loading.set(key, load);
    return load;
  }

  /** Why it failed. */
  private async loadNow(replica: Replica, adapter: AdapterKey): Promise<string | undefined> {
    const held = heldName(adapter);
    try {
      const { name, revision } = adapter;
      // A folder that holds something else by now would be loaded under a name that is not its own.
      if (!(await this.book.isCurrent(name, revision))) {
        // Another router may have made it what the name means: this one follows at once.
        setImmediate(() => void this.look());
        return this.book.problemOf(name) ?? 'its folder holds another revision by now';
      }
      const path = this.book.sourceOf(name)!.path;
      const answer = await this.post(replica, '/v1/load_lora_adapter', { lora_name: held, lora_path: path });
      const models = await this.fleet.listAgain(replica);
      const isThere = models.some(({ id }) => id === held);
      // 400 where it has it already: a name stands for one content, whoever loaded it.
      if (!isThere) return answer.status === 200 ? 'it says that it has loaded it, and does not list it' : answer.why;
      if (await this.book.isCurrent(name, revision)) return undefined;
      await this.post(replica, '/v1/unload_lora_adapter', { lora_name: held });
      await this.fleet.listAgain(replica);
      return 'its files changed while they were loaded';
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  private async unload(replicaId: string, adapter: AdapterKey): Promise<void> {
    const replica = this.fleet.replicas.get(replicaId);
    const held = heldName(adapter);
    const key = `${replicaId}\0${held}`;
    if (replica === undefined || this.unloading.has(key)) return;
    this.unloading.add(key);
    const problem = await this.inTurn(replica, async () => {
      try {
        const answer = await this.post(replica, '/v1/unload_lora_adapter', { lora_name: held });
        const models = await this.fleet.listAgain(replica);
        return models.some(({ id }) => id === held) ? answer.why : undefined;
      } catch (error) {
        return error instanceof Error ? error.message : String(error);
      }
    });
    this.unloading.delete(key);
    if (problem === undefined) {
      this.counts.unloads++;
      this.routing.unloaded(replicaId, adapter, this.now());
      this.tell({ event: 'unload', replica: replicaId, adapter: held, why: '' });
    } else this.tell({ event: 'unload failed', replica: replicaId, adapter: held, why: problem });
  }

  private async post(replica: Replica, path: string, body: unknown): Promise<{ status: number; why: string }> {
    const timeoutMs = 1000 * this.config.limits.loadSeconds;
    const { status, text } = await replica.link.text('POST', path, { body, timeoutMs, maxBytes: MAX_ANSWER_BYTES });
    return { status, why: status === 200 ? '' : `status ${status}: ${messageOf(text)}` };
  }

  private inTurn<T>(replica: Replica, work: () => Promise<T>): Promise<T> {
    const before = this.queues.get(replica.id) ?? Promise.resolve();
    const mine = before.then(work, work);
    this.queues.set(
      replica.id,
      mine.catch(() => undefined),
    );
    return mine;
  }
}

function messageOf(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    const error = isRecord(value) ? (value['error'] ?? value) : undefined;
    const message = isRecord(error) ? error['message'] : undefined;
    if (typeof message === 'string') return message.slice(0, 300);
  } catch {
    // It is shown as it is.
  }
  return text.slice(0, 300);
}
