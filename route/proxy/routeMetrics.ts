/** What a router does, as Prometheus reads it. Everything is counted elsewhere and read when somebody asks. */
import { Counter, Gauge, Registry } from 'prom-client';
import type { Routing } from '../policy.js';
import type { Fleet } from './fleet.js';
import type { Forwarder } from './forward.js';
import type { Placement } from './placement.js';

export interface RouterParts {
  readonly fleet: Fleet;
  readonly forwarder: Forwarder;
  readonly placement: Placement;
  readonly routing: Routing;
  /** Requests by path, method and status. */
  readonly requests: ReadonlyMap<string, number>;
  readonly active: () => number;
  readonly now: () => number;
}

type Row = readonly [labels: Readonly<Record<string, string>>, value: number];

export function metricsOf(parts: RouterParts): Registry {
  const { fleet, forwarder, placement, routing } = parts;
  const registry = new Registry();
  const describe = (
    Kind: typeof Gauge | typeof Counter,
    name: string,
    help: string,
    rows: () => readonly Row[],
  ): void => {
    const labelNames = LABELS[name] ?? [];
    new Kind({
      ...{ name, help, labelNames, registers: [registry] },
      collect() {
        this.reset();
        for (const [labels, value] of rows()) this.inc(labels, value);
      },
    });
  };
  const replicas = (of: (id: string) => number): readonly Row[] =>
    [...fleet.replicas.keys()].map((replica) => [{ replica }, of(replica)]);
  const view = (id: string) => routing.view(id, parts.now());
  const one = (value: number): readonly Row[] => [[{}, value]];

  describe(Gauge, 'tilewright:route_replica_ready', 'Whether a replica gets requests.', () =>
    replicas((id) => Number(fleet.replicas.get(id)!.takesRequests)),
  );
  describe(Gauge, 'tilewright:route_in_flight', 'Requests that are under way at a replica.', () =>
    replicas((id) => view(id)?.inFlight ?? 0),
  );
  describe(Gauge, 'tilewright:route_bound', 'Requests that a replica may have now.', () =>
    replicas((id) => view(id)?.bound ?? 0),
  );
  describe(Gauge, 'tilewright:route_adapters', 'Adapters that a replica holds.', () =>
    replicas((id) => view(id)?.adapters.length ?? 0),
  );
  describe(Gauge, 'tilewright:route_active', 'Requests that are being answered.', () => one(parts.active()));
  describe(Gauge, 'tilewright:route_waiting', 'Requests that wait for a replica or an adapter.', () =>
    one(forwarder.waiting),
  );
  describe(Counter, 'tilewright:route_attempts_total', 'Requests that were sent to a replica, by outcome.', () =>
    [...forwarder.counts.byReplica].flatMap(([replica, counts]) =>
      [...counts].map(([outcome, value]): Row => [{ replica, outcome }, value]),
    ),
  );
  describe(Counter, 'tilewright:route_retries_total', 'Requests that were asked of another replica.', () =>
    one([...forwarder.counts.retries.values()].reduce((sum, each) => sum + each, 0)),
  );
  describe(Counter, 'tilewright:route_adapter_requests_total', 'Requests of adapters by what the replica had.', () => [
    [{ found: 'held' }, forwarder.counts.held],
    [{ found: 'missed' }, forwarder.counts.missed],
  ]);
  describe(Counter, 'tilewright:route_spills_total', 'Requests beside the holders of their adapter.', () =>
    one(forwarder.counts.spilled),
  );
  describe(Counter, 'tilewright:route_loads_total', 'Loads of adapters by replicas.', () => [
    [{ outcome: 'loaded' }, placement.counts.loads],
    [{ outcome: 'failed' }, placement.counts.failedLoads],
  ]);
  describe(Counter, 'tilewright:route_unloads_total', 'Adapters that replicas were told to drop.', () =>
    one(placement.counts.unloads),
  );
  describe(Counter, 'tilewright:route_swaps_total', 'Names that went on to their next revision.', () =>
    one(placement.counts.swaps),
  );
  describe(Counter, 'http_requests_total', 'Requests by endpoint, method and status; 499: the client had gone.', () =>
    [...parts.requests].map(([key, value]): Row => {
      const [handler = '', method = '', status = ''] = key.split(' ');
      return [{ handler, method, status }, value];
    }),
  );
  return registry;
}

const LABELS: Readonly<Record<string, readonly string[]>> = {
  'tilewright:route_replica_ready': ['replica'],
  'tilewright:route_in_flight': ['replica'],
  'tilewright:route_bound': ['replica'],
  'tilewright:route_adapters': ['replica'],
  'tilewright:route_attempts_total': ['replica', 'outcome'],
  'tilewright:route_adapter_requests_total': ['found'],
  'tilewright:route_loads_total': ['outcome'],
  http_requests_total: ['handler', 'method', 'status'],
};
