/**
 * Discrete events: requests arrive, a dispatcher sends each to a replica, replicas report from time to time. The clock
 * is virtual; equal inputs give equal results.
 */
import { Events } from './events.js';
import { type ReplicaConfig, SimReplica, type SimRequest } from './replica.js';

/** Who decides. It sees replicas as a router does, or as they are. */
export interface Dispatcher {
  readonly name: string;
  /** Number of the replica that takes the request. */
  choose(request: SimRequest, now: number): number;
  onFirst?(request: SimRequest, now: number): void;
  onEnd?(request: SimRequest, now: number): void;
  /** Every `reportMs`. */
  report?(now: number): void;
  /** After each round of reports: adapters to load ahead, and to unload. */
  plan?(now: number): readonly { readonly replica: number; readonly adapter: number; readonly isLoad: boolean }[];
  /** What was loaded ahead is there. */
  onLoaded?(replica: number, adapter: number, now: number): void;
}

export interface FleetConfig {
  readonly replicas: number;
  readonly replica: ReplicaConfig;
  readonly reportMs: number;
}

/** Replicas in flight are looked at so often. */
const LOOK_MS = 250;

export interface FleetRun {
  readonly requests: readonly SimRequest[];
  readonly replicaOf: Int32Array;
  readonly loads: number;
  /** Largest over mean number of requests in flight, at each look. */
  readonly balance: readonly number[];
  readonly meanInFlight: number;
  readonly endMs: number;
}

export interface Arrival {
  readonly arrivalMs: number;
  readonly prompt: number;
  readonly generated: number;
  readonly adapter: number;
  readonly session: number;
}

/** `make` gets the replicas of the run, in order. Arrivals are in order of time. */
export function simulateFleet(
  config: FleetConfig,
  arrivals: readonly Arrival[],
  make: (replicas: readonly SimReplica[]) => Dispatcher,
): FleetRun {
  const events = new Events<number>();
  const requests = arrivals.map((each, id): SimRequest => ({ ...each, id, firstMs: -1, endMs: -1, wasHit: false }));
  let left = requests.length;
  let active = 0;
  const isShared = config.replica.sharedTimes !== undefined;
  const replicas: readonly SimReplica[] = Array.from({ length: config.replicas }, (_, i) => {
    return new SimReplica(config.replica, {
      onFirst: (request, now) => dispatcher.onFirst?.(request, now),
      onEnd: (request, now) => {
        left--;
        dispatcher.onEnd?.(request, now);
      },
      wake: (at) => events.add(at, i),
      onActive: (isActive, now) => {
        active += isActive ? 1 : -1;
        if (isShared) for (const each of replicas) each.share(Math.max(1, active), now);
      },
    });
  });
  const dispatcher = make(replicas);
  const replicaOf = new Int32Array(requests.length).fill(-1);
  const balance: number[] = [];
  let inFlightSum = 0;
  let [next, reportAt, lookAt, now] = [0, 0, 0, 0];
  const loading = new Events<{ readonly replica: number; readonly adapter: number }>();
  const lastArrival = requests.at(-1)?.arrivalMs ?? 0;
  while (left > 0) {
    const arrivalAt = requests[next]?.arrivalMs ?? Infinity;
    now = Math.min(arrivalAt, events.nextAt, reportAt, lookAt, loading.nextAt);
    if (now === events.nextAt) replicas[events.take()!]!.advance(now);
    else if (now === loading.nextAt) {
      const { replica, adapter } = loading.take()!;
      dispatcher.onLoaded?.(replica, adapter, now);
    } else if (now === reportAt) {
      dispatcher.report?.(now);
      for (const { replica, adapter, isLoad } of dispatcher.plan?.(now) ?? []) {
        if (!isLoad) replicas[replica]!.unload(adapter);
        else if (replicas[replica]!.load(adapter, now))
          loading.add(Math.max(now, replicas[replica]!.slots.get(adapter)!.readyMs), { replica, adapter });
      }
      reportAt += config.reportMs;
    } else if (now === lookAt) {
      // While requests arrive: an end in which fleets run empty says nothing of balance.
      if (now < lastArrival) {
        const counts = replicas.map(({ inFlight }) => inFlight);
        const mean = counts.reduce((sum, each) => sum + each, 0) / counts.length;
        if (mean >= 1) balance.push(Math.max(...counts) / mean);
        inFlightSum += mean;
      }
      lookAt += LOOK_MS;
    } else {
      const request = requests[next]!;
      const replica = dispatcher.choose(request, now);
      replicaOf[next++] = replica;
      replicas[replica]!.take(request, now);
    }
  }
  const loads = replicas.reduce((sum, each) => sum + each.loads, 0);
  const looks = Math.max(1, Math.floor(lastArrival / LOOK_MS));
  return { requests, replicaOf, loads, balance, meanInFlight: inFlightSum / looks, endMs: now };
}
