import { describe, expect, it } from 'vitest';
import type { AdapterKey, ReplicaReport, Route } from '../../route/policy.js';
import { Router } from '../../route/router.js';

const report = (adapters: readonly string[] = [], more: Partial<ReplicaReport> = {}): ReplicaReport => ({
  base: 'base',
  adapters: adapters.map((name) => ({ name, revision: `${name}-1` })),
  slots: 8,
  maxRunning: 16,
  running: 0,
  waiting: 0,
  queueTokens: 0,
  ...more,
});
const key = (name: string, revision = `${name}-1`): AdapterKey => ({ base: 'base', name, revision });
const started = (count: number, router = new Router()): Router => {
  for (let i = 0; i < count; i++) {
    router.join(`r${i}`, 0);
    router.report(`r${i}`, report(), 0);
  }
  return router;
};
const route = (router: Router, adapter: string | undefined, more: object = {}): Route => {
  const found = router.choose({ adapter, tokens: 100, ...more }, 0);
  if (found.kind !== 'route') throw new Error(found.why);
  return found;
};

describe('a router', () => {
  it('sends an adapter where it is, again and again', () => {
    const router = started(8);
    router.announce(key('a'), 0);
    const first = route(router, 'a');
    expect(first).toMatchObject({ isHeld: false, isSpill: false, adapter: key('a') });
    router.finish(router.begin(first, { adapter: 'a', tokens: 1 }, 0), 'answered', 1);
    expect(route(router, 'a')).toMatchObject({ replica: first.replica, isHeld: true });
  });
});
