/**
 * Messages between replicas: none is lost, none comes from or goes to a replica that is gone, and memory is kept for
 * those that read it.
 */
import { afterEach, expect, it, vi } from 'vitest';
import { SiblingRelay, Siblings, type SiblingWord } from '../../../driver/devices/siblings.js';
import { isUnshared } from '../../../runtime/cuda/shareWeights.js';

const shared = { shared: { handle: Uint8Array.of(1), offset: 0 } };
const offer = (stage = 0): SiblingWord => ({ kind: 'offer', stage, offer: shared });

/** Members whose messages arrive at once. */
function group(count: number): { readonly relay: SiblingRelay; readonly members: readonly Siblings[] } {
  const relay = new SiblingRelay(count);
  const members = Array.from(
    { length: count },
    (_, index) => new Siblings({ index, count }, (word) => relay.say(index, word)),
  );
  members.forEach((member, index) => relay.join(index, (from, word) => member.hear(from, word)));
  return { relay, members };
}

const state = async (promise: Promise<unknown>): Promise<'settled' | 'pending'> => {
  const pending = Symbol('pending');
  return (await Promise.race([promise, new Promise((resolve) => setImmediate(() => resolve(pending)))])) === pending
    ? 'pending'
    : 'settled';
};

afterEach(() => {
  vi.useRealTimers();
});

it('reach late listeners in order, and each of them once', () => {
  const relay = new SiblingRelay(3);
  const heard: string[] = [];
  const listen = (index: number): void =>
    relay.join(index, (from, word) => heard.push(`${index}<${from} ${word.kind}`));
  listen(0);
  relay.say(0, offer());
  relay.say(0, { kind: 'finished', stage: 0 });
  listen(1);
  listen(1);
  relay.leave(0, 'it died');
  relay.say(0, offer());
  listen(0); // its successor is not a member
  relay.say(1, offer());
  listen(2);
  expect(heard).toEqual([
    '1<0 offer',
    '1<0 finished',
    '1<0 gone',
    '2<0 offer',
    '2<0 finished',
    '2<0 gone',
    '2<1 offer',
  ]);
});

it('carry offers of each stage, also to a replica that asks later', async () => {
  const {
    members: [a, b],
  } = group(2);
  a!.exchange(1).offer({ refused: 'no way' });
  a!.exchange(0).offer(shared);
  expect(await b!.exchange(0).offerOf(0)).toBe(shared);
  expect(await b!.exchange(1).offerOf(0)).toEqual({ refused: 'no way' });
  expect(await state(b!.exchange(2).offerOf(0))).toBe('pending');
});

it('say who is gone, even for stages that nobody has asked about; an offer made before remains valid', async () => {
  const {
    relay,
    members: [a, b],
  } = group(2);
  const waiting = b!.exchange(0).offerOf(0);
  a!.exchange(1).offer(shared);
  relay.leave(0, 'SIGKILL');
  expect(await waiting).toEqual({ refused: 'SIGKILL' });
  expect(await b!.exchange(1).offerOf(0)).toBe(shared);
  expect(await b!.exchange(2).offerOf(0)).toEqual({ refused: 'SIGKILL' });
});

it('keep memory until every replica has finished or is gone', async () => {
  const {
    relay,
    members: [a, b],
  } = group(3);
  const mine = a!.exchange(0);
  expect(await isUnshared(mine)).toBe(true); // nothing was offered
  mine.offer(shared);
  const free = isUnshared(mine);
  b!.exchange(0).finish();
  expect(await state(free)).toBe('pending');
  relay.leave(2, 'SIGKILL');
  expect(await free).toBe(true);
  expect(await isUnshared(undefined)).toBe(true);
});

it('keep memory only for a limited time for a replica that hangs, and say so', async () => {
  vi.useFakeTimers();
  const {
    members: [a],
  } = group(2);
  const mine = a!.exchange(0);
  mine.offer(shared);
  const free = isUnshared(mine);
  await vi.advanceTimersByTimeAsync(4000);
  expect(await Promise.race([free, Promise.resolve('pending')])).toBe('pending');
  await vi.advanceTimersByTimeAsync(2000);
  expect(await free).toBe(false);
});
