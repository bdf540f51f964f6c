/** What a router knows, for administrators: replicas, adapters, counts. */
import { type AdapterBook, heldName } from './adapterBook.js';
import type { RouterParts } from './routeMetrics.js';

export function statusOf(parts: RouterParts, book: AdapterBook): Readonly<Record<string, unknown>> {
  const { fleet, forwarder, placement, routing } = parts;
  const now = parts.now();
  return {
    replicas: [...fleet.replicas.values()].map((replica) => {
      const view = routing.view(replica.id, now);
      return {
        name: replica.id,
        url: replica.link.url.origin,
        state: replica.isDrained && replica.phase === 'ready' ? 'draining' : replica.phase,
        why: replica.why,
        base: replica.base ?? null,
        in_flight: view?.inFlight ?? 0,
        bound: view?.bound ?? 0,
        running: replica.metrics?.running ?? null,
        waiting: replica.metrics?.waiting ?? null,
        adapters: view?.adapters.map(heldName) ?? [],
        // Draining only: it can be stopped.
        is_idle: view?.isIdle ?? replica.underWay.size === 0,
      };
    }),
    adapters: [...book.names].map((name) => {
      const { base } = book.configOf(name)!;
      return {
        name,
        base,
        revision: routing.resolve(name, base)?.revision ?? null,
        next: book.sourceOf(name)?.revision ?? null,
        problem: book.problemOf(name) ?? null,
      };
    }),
    requests: {
      active: parts.active(),
      waiting: forwarder.waiting,
      held: forwarder.counts.held,
      missed: forwarder.counts.missed,
      spilled: forwarder.counts.spilled,
      retries: Object.fromEntries(forwarder.counts.retries),
    },
    placement: { ...placement.counts },
  };
}
