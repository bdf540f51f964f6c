import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { diffLines, hunkHead, hunksOf, type DiffLine } from '../../system/lineDiff.js';

const shown = (lines: readonly DiffLine[]): string => lines.map(({ sign, line }) => sign + line).join(' ');
const diff = (a: string, b: string): string => shown(diffLines([...a], [...b]));
const side = (lines: readonly DiffLine[], other: '-' | '+'): string[] =>
  lines.filter(({ sign }) => sign !== other).map(({ line }) => line);

describe('lines of two texts', () => {
  it('are matched where they are equal', () => {
    expect(diff('abc', 'abc')).toBe(' a  b  c');
    expect(diff('abcd', 'axcd')).toBe(' a -b +x  c  d');
    expect(diff('', 'ab')).toBe('+a +b');
    expect(diff('ab', '')).toBe('-a -b');
  });

  it('are matched where lines repeat', () => {
    expect(diff('}1}2}', '}2}')).toBe(' } -1 -}  2  }');
  });

  it('give both texts again, whatever they are', () => {
    const text = fc.array(fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f'), { maxLength: 40 });
    fc.assert(
      fc.property(text, text, (a, b) => {
        const lines = diffLines(a, b);
        expect(side(lines, '+')).toEqual(a);
        expect(side(lines, '-')).toEqual(b);
      }),
    );
  });

  it('are as few as can be where nothing is unique', () => {
    const changes = (a: string, b: string): number =>
      diffLines([...a], [...b]).filter(({ sign }) => sign !== ' ').length;
    expect(changes('aabbaabb', 'abbaab')).toBe(2);
    expect(changes('abcabba'.repeat(2), 'cbabac'.repeat(2))).toBe(10);
  });
});

describe('hunks', () => {
  const texts = (n: number): string[] => Array.from({ length: n }, (_, i) => `line ${i}`);

  it('hold changes and a few lines around them, and say where they lie', () => {
    const [a, b] = [texts(30), texts(30).with(4, 'four').with(25, 'twenty-five')];
    const hunks = hunksOf(diffLines(a, [...b, 'end']));
    expect(hunks.map(hunkHead)).toEqual(['@@ -2,7 +2,7 @@', '@@ -23,8 +23,9 @@']);
    expect(hunks[0]!.lines.filter(({ sign }) => sign === ' ')).toHaveLength(6);
  });

  it('of texts that begin with nothing start at 0', () => {
    expect(hunksOf(diffLines([], ['a'])).map(hunkHead)).toEqual(['@@ -0,0 +1 @@']);
    expect(hunksOf(diffLines(['a'], ['a']))).toEqual([]);
  });
});
