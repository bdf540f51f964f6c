import { describe, expect, it } from 'vitest';
import { hashPair, hashText } from '../../route/hash.js';
import { Ring } from '../../route/ring.js';

const ringOf = (nodes: readonly string[], points = 128): Ring => {
  const ring = new Ring(points);
  for (const node of nodes) ring.add(node);
  return ring;
};
const names = (count: number, prefix: string): string[] => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

describe('hashes', () => {
  it('are those of every version: routers and restarts agree', () => {
    expect([hashText(''), hashText('a'), hashText('adapter-7'), hashPair(1, 2)]).toMatchInlineSnapshot(`
      [
        0,
        721651713,
        1561049603,
        1735922228,
      ]
    `);
  });

  it('tell texts apart that differ in one place, in order or in length', () => {
    const texts = ['ab', 'ba', 'a', 'b', 'aa', 'ab\0', '\u{1f600}', '\u{1f601}', 'é', 'e\u0301', ''];
    expect(new Set(texts.map((text) => hashText(text))).size).toBe(texts.length);
  });

  it('spread names that are counted up', () => {
    const buckets = new Array<number>(16).fill(0);
    for (const name of names(16_000, 'tenant-')) buckets[hashText(name) >>> 28]!++;
    expect(Math.min(...buckets)).toBeGreaterThan(850);
    expect(Math.max(...buckets)).toBeLessThan(1150);
  });
});

describe('a ring', () => {
  it('meets every node once, in an order that does not depend on who came first', () => {
    const nodes = names(16, 'node');
    const ring = ringOf(nodes);
    const other = ringOf([...nodes].reverse());
    for (const key of names(50, 'key')) {
      expect([...ring.walk(key)].sort()).toEqual([...nodes].sort());
      expect(other.walk(key)).toEqual(ring.walk(key));
    }
  });

  it('changes only the walks that meet a node that comes or leaves', () => {
    const nodes = names(16, 'node');
    const keys = names(2000, 'key');
    const before = ringOf(nodes);
    const after = ringOf([...nodes, 'new']);
    for (const key of keys) expect(after.walk(key).filter((node) => node !== 'new')).toEqual(before.walk(key));
    const moved = keys.filter((key) => after.walk(key)[0] === 'new').length;
    // 2000/17 = 118 are expected, and the node's part of the ring varies by a tenth.
    expect(moved).toBeGreaterThan(60);
    expect(moved).toBeLessThan(200);
    after.delete('new');
    for (const key of keys) expect(after.walk(key)).toEqual(before.walk(key));
  });

  it('gives nodes parts of about the same size', () => {
    const ring = ringOf(names(16, 'node'));
    const parts = new Map<string, number>();
    for (const key of names(8000, 'key')) parts.set(ring.walk(key)[0]!, (parts.get(ring.walk(key)[0]!) ?? 0) + 1);
    expect(Math.max(...parts.values()) / 500).toBeLessThan(1.4);
    expect(Math.min(...parts.values()) / 500).toBeGreaterThan(0.6);
  });

  it('is empty without nodes', () => {
    expect(new Ring(8).walk('key')).toEqual([]);
  });
});
