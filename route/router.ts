/** The routing policy: `Routing` over what replicas report. See docs/routingPolicy.md for how it works. */
import { Actions } from './actions.js';
import { chooseReplica } from './choice.js';
import { Fleet } from './fleet.js';
import { type Name, Names } from './names.js';
import { Planner } from './planner.js';
import {
  type Action,
  type AdapterKey,
  DEFAULT_POLICY,
  type Outcome,
  POLICY_LIMITS,
  type PolicySettings,
  type Refusal,
  type ReplicaReport,
  type ReplicaView,
  type Route,
  type RouteRequest,
  type Routing,
  type Ticket,
} from './policy.js';
import { Replica } from './replica.js';
import { checkReport, countOf, isName } from './report.js';

/** Revisions of one name that reports can bring up. */
const HEARD_REVISIONS = 64;
/** Weight of one request in the mean lengths of prompts and answers. */
const LENGTH_SMOOTHING = 0.01;
const FIRST_LENGTH = 128;
const FIRST_PROMPT = 1024;

interface UnderWay extends Ticket {
  readonly at: Replica;
  readonly key: AdapterKey | undefined;
  readonly tokens: number;
  isComputed: boolean;
  isOver: boolean;
}

export class Router implements Routing {
  readonly settings: PolicySettings;
  private readonly fleet: Fleet;
  private readonly names = new Names();
  private readonly actions: Actions;
  private readonly planner: Planner;
  private readonly underWay = new WeakMap<Ticket, UnderWay>();
  private begun = 0;
  private meanNewTokens = FIRST_LENGTH;
  private meanPrompt = FIRST_PROMPT;

  constructor(settings: Partial<PolicySettings> = {}) {
    this.settings = { ...DEFAULT_POLICY, ...settings };
    this.fleet = new Fleet(this.settings);
    this.actions = new Actions(this.settings.actionTimeoutMs);
    this.planner = new Planner(this.fleet, this.names, this.actions, this.settings);
  }

  // Replicas

  join(replica: string, _now: number): void {
    let known = this.fleet.replicas.get(replica);
    if (known === undefined) {
      if (this.fleet.replicas.size >= POLICY_LIMITS.replicas || !isName(replica)) return;
      this.fleet.replicas.set(replica, (known = new Replica(replica)));
    }
    known.state = 'active';
    if (this.fleet.settle(known)) this.planner.isStale = true;
  }

  leave(replica: string, _now: number): void {
    const known = this.fleet.replicas.get(replica);
    if (known === undefined) return;
    this.fleet.replicas.delete(replica);
    this.actions.forget(known);
    if (this.fleet.settle(known)) this.planner.isStale = true;
  }

  drain(replica: string, _now: number): void {
    const known = this.fleet.replicas.get(replica);
    if (known === undefined) return;
    known.state = 'draining';
    if (this.fleet.settle(known)) this.planner.isStale = true;
  }

  report(replica: string, report: ReplicaReport, now: number): void {
    const known = this.fleet.replicas.get(replica);
    const checked = checkReport(report);
    if (known === undefined || checked === undefined) return;
    const adapters = new Map<AdapterKey, { isResident: boolean; requests: number }>();
    for (const { name, revision, isResident, requests } of checked.adapters) {
      const key = this.heard(checked.base, name, revision);
      if (key !== undefined && !adapters.has(key)) adapters.set(key, { isResident, requests });
    }
    if (known.base !== undefined && known.base !== checked.base) known.held.clear();
    known.take(checked, adapters, now);
    if (this.fleet.settle(known)) this.planner.isStale = true;
    for (const key of known.held.keys()) {
      this.actions.doneIf(known, key, 'load');
      this.vote(this.names.get(key.base, key.name));
    }
  }

  /** The key of an adapter that a replica says it holds. */
  private heard(base: string, name: string, revision: string): AdapterKey | undefined {
    const known = this.names.have(base, name, revision, true);
    if (known === undefined) return undefined;
    if (!known.revisions.has(revision) && known.revisions.size >= HEARD_REVISIONS) return undefined;
    return known.keyOf(revision);
  }

  /** A name that nobody announced means what most replicas hold; of equals the first by hash. */
  private vote(name: Name | undefined): void {
    if (name === undefined || !name.isHeard || name.revisions.size < 2) return;
    const votes = [...name.revisions.values()].map((key) => {
      let count = 0;
      for (const { held } of this.fleet.replicas.values()) if (held.has(key)) count++;
      return { key, count };
    });
    votes.sort((a, b) => b.count - a.count || (a.key.revision < b.key.revision ? -1 : 1));
    name.current = votes[0]!.key;
  }

  // Names

  announce(adapter: AdapterKey, _now: number): void {
    const name = this.announced(adapter);
    if (name === undefined) return;
    const key = name.keyOf(adapter.revision);
    if (name.current !== key) name.retire(name.current);
    name.mean(key);
    name.current = key;
    name.next = undefined;
  }

  revise(adapter: AdapterKey, _now: number): void {
    const name = this.announced(adapter);
    if (name === undefined) return;
    const key = name.keyOf(adapter.revision);
    if (name.next !== undefined && name.next !== key) name.retire(name.next);
    name.next = key === name.current ? undefined : key;
    name.mean(key);
  }

  private announced(adapter: AdapterKey): Name | undefined {
    const { base, name, revision } = adapter;
    if (!isName(base) || !isName(name) || !isName(revision)) return undefined;
    const known = this.names.have(base, name, revision, false);
    if (known === undefined) return undefined;
    this.names.know(known);
    known.isWithdrawn = false;
    return known;
  }

  withdraw(base: string, name: string, _now: number): void {
    const known = this.names.get(base, name);
    if (known === undefined) return;
    this.names.know(known);
    known.isWithdrawn = true;
    known.next = undefined;
    known.holders = [];
  }

  resolve(name: string, base?: string): AdapterKey | undefined {
    const found = this.find(name, base);
    return found?.current;
  }

  private find(name: string, base: string | undefined): Name | undefined {
    const found = base === undefined ? this.names.find(name) : this.names.get(base, name);
    return found?.isWithdrawn === true ? undefined : found;
  }

  // Requests

  choose(request: RouteRequest, now: number): Route | Refusal {
    let name: Name | undefined;
    if (request.adapter !== undefined) {
      name = this.find(request.adapter, request.base);
      if (name === undefined) return { kind: 'refusal', why: 'no such adapter' };
    }
    const base = name?.base ?? request.base ?? this.onlyBase();
    if (base === undefined) return { kind: 'refusal', why: this.fleet.pools.size > 1 ? 'no such model' : 'no replica' };
    const pool = this.fleet.pools.get(base);
    if (pool === undefined) {
      const isKnown = name !== undefined || [...this.fleet.replicas.values()].some((each) => each.base === base);
      return { kind: 'refusal', why: isKnown ? 'no replica' : 'no such model' };
    }
    if (pool.inFlight >= pool.maxRunning * this.settings.maxOversubscription) return { kind: 'refusal', why: 'full' };
    const chosen = chooseReplica(
      pool,
      name,
      request,
      { now, turn: this.begun, meanPrompt: this.meanPrompt },
      this.settings,
    );
    if (chosen === undefined) return { kind: 'refusal', why: 'no replica' };
    const { replica, isHeld, isSpill } = chosen;
    return { kind: 'route', replica: replica.name, base, adapter: name?.current, isHeld, isSpill };
  }

  private onlyBase(): string | undefined {
    return this.fleet.pools.size === 1 ? this.fleet.pools.keys().next().value : undefined;
  }

  begin(route: Route, request: RouteRequest, now: number): Ticket {
    this.begun++;
    const { tokens: most } = POLICY_LIMITS;
    const tokens = countOf(request.tokens, most, 0);
    this.meanPrompt += LENGTH_SMOOTHING * (tokens - this.meanPrompt);
    const at = this.fleet.replicas.get(route.replica) ?? new Replica(route.replica);
    const name = route.adapter === undefined ? undefined : this.names.get(route.adapter.base, route.adapter.name);
    const key = route.adapter === undefined ? undefined : name?.keyOf(route.adapter.revision);
    if (name !== undefined) {
      const newTokens = countOf(request.newTokens, most, this.meanNewTokens);
      name.demand.now += tokens + this.settings.newTokenWeight * Math.min(newTokens, 2 * this.meanNewTokens);
      if (route.isSpill) this.spilled(name, at);
    }
    const ticket: UnderWay = {
      replica: route.replica,
      adapter: route.adapter,
      startedAt: now,
      at,
      key,
      tokens,
      isComputed: false,
      isOver: false,
    };
    at.begin(key, ticket, now);
    this.underWay.set(ticket, ticket);
    return ticket;
  }

  /** A replica to which an adapter spills again and again becomes a holder at once. */
  private spilled(name: Name, at: Replica): void {
    const count = (name.spills.get(at.name) ?? 0) + 1;
    name.spills.set(at.name, count);
    if (count < this.settings.spillsToHold || name.holders.includes(at.name)) return;
    name.holders = [...name.holders, at.name];
    name.demand.holders = Math.max(name.demand.holders, name.holders.length);
    name.demand.quiet = 0;
  }

  firstToken(ticket: Ticket, now: number): void {
    const request = this.underWay.get(ticket);
    if (request === undefined || request.isComputed || request.isOver) return;
    request.isComputed = true;
    request.at.compute(request, true, now);
  }

  finish(ticket: Ticket, outcome: Outcome, now: number, newTokens?: number): void {
    const request = this.underWay.get(ticket);
    if (request === undefined || request.isOver) return;
    request.isOver = true;
    const { at, key } = request;
    at.compute(request, false, now);
    at.end(key);
    if (outcome === 'missing' && key !== undefined) at.disbelieve(key, now);
    if (outcome === 'answered' && newTokens !== undefined)
      this.meanNewTokens += LENGTH_SMOOTHING * (countOf(newTokens, POLICY_LIMITS.tokens, 0) - this.meanNewTokens);
  }

  // Plans

  plan(now: number): readonly Action[] {
    return this.planner.plan(now);
  }

  loaded(replica: string, adapter: AdapterKey, now: number): void {
    const [at, key] = [this.fleet.replicas.get(replica), this.names.own(adapter)];
    if (at === undefined || key === undefined) return;
    this.actions.done(at, key);
    at.confirm(key, now);
  }

  loadFailed(replica: string, adapter: AdapterKey, now: number): void {
    const [at, key] = [this.fleet.replicas.get(replica), this.names.own(adapter)];
    if (at !== undefined && key !== undefined) this.actions.failed(at, key, now);
  }

  unloaded(replica: string, adapter: AdapterKey, _now: number): void {
    const [at, key] = [this.fleet.replicas.get(replica), this.names.own(adapter)];
    if (at === undefined || key === undefined) return;
    this.actions.done(at, key);
    at.forget(key);
    at.believe(key);
  }

  // What is known

  view(replica: string, _now: number): ReplicaView | undefined {
    const known = this.fleet.replicas.get(replica);
    if (known === undefined) return undefined;
    const { state, base, inFlight, queueTokens } = known;
    const pool = this.fleet.pools.get(base ?? '');
    const isActive = pool?.active.get(replica) === known;
    const isIdle = state === 'draining' && inFlight === 0 && this.planner.onlyAt(known).length === 0;
    const bound = isActive ? pool.boundFor(known, pool.inFlight + 1) : 0;
    return { replica, state, base, inFlight, bound, queueTokens, adapters: [...known.held.keys()], isIdle };
  }

  replicas(): readonly string[] {
    return [...this.fleet.replicas.keys()];
  }
}
