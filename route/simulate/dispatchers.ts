/** Who decides in a simulated fleet: the router's policy, what it is compared with, and an oracle. */
import { boundOf } from '../bound.js';
import type { AdapterKey, PolicySettings, Route, RouteRequest, Ticket } from '../policy.js';
import { Ring } from '../ring.js';
import { Router } from '../router.js';
import type { Dispatcher } from './fleet.js';
import { Random } from './random.js';
import type { ReplicaConfig, SimReplica, SimRequest } from './replica.js';

const BASE = 'base';
export const nodeName = (i: number): string => `replica-${i}`;
const adapterName = (adapter: number): string => `adapter-${adapter}`;

/** The policy that runs in front of real replicas. It knows what reports say and what it has sent. */
export class PolicyDispatcher implements Dispatcher {
  readonly name: string;
  readonly router: Router;
  private readonly replicas: readonly SimReplica[];
  private readonly config: ReplicaConfig;
  private readonly tickets = new Map<number, Ticket>();
  private readonly keys: AdapterKey[] = [];
  private readonly numbers = new Map<string, number>();

  constructor(
    replicas: readonly SimReplica[],
    config: ReplicaConfig,
    settings: Partial<PolicySettings>,
    name = 'policy',
  ) {
    this.name = name;
    this.replicas = replicas;
    this.config = config;
    this.router = new Router(settings);
    replicas.forEach((_, i) => {
      this.numbers.set(nodeName(i), i);
      this.router.join(nodeName(i), 0);
    });
    this.report(0);
  }

  private key(adapter: number): AdapterKey {
    let key = this.keys[adapter];
    if (key === undefined) {
      this.keys[adapter] = key = { base: BASE, name: adapterName(adapter), revision: `hash-${adapter}` };
      this.router.announce(key, 0);
    }
    return key;
  }

  choose(sim: SimRequest, now: number): number {
    const key = sim.adapter < 0 ? undefined : this.key(sim.adapter);
    const request: RouteRequest = { base: BASE, adapter: key?.name, tokens: sim.prompt };
    const route = this.router.choose(request, now) as Route;
    this.tickets.set(sim.id, this.router.begin(route, request, now));
    return this.numbers.get(route.replica)!;
  }

  onFirst(sim: SimRequest, now: number): void {
    const ticket = this.tickets.get(sim.id)!;
    this.router.firstToken(ticket, now);
  }

  onEnd(sim: SimRequest, now: number): void {
    const ticket = this.tickets.get(sim.id)!;
    this.tickets.delete(sim.id);
    this.router.finish(ticket, 'answered', now, sim.generated);
  }

  report(now: number): void {
    this.replicas.forEach((replica, i) => {
      const adapters = replica
        .residents()
        .map(({ adapter, requests }) => ({ name: adapterName(adapter), revision: `hash-${adapter}`, requests }));
      const { running, queueTokens } = replica;
      const { slots, maxRunning } = this.config;
      const waiting = replica.waiting.length;
      const report = { base: BASE, adapters, slots, maxRunning, running, waiting, queueTokens };
      this.router.report(nodeName(i), report, now);
    });
  }

  plan(now: number): { replica: number; adapter: number; isLoad: boolean }[] {
    const actions = this.router.plan(now);
    return actions.flatMap((action) => {
      if (action.kind === 'swap') return [];
      const [replica, adapter] = [this.numbers.get(action.replica)!, Number(action.adapter.name.slice(8))];
      if (action.kind === 'unload') this.router.unloaded(action.replica, action.adapter, now);
      return [{ replica, adapter, isLoad: action.kind === 'load' }];
    });
  }

  onLoaded(replica: number, adapter: number, now: number): void {
    this.router.loaded(nodeName(replica), this.key(adapter), now);
  }
}

const leastBy = <T extends object | number>(values: readonly T[], measure: (value: T) => number): T => {
  let best = values[0]!;
  let least = measure(best);
  for (const value of values) {
    const each = measure(value);
    if (each < least) [best, least] = [value, each];
  }
  return best;
};

/** Others see the replicas as they are at this moment, which flatters them. */
export type Baseline = 'random' | 'least loaded' | 'two choices' | 'ring' | 'bounded ring' | 'where it runs' | 'oracle';

export const BASELINES: readonly Baseline[] = [
  'random',
  'least loaded',
  'two choices',
  'ring',
  'bounded ring',
  'where it runs',
  'oracle',
];

export function baseline(
  kind: Baseline,
  replicas: readonly SimReplica[],
  settings: { readonly epsilon: number; readonly points: number; readonly seed: number },
): Dispatcher {
  const random = new Random(settings.seed);
  const all = replicas.map((_, i) => i);
  const inFlight = (i: number): number => replicas[i]!.inFlight;
  const ring = new Ring(settings.points);
  for (const i of all) ring.add(nodeName(i));
  const numbers = new Map(all.map((i) => [nodeName(i), i]));
  const walk = ({ adapter, id }: SimRequest): number[] =>
    ring.walk(adapter < 0 ? `request-${id}` : adapterName(adapter)).map((name) => numbers.get(name)!);
  const leastOf = (from: readonly number[]): number => leastBy(from, inFlight);
  const rules: Readonly<Record<Baseline, (request: SimRequest, now: number) => number>> = {
    random: () => random.below(all.length),
    'least loaded': () => leastOf(all),
    'two choices': () => leastOf([random.below(all.length), random.below(all.length)]),
    ring: (request) => walk(request)[0]!,
    'bounded ring': (request) => {
      const items = all.reduce((sum, i) => sum + inFlight(i), 0) + 1;
      const bound = boundOf(settings.epsilon, items, 1 / all.length);
      return walk(request).find((i) => inFlight(i) < bound)!;
    },
    'where it runs': (request) => {
      const { adapter } = request;
      const having = all.filter((i) => adapter < 0 || replicas[i]!.slots.has(adapter));
      if (having.length > 0) return leastOf(having);
      const free = all.filter((i) => replicas[i]!.freeSlots > 0);
      return leastOf(free.length > 0 ? free : all);
    },
    oracle: (request, now) => leastBy(all, (i) => replicas[i]!.firstTokenIn(request.prompt, now)),
  };
  return { name: kind, choose: rules[kind] };
}
