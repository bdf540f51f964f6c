/** The replicas: asked again and again how they are, and what the policy is told of it. */
import type { HeldAdapter, ReplicaReport, Routing } from '../policy.js';
import { type AdapterBook, parseHeldName } from './adapterBook.js';
import type { RouteConfig } from './config.js';
import type { ReplicaPhase, Tell } from './events.js';
import { type ListedModel, type Probed, Replica } from './replica.js';

/** Tokens of a prompt, where no replica says how long they are. */
const USUAL_PROMPT_TOKENS = 256;
const MAX_COUNT = 1 << 20;

export class Fleet {
  readonly replicas: ReadonlyMap<string, Replica>;
  private readonly routing: Routing;
  private readonly book: AdapterBook;
  private readonly config: RouteConfig;
  private readonly tell: Tell;
  private readonly now: () => number;
  private readonly timers = new Map<string, NodeJS.Timeout>();
  private readonly probing = new Set<string>();
  private readonly probed = new Set<string>();
  private isClosed = false;
  private wake: () => void = () => undefined;
  private changes = this.nextChange();

  constructor(config: RouteConfig, routing: Routing, book: AdapterBook, tell: Tell, now: () => number) {
    this.config = config;
    this.routing = routing;
    this.book = book;
    this.tell = tell;
    this.now = now;
    const connectMs = 1000 * config.limits.connectSeconds;
    this.replicas = new Map(config.replicas.map((each) => [each.id, new Replica(each, connectMs)]));
  }

  /** Begins to ask. Settles when all have answered once, or have failed to. */
  async open(): Promise<void> {
    await Promise.all([...this.replicas.values()].map((replica) => this.probe(replica)));
  }

  close(): void {
    this.isClosed = true;
    for (const timer of this.timers.values()) clearTimeout(timer);
    for (const { link } of this.replicas.values()) link.close();
  }

  /** Whether every replica has been asked. */
  get isKnown(): boolean {
    return this.probed.size === this.replicas.size;
  }

  get ready(): readonly Replica[] {
    return [...this.replicas.values()].filter((replica) => replica.takesRequests);
  }

  /** Settles when something has changed that a waiting request may want. */
  changed(): Promise<void> {
    return this.changes;
  }

  signalChange(): void {
    const { wake } = this;
    this.changes = this.nextChange();
    wake();
  }

  /** Models that replicas list, those that take requests first. */
  listed(model: string): readonly Replica[] {
    return [...this.replicas.values()].filter((replica) => replica.phase === 'ready' && replica.lists(model));
  }

  /** A request could not be sent there, or broke off: it is asked how it is, at once. */
  suspect(replica: Replica, why: string, isGone: boolean): void {
    if (isGone && replica.phase !== 'down') this.enter(replica, 'down', why);
    void this.probe(replica);
  }

  /** It said that it takes no requests: none are sent until it has been asked again. */
  refuses(replica: Replica, why: string): void {
    if (replica.phase === 'ready') this.enter(replica, 'loading', why);
  }

  /** No new requests go there, until `resume`. */
  drain(replica: Replica): void {
    replica.isDrained = true;
    this.routing.drain(replica.id, this.now());
    this.tell({ event: 'replica', replica: replica.id, state: 'draining', why: 'an administrator asked for it' });
    this.signalChange();
  }

  resume(replica: Replica): void {
    replica.isDrained = false;
    this.routing.join(replica.id, this.now());
    this.report(replica);
    this.tell({ event: 'replica', replica: replica.id, state: replica.phase, why: 'an administrator resumed it' });
    this.signalChange();
  }

  /** A load or unload there is done: what it has is asked again. */
  async listAgain(replica: Replica): Promise<readonly ListedModel[]> {
    replica.changes++;
    const models = await replica.listAgain(1000 * this.config.probe.timeoutSeconds);
    this.report(replica);
    this.signalChange();
    return models;
  }

  private nextChange(): Promise<void> {
    return new Promise((resolve) => (this.wake = resolve));
  }

  private async probe(replica: Replica): Promise<void> {
    if (this.probing.has(replica.id) || this.isClosed) return;
    this.probing.add(replica.id);
    clearTimeout(this.timers.get(replica.id));
    const { periodSeconds, timeoutSeconds } = this.config.probe;
    try {
      const { changes } = replica;
      const probed = await replica.probe(1000 * timeoutSeconds);
      // What it listed while an adapter came or went is old: the next time says it.
      if (!this.isClosed) this.take(replica, probed, changes === replica.changes);
    } finally {
      this.probing.delete(replica.id);
      if (!this.isClosed)
        this.timers.set(replica.id, setTimeout(() => void this.probe(replica), 1000 * periodSeconds).unref());
    }
  }

  private take(replica: Replica, { phase, why, models, metrics }: Probed, isFresh: boolean): void {
    const isFirst = !this.probed.has(replica.id);
    this.probed.add(replica.id);
    if (phase === 'down') {
      replica.failures++;
      // One that is known to be well may be late once.
      if (replica.phase === 'ready' && replica.failures < this.config.probe.failures) return;
    } else replica.failures = 0;
    if (models !== undefined && isFresh) replica.models = models;
    replica.metrics = metrics;
    if (phase !== replica.phase) this.enter(replica, phase, why);
    else replica.why = why;
    if (phase === 'ready') this.report(replica);
    if (isFirst) this.signalChange();
  }

  private enter(replica: Replica, phase: ReplicaPhase, why: string): void {
    const now = this.now();
    Object.assign(replica, { phase, why, since: now });
    this.tell({ event: 'replica', replica: replica.id, state: phase, why });
    switch (phase) {
      case 'ready':
        this.routing.join(replica.id, now);
        if (replica.isDrained) this.routing.drain(replica.id, now);
        break;
      case 'draining':
        this.routing.drain(replica.id, now);
        break;
      case 'down':
      case 'loading':
      case 'unknown':
        this.routing.leave(replica.id, now);
        break;
      default:
        phase satisfies never;
    }
    // What has not begun to answer is asked of another one. Answers that run may still come.
    if (phase === 'down') for (const request of [...replica.underWay]) request.takeAway(why);
    this.signalChange();
  }

  private report(replica: Replica): void {
    const { base } = replica;
    if (base === undefined || replica.phase !== 'ready') return;
    this.routing.report(replica.id, this.reportOf(replica, base), this.now());
  }

  private reportOf({ models, metrics, weight }: Replica, base: string): ReplicaReport {
    const waiting = Math.min(Math.round(metrics?.waiting ?? 0), MAX_COUNT);
    return {
      base,
      adapters: models.flatMap(({ id }): HeldAdapter[] => {
        const held = parseHeldName(id);
        return held === undefined || this.book.configOf(held.name)?.base !== base ? [] : [held];
      }),
      slots: metrics?.slots ?? this.config.policy.slots,
      running: Math.min(Math.round(metrics?.running ?? 0), MAX_COUNT),
      waiting,
      queueTokens: Math.round(waiting * (metrics?.meanPromptTokens ?? USUAL_PROMPT_TOKENS)),
      maxRunning: Math.max(1, Math.round(weight * this.config.policy.running)),
    };
  }
}
