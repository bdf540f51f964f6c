import { describe, expect, it } from 'vitest';
import { boundOf } from '../../route/bound.js';
import { endPeriod, holdersFor, noDemand } from '../../route/demand.js';
import { hashText } from '../../route/hash.js';
import { type Item, place } from '../../route/placement.js';
import { Ring } from '../../route/ring.js';

const EPSILON = 0.25;
const ring = new Ring(128);
for (let i = 0; i < 16; i++) ring.add(`r${i}`);

/** Names of the holders of 1,000 adapters whose demand is Zipf's, each as often as it is asked for. */
function placed(without: string | undefined, holders: (rank: number) => number, slots = 1000, count = 1000) {
  const names = [...ring.walk('x')].filter((name) => name !== without);
  const items = Array.from({ length: count }, (_, i): Item => ({
    order: hashText(`a${i}`),
    walk: ring.walk(`a${i}`).filter((name) => name !== without),
    holders: holders(i),
    demand: 1 / (i + 1),
  }));
  const rooms = new Map(names.map((name) => [name, { slots, part: 1 / names.length }]));
  const found = place(items, rooms, EPSILON);
  return { found: items.map((item) => found.get(item)!), names };
}
const one = (): number => 1;

describe('placement', () => {
  it('leaves nobody above its bound, and gives each adapter its holders, all different', () => {
    const { found, names } = placed(undefined, (rank) => (rank < 10 ? 4 : 1));
    const copies = found.flat().length;
    expect(copies).toBe(1030);
    for (const name of names)
      expect(found.flat().filter((each) => each === name).length).toBeLessThanOrEqual(boundOf(EPSILON, copies, 1 / 16));
    expect(found.every((each) => new Set(each).size === each.length)).toBe(true);
    const demand = (name: string): number =>
      found.reduce((sum, each, i) => sum + (each.includes(name) ? 1 / (i + 1) / each.length : 0), 0);
    const total = found.reduce((sum, _, i) => sum + 1 / (i + 1), 0);
    expect(Math.max(...names.map(demand)) / (total / 16)).toBeLessThan(1.3);
  });

  it('moves little when a replica leaves or joins', () => {
    for (const gone of ['r0', 'r7', 'r12']) {
      const [before, after] = [placed(undefined, one).found, placed(gone, one).found];
      const moved = before.filter((each, i) => each[0] !== after[i]![0]).length;
      // It holds 63 at the mean and 79 at its bound; whom its adapters push on adds a part, within O(1/ε²).
      expect(moved).toBeGreaterThan(30);
      expect(moved).toBeLessThanOrEqual((1 + EPSILON) * (1000 / 16) + 4 / EPSILON ** 2);
    }
  });

  it('stays within slots for second holders, and does without replicas that take none', () => {
    const { found, names } = placed(undefined, () => 2, 4, 40);
    for (const name of names) expect(found.flat().filter((each) => each === name).length).toBeLessThanOrEqual(5);
    expect(found.every(({ length }) => length >= 1)).toBe(true);
    const none = place(
      [{ order: 1, walk: ['r0'], holders: 1, demand: 1 }],
      new Map([['r0', { slots: 0, part: 1 }]]),
      1,
    );
    expect([...none.values()]).toEqual([[]]);
  });
});

describe('demand', () => {
  const rules = { smoothing: 0.5, holderShare: 0.5, quietPeriods: 3 };

  it('needs so many holders that each has half of a replica’s share', () => {
    expect(holdersFor(10, 160, 16, 0.5)).toBe(2);
    expect(holdersFor(1, 160, 16, 0.5)).toBe(1);
    expect(holdersFor(160, 160, 16, 0.5)).toBe(16);
    expect([holdersFor(0, 0, 16, 0.5), holdersFor(5, 0, 0, 0.5)]).toEqual([1, 1]);
  });

  it('grows at once, and shrinks by one after three quiet periods', () => {
    const [hot, rest] = [noDemand(), noDemand()];
    const period = (tokens: number): number => {
      hot.now = tokens;
      rest.now = 1000;
      endPeriod([hot, rest], 8, rules);
      return hot.holders;
    };
    expect(period(1000)).toBe(8);
    expect([period(0), period(0), period(0)]).toEqual([8, 8, 7]);
    for (let i = 0; i < 40; i++) period(0);
    expect(hot).toMatchObject({ holders: 1, mean: 0 });
  });
});
