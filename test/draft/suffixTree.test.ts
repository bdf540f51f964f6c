/** The tree against a count of all parts of its windows, as the oldest leave. */
import { describe, expect, it } from 'vitest';
import { ROOT, SuffixTree } from '../../draft/suffixTree.js';
import { expectLinear } from '../support/growth.js';
import { randomNumbers } from '../support/pathModel.js';
import { HARD_TEXTS } from '../support/texts.js';

/** How often each part of windows is there that begins with them, by its text. */
function countsOf(windows: readonly (readonly number[])[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const window of windows)
    for (let length = 1; length <= window.length; length++) {
      const key = window.slice(0, length).join(' ');
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  return counts;
}

const CAPACITY = 64;
const DEPTH = 6;

/** The windows that a ring of CAPACITY tokens keeps, from the calls so far. */
class Kept {
  private readonly at: { readonly place: number; readonly window: readonly number[] }[] = [];
  private head = 0;

  add(text: readonly number[], from: number, to: number, isEnd: boolean): number {
    let begin = from;
    while (begin < to) {
      const end = Math.min(to, begin + CAPACITY / 2);
      const whole = isEnd && end === to ? end : end - DEPTH + 1;
      if (whole <= begin) break;
      for (let i = begin; i < whole; i++)
        this.at.push({ place: this.head + i - begin, window: text.slice(i, Math.min(end, i + DEPTH)) });
      this.head += end - begin;
      begin = whole;
    }
    return begin;
  }

  get windows(): readonly (readonly number[])[] {
    return this.at.filter(({ place }) => place >= this.head - CAPACITY).map(({ window }) => window);
  }
}

function compare(tree: SuffixTree, windows: readonly (readonly number[])[]): void {
  const counts = countsOf(windows);
  for (const [key, count] of counts) {
    const path = key.split(' ').map(Number);
    const node = tree.find(path, 0);
    expect([key, tree.countOf(node)]).toEqual([key, count]);
    const [tokens, nodes] = [new Int32Array(1000), new Int32Array(1000)];
    const found = tree.after(node, path.length, tokens, nodes);
    const after = Array.from({ length: found }, (_, i) => [tokens[i]!, tree.countOf(nodes[i]!)]);
    const wanted = [...counts].filter(
      ([longer]) => longer.startsWith(`${key} `) && longer.split(' ').length === path.length + 1,
    );
    expect(new Map(after as [number, number][])).toEqual(
      new Map(wanted.map(([longer, count]) => [Number(longer.split(' ').at(-1)), count])),
    );
  }
  // Nodes are where windows part or end.
  const ends = new Set(windows.map((window) => window.join(' ')));
  const nodes = [...counts.keys()].filter((key) => {
    const longer = [...counts].filter(
      ([other]) => other.startsWith(`${key} `) && other.split(' ').length === key.split(' ').length + 1,
    );
    return ends.has(key) || longer.length > 1;
  });
  expect(tree.nodes).toBe(nodes.length);
}

describe('a suffix tree of windows', () => {
  it.each([1, 2, 4, 30])('counts what is kept of texts of %i tokens', (symbols) => {
    const random = randomNumbers(symbols);
    const tree = new SuffixTree(CAPACITY, DEPTH);
    const kept = new Kept();
    for (let round = 0; round < 7; round++) {
      const text = Array.from({ length: Math.floor(random() * 50) }, () => Math.floor(random() * symbols));
      const cut = Math.floor(random() * text.length);
      const next = tree.add(text, 0, cut, false);
      expect(kept.add(text, 0, cut, false)).toBe(next);
      expect(tree.add(text, next, text.length, true)).toBe(kept.add(text, next, text.length, true));
      compare(tree, kept.windows);
    }
  });

  it('does not find what it never saw', () => {
    const tree = new SuffixTree(64, 8);
    tree.add([1, 2, 3, 4, 5], 0, 5, true);
    for (const path of [[], [2, 1], [1, 2, 3, 4, 5, 6], [6], [-1], [NaN], [1.5], Array.from({ length: 20 }, () => 1)])
      expect(tree.find(path, 0)).toBe(ROOT);
    expect(tree.find([9, 3, 4], 1)).not.toBe(ROOT);
  });

  it.each(HARD_TEXTS)('takes time in proportion to %s', (_name, make) => {
    expectLinear((size) => {
      const text = make(size);
      const tree = new SuffixTree(1 << 14, 32);
      return () => tree.add(text, 0, text.length, true);
    }, 2_000);
  });
});
