import { describe, expect, it } from 'vitest';
import type { Action, AdapterKey, ReplicaReport, Route, RouteRequest, Ticket } from '../../route/policy.js';
import { POLICY_LIMITS } from '../../route/policy.js';
import { Router } from '../../route/router.js';
import { Random } from '../../route/simulate/random.js';

const key = (name: string, revision = `${name}-1`): AdapterKey => ({ base: 'base', name, revision });
const report = (adapters: readonly AdapterKey[] = [], more: Partial<ReplicaReport> = {}): ReplicaReport => ({
  ...{ base: 'base', adapters, slots: 8, maxRunning: 16, running: 0, waiting: 0, queueTokens: 0 },
  ...more,
});
const nodes = (count: number): string[] => Array.from({ length: count }, (_, i) => `r${i}`);
const started = (count: number, router = new Router(), more: Partial<ReplicaReport> = {}): Router => {
  for (const node of nodes(count)) {
    router.join(node, 0);
    router.report(node, report([], more), 0);
  }
  return router;
};
const choose = (router: Router, request: Partial<RouteRequest>, now = 0): Route => {
  const found = router.choose({ tokens: 100, ...request }, now);
  if (found.kind !== 'route') throw new Error(found.why);
  return found;
};
const send = (router: Router, adapter: string | undefined, now = 0): Ticket =>
  router.begin(choose(router, { adapter }), { adapter, tokens: 100 }, now);
/** Does what is planned until nothing is. */
const settle = (router: Router, now: number, done: Action[] = []): Action[] => {
  for (let round = 0; round < 100; round++) {
    const actions = router.plan(now);
    done.push(...actions);
    for (const action of actions) {
      if (action.kind === 'load') router.loaded(action.replica, action.adapter, now);
      if (action.kind === 'unload') router.unloaded(action.replica, action.adapter, now);
    }
    if (actions.length === 0) return done;
  }
  throw new Error('plans without end');
};
const holdersOf = (router: Router, adapter: AdapterKey): string[] =>
  router
    .replicas()
    .filter((each) => router.view(each, 0)!.adapters.some(({ revision }) => revision === adapter.revision));

describe('a choice', () => {
  it('goes where the adapter is, again and again', () => {
    const router = started(8);
    router.announce(key('a'), 0);
    const first = choose(router, { adapter: 'a' });
    expect(first).toMatchObject({ isHeld: false, isSpill: false, adapter: key('a') });
    router.finish(router.begin(first, { adapter: 'a', tokens: 1 }, 0), 'answered', 1);
    expect(choose(router, { adapter: 'a' })).toMatchObject({ replica: first.replica, isHeld: true });
  });

  it('never takes a replica above its bound, whatever the mix', () => {
    for (const epsilon of [0.1, 0.25, 1]) {
      const router = started(7, new Router({ epsilon, maxOversubscription: 1000, freePart: 0 }));
      const random = new Random(3);
      for (let i = 0; i < 40; i++) router.announce(key(`a${i}`), 0);
      const open: Ticket[] = [];
      for (let i = 0; i < 3000; i++) {
        const adapter = random.next() < 0.2 ? undefined : `a${Math.floor(40 * random.next() ** 3)}`;
        const route = choose(router, { adapter, prefix: random.next() < 0.3 ? `p${random.below(5)}` : undefined });
        const { bound, inFlight } = router.view(route.replica, i)!;
        expect(inFlight).toBeLessThan(bound);
        expect(bound).toBe(Math.ceil(((1 + epsilon) * (open.length + 1)) / 7 - 1e-9));
        open.push(router.begin(route, { adapter, tokens: random.below(2000) }, i));
        while (open.length > 200 || (open.length > 0 && random.next() < 0.45))
          router.finish(open.splice(random.below(open.length), 1)[0]!, 'answered', i);
        if (i % 100 === 0) router.plan(i * 100);
      }
    }
  });

  it('counts what it has sent at once, and once', () => {
    const router = started(4);
    const seen = new Set(Array.from({ length: 4 }, () => send(router, undefined)).map(({ replica }) => replica));
    expect(seen.size).toBe(4);
    const ticket = send(router, undefined);
    for (let i = 0; i < 3; i++) router.finish(ticket, 'answered', 1);
    expect(router.replicas().map((each) => router.view(each, 1)!.inFlight)).toEqual([1, 1, 1, 1]);
  });

  it('takes a prompt for done as far as the replica comes in such a time, and no further', () => {
    const router = started(2);
    const begin = (replica: string, tokens: number, now: number): Ticket =>
      router.begin(choose(router, { among: new Set([replica]) }, now), { tokens }, now);
    // 1,000 tokens take 100 ms.
    for (const [replica, from] of [
      ['r0', 0],
      ['r1', 1000],
    ] as const) {
      const ticket = begin(replica, 1000, from);
      router.firstToken(ticket, from + 100);
      router.finish(ticket, 'answered', from + 200);
      // What fails shows no pace.
      router.finish(begin(replica, 100_000, from + 300), 'failed', from + 301);
    }
    begin('r0', 2000, 2000);
    begin('r1', 1200, 2100);
    // 800 tokens of 2,000 are left, and 1,000 of 1,200.
    expect(choose(router, {}, 2120).replica).toBe('r0');
    begin('r0', 300, 2180);
    // Nothing is known to be done of who stands behind the first one, which is late.
    expect(choose(router, {}, 60_000).replica).toBe('r1');
  });

  it('does not go where the adapter had to make room for others', () => {
    const router = started(2, new Router(), { slots: 2 });
    for (const name of ['a', 'b', 'c']) router.announce(key(name), 0);
    const at = (adapter: string, replica: string, now: number): void => {
      const request = { adapter, among: new Set([replica]), tokens: 1 };
      router.finish(router.begin(choose(router, request), request, now), 'answered', now);
    };
    for (const replica of ['r0', 'r1']) for (const name of ['a', 'b']) at(name, replica, 0);
    at('a', 'r0', 1);
    at('c', 'r0', 2);
    expect(choose(router, { adapter: 'b' })).toMatchObject({ replica: 'r1' });
    expect(choose(router, { adapter: 'c' })).toMatchObject({ replica: 'r0' });
    expect(choose(router, { adapter: 'a', among: new Set(['r0']) })).toMatchObject({ isHeld: true });
  });

  it('keeps off replicas whose slots are all in use', () => {
    const router = started(2, new Router({ maxOversubscription: 100 }), { slots: 1 });
    for (const name of ['a', 'b', 'c']) router.announce(key(name), 0);
    const [a, b] = [send(router, 'a'), send(router, 'b')];
    expect(a.replica).not.toBe(b.replica);
    router.finish(a, 'answered', 1);
    expect(choose(router, { adapter: 'c' }).replica).toBe(a.replica);
  });

  it('keeps prompts that begin alike together, within bounds', () => {
    const router = started(8, new Router({ freePart: 0.25 }));
    const replicas = Array.from({ length: 4 }, () => {
      const route = choose(router, { prefix: 'system prompt', prefixTokens: 5000 });
      router.begin(route, { tokens: 100 }, 0);
      return route.replica;
    });
    expect(new Set(replicas).size).toBe(1);
    expect(choose(router, { prefix: 'system prompt', prefixTokens: 5000 }).replica).not.toBe(replicas[0]);
  });

  it('keeps to the replicas that a caller allows', () => {
    const router = started(4);
    expect(choose(router, { among: new Set(['r2']) }).replica).toBe('r2');
    expect(choose(router, { except: new Set(['r0', 'r1', 'r3']) }).replica).toBe('r2');
    expect(router.choose({ tokens: 1, among: new Set(['r1']), except: new Set(['r1']) }, 0)).toEqual({
      kind: 'refusal',
      why: 'no replica',
    });
  });

  it('says why nobody can answer', () => {
    const router = new Router({ maxOversubscription: 1 });
    expect(router.choose({ tokens: 1 }, 0)).toMatchObject({ why: 'no replica' });
    router.announce(key('a'), 0);
    expect(router.choose({ adapter: 'a', tokens: 1 }, 0)).toMatchObject({ why: 'no replica' });
    expect(router.choose({ adapter: 'b', tokens: 1 }, 0)).toMatchObject({ why: 'no such adapter' });
    started(1, router, { maxRunning: 2 });
    expect(router.choose({ base: 'other', tokens: 1 }, 0)).toMatchObject({ why: 'no such model' });
    send(router, 'a');
    send(router, 'a');
    expect(router.choose({ adapter: 'a', tokens: 1 }, 0)).toMatchObject({ why: 'full' });
  });

  it('keeps bases apart', () => {
    const router = started(2);
    router.join('other', 0);
    router.report('other', report([], { base: 'other' }), 0);
    router.announce({ base: 'other', name: 'b', revision: 'x' }, 0);
    expect(choose(router, { adapter: 'b' }).replica).toBe('other');
    expect(choose(router, { base: 'base' }).replica).not.toBe('other');
    expect(router.choose({ tokens: 1 }, 0)).toMatchObject({ why: 'no such model' });
  });
});

describe('replicas', () => {
  it('that drain get nothing, and hand over before they can stop', () => {
    const router = started(4);
    router.announce(key('a'), 0);
    const ticket = send(router, 'a');
    const { replica } = ticket;
    router.drain(replica, 1);
    for (let i = 0; i < 40; i++) expect(send(router, i % 2 === 0 ? 'a' : undefined).replica).not.toBe(replica);
    const other = started(4);
    other.announce(key('a'), 0);
    other.loaded('r1', key('a'), 0);
    other.drain('r1', 1);
    expect(other.view('r1', 1)!.isIdle).toBe(false);
    expect(other.plan(1)).toMatchObject([{ kind: 'load', why: 'drain', adapter: key('a') }]);
    expect(other.plan(2)).toEqual([]);
    other.join('r1', 3);
    other.drain('r1', 3);
    settle(other, 200_000);
    expect(other.view('r1', 4)!.isIdle).toBe(true);
    expect(router.view(replica, 1)!.isIdle).toBe(false);
  });

  it('that lie about what they hold are found out, once', () => {
    const router = started(4);
    router.announce(key('a'), 0);
    router.report('r1', report([key('a')]), 1);
    const route = choose(router, { adapter: 'a' });
    expect(route).toMatchObject({ replica: 'r1', isHeld: true });
    router.finish(router.begin(route, { adapter: 'a', tokens: 1 }, 2), 'missing', 3);
    router.report('r1', report([key('a')]), 4);
    const next = choose(router, { adapter: 'a', except: new Set(['r1']) });
    expect(next.replica).not.toBe('r1');
    expect(choose(router, { adapter: 'a' }).isHeld).toBe(false);
    router.loaded('r1', key('a'), 5);
    expect(choose(router, { adapter: 'a' })).toMatchObject({ replica: 'r1', isHeld: true });
  });

  it('that lose an adapter are known by their next report, but for what is just loaded', () => {
    const router = started(2);
    router.announce(key('a'), 0);
    router.loaded('r1', key('a'), 1000);
    router.report('r1', report(), 1500);
    expect(holdersOf(router, key('a'))).toEqual(['r1']);
    router.report('r1', report(), 9000);
    expect(holdersOf(router, key('a'))).toEqual([]);
  });

  it('that leave and come back take what they had, and old requests end quietly', () => {
    const router = started(3);
    router.announce(key('a'), 0);
    const ticket = send(router, 'a');
    router.leave(ticket.replica, 1);
    expect(choose(router, { adapter: 'a' }).replica).not.toBe(ticket.replica);
    router.join(ticket.replica, 2);
    router.report(ticket.replica, report([key('a')]), 2);
    router.finish(ticket, 'failed', 3);
    expect(router.view(ticket.replica, 3)!.inFlight).toBe(0);
    expect(choose(router, { adapter: 'a' }).replica).toBe(ticket.replica);
  });
});

describe('demand', () => {
  it('gives a hot adapter more holders at once, and takes them after quiet periods', () => {
    const router = started(8, new Router({ periodMs: 1000, freePart: 0, maxOversubscription: 1000 }));
    for (const name of ['hot', 'b', 'c', 'd']) router.announce(key(name), 0);
    const tickets = Array.from({ length: 200 }, (_, i) => send(router, ['hot', 'hot', 'hot', 'b', 'c', 'd'][i % 6]));
    for (const ticket of tickets) router.finish(ticket, 'answered', 1);
    settle(router, 0);
    settle(router, 1000);
    expect(holdersOf(router, key('hot')).length).toBeGreaterThanOrEqual(7);
    // All slots are full then, so adapters that nobody asks for are unloaded.
    const loads = settle(router, 2000).filter(({ kind }) => kind === 'load');
    expect(loads).toEqual([]);
  });
});

describe('revisions', () => {
  const [old, next] = [key('a', 'old'), key('a', 'next')];
  const holding = (count: number): Router => {
    const router = started(4);
    router.announce(old, 0);
    for (const node of nodes(count)) router.loaded(node, old, 0);
    return router;
  };

  it('swap when every holder has the next one, and not before', () => {
    const router = holding(3);
    router.revise(next, 1);
    const loads = router.plan(1);
    expect(loads.map((each) => each.kind === 'load' && [each.replica, each.adapter.revision, each.why])).toEqual(
      nodes(3).map((node) => [node, 'next', 'revision']),
    );
    for (const node of ['r0', 'r1']) {
      router.loaded(node, next, 2);
      expect(router.plan(2)).toEqual([]);
      expect(choose(router, { adapter: 'a' }).adapter).toEqual(old);
    }
    const running = router.begin(choose(router, { adapter: 'a' }), { adapter: 'a', tokens: 1 }, 2);
    router.loaded('r2', next, 3);
    const [swap, ...unloads] = router.plan(3);
    expect(swap).toEqual({ kind: 'swap', from: old, to: next });
    expect(choose(router, { adapter: 'a' }).adapter).toEqual(next);
    // Where a request of the old one is under way, it stays.
    expect(running.adapter).toEqual(old);
    expect(unloads).toHaveLength(2);
    expect(unloads).not.toContainEqual(expect.objectContaining({ replica: running.replica }));
    router.finish(running, 'answered', 4);
    expect(router.plan(4)).toEqual([{ kind: 'unload', replica: running.replica, adapter: old }]);
  });

  it('wait for no replica that has left, and survive one that comes', () => {
    const router = holding(2);
    router.revise(next, 1);
    router.plan(1);
    router.loaded('r0', next, 2);
    router.leave('r1', 3);
    expect(router.plan(3)).toContainEqual({ kind: 'swap', from: old, to: next });
    router.join('r1', 4);
    router.report('r1', report([old]), 4);
    for (let i = 0; i < 20; i++) expect(choose(router, { adapter: 'a' }).adapter).toEqual(next);
    expect(router.plan(5)).toContainEqual({ kind: 'unload', replica: 'r1', adapter: old });
  });

  it('that cannot be loaded change nothing, and are tried again later', () => {
    const router = holding(1);
    router.revise(next, 1);
    router.plan(1);
    router.loadFailed('r0', next, 2);
    expect(router.plan(3)).toEqual([]);
    expect(choose(router, { adapter: 'a' }).adapter).toEqual(old);
    expect(router.plan(60_000)).toMatchObject([{ kind: 'load', adapter: next }]);
    router.revise(old, 60_001);
    expect(router.plan(200_000)).toEqual([]);
    expect(router.resolve('a')).toEqual(old);
  });

  it('follow each other, and names that are withdrawn are unloaded', () => {
    const router = holding(1);
    const third = key('a', 'third');
    router.revise(next, 1);
    settle(router, 1);
    router.revise(third, 2);
    settle(router, 2);
    expect(holdersOf(router, third)).toEqual(['r0']);
    expect([...holdersOf(router, old), ...holdersOf(router, next)]).toEqual([]);
    router.withdraw('base', 'a', 3);
    expect(router.choose({ adapter: 'a', tokens: 1 }, 3)).toMatchObject({ why: 'no such adapter' });
    settle(router, 4);
    expect(holdersOf(router, third)).toEqual([]);
    expect(router.resolve('a')).toBeUndefined();
  });
});

describe('a new router', () => {
  it('decides as the old one after one round of reports, in any order', () => {
    const old = started(6);
    const names = Array.from({ length: 30 }, (_, i) => `a${i}`);
    for (const name of names) old.announce(key(name), 0);
    for (const name of names) old.finish(send(old, name), 'answered', 1);
    const reports = old.replicas().map((each) => [each, old.view(each, 1)!.adapters] as const);
    for (const order of [reports, [...reports].reverse()]) {
      const router = new Router();
      for (const [node, adapters] of order) {
        router.join(node, 2);
        router.report(node, report(adapters), 2);
      }
      for (const adapter of names) {
        const { replica, isHeld, adapter: asked } = choose(router, { adapter });
        expect({ replica, isHeld, asked }).toEqual({
          replica: choose(old, { adapter }).replica,
          isHeld: true,
          asked: key(adapter),
        });
      }
    }
  });
});

describe('reports of anybody', () => {
  const hostile = (value: unknown): ReplicaReport => value as ReplicaReport;

  it('change nothing where they make no sense', () => {
    const router = started(2);
    for (const value of [null, undefined, 7, 'x', [], {}, { base: 7 }, { base: '' }, { base: 'x'.repeat(1 << 16) }])
      router.report('r0', hostile(value), 1);
    router.report('nobody', report(), 1);
    expect(router.view('r0', 1)).toMatchObject({ base: 'base', inFlight: 0, queueTokens: 0 });
  });

  it('count as what they can be at most', () => {
    const router = started(2);
    const numbers = { slots: Infinity, maxRunning: NaN, running: -5, waiting: 1e300, queueTokens: '9' };
    router.report('r0', hostile({ ...report(), ...numbers }), 1);
    const view = router.view('r0', 1)!;
    expect(view.inFlight).toBe(POLICY_LIMITS.requests);
    expect(view.queueTokens).toBe(0);
    // It says that it has all the work of the world: the other one gets what comes.
    expect(choose(router, {}).replica).toBe('r1');
  });

  it('name what they like: nothing is believed that is no name, and others keep theirs', () => {
    const router = started(2);
    const odd = ['__proto__', 'constructor', '\0', '\u{1f600}', '../../etc', 'a\nb', ' '];
    const adapters = [
      ...odd.map((name) => ({ name, revision: '__proto__' })),
      ...[null, 7, {}, { name: 'x' }, { name: 7, revision: 'y' }, { name: '', revision: 'y' }],
      { name: 'x'.repeat(4096), revision: 'y' },
    ];
    router.report('r0', hostile({ ...report(), adapters }), 1);
    expect(router.view('r0', 1)!.adapters.map(({ name }) => name)).toEqual(odd);
    for (const adapter of odd) expect(choose(router, { adapter })).toMatchObject({ replica: 'r0', isHeld: true });
  });

  it('are taken in part where they are huge, and forgotten when nobody holds what they name', () => {
    const router = started(2);
    const adapters = Array.from({ length: POLICY_LIMITS.reported + 10 }, (_, i) => key(`n${i}`));
    router.report('r0', report(adapters), 1);
    expect(router.view('r0', 1)!.adapters).toHaveLength(POLICY_LIMITS.reported);
    expect(router.resolve('n0')).toEqual(key('n0'));
    router.report('r0', report(), 10);
    router.plan(10);
    expect(router.resolve('n0')).toBeUndefined();
  });

  it('of another revision change nobody’s name that was announced', () => {
    const router = started(3);
    router.announce(key('a', 'true'), 0);
    for (const node of nodes(3)) router.report(node, report([key('a', 'forged')]), 1);
    expect(choose(router, { adapter: 'a' })).toMatchObject({ adapter: { revision: 'true' }, isHeld: false });
    for (let i = 0; i < 300; i++) router.report('r0', report([key('a', `forged-${i}`)]), 10_000 + i);
    expect(router.view('r0', 0)!.adapters.length).toBeLessThanOrEqual(1);
  });
});
