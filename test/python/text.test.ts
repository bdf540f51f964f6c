import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { capitalize, codePointLength, rightStrip, strip } from '../../python/value.js';
import { expectLinear } from '../support/growth.js';
import { thorough } from '../support/thorough.js';

/** What Python 3.11 prints for `text.capitalize()`. */
const CAPITALIZED: readonly (readonly [text: string, python: string])[] = [
  ['', ''],
  ['he WALKS', 'He walks'],
  ['123 Abc', '123 abc'],
  ['élan', 'Élan'],
  ['ßX', 'Ssx'],
  ['ﬁX', 'Fix'],
  ['ǆA', 'ǅa'],
  ['ǲA', 'ǲa'],
  ['ŉA', 'ʼNa'],
  ['აბ', 'აბ'],
  ['ᾳΑ', 'ᾼα'],
  ['ᾴ', 'Ά\u0345'],
  ['ᾷ', '\u0391\u0342\u0345'],
  ['և', 'Եւ'],
  ['İI', 'İi'],
  ['aİ', 'Ai\u0307'],
  ['ΑΣ', 'Ας'],
  ['ΑΣΑ Σ', 'Ασα σ'],
  ['𐐨𐐀', '𐐀𐐨'],
];

describe('capitalize', () => {
  it.each(CAPITALIZED)('%j becomes %j', (text, python) => {
    expect(capitalize(text)).toBe(python);
  });
});

describe('strip', () => {
  it('removes exactly what Python calls space', () => {
    expect(strip('\u0085\u001c\u001f\u2028\u3000 x \u00a0\t\v\f')).toBe('x');
    expect(strip('\ufeffx\ufeff')).toBe('\ufeffx\ufeff');
    expect(strip('\u200bx\u180e')).toBe('\u200bx\u180e');
    expect(rightStrip(' x \u0085')).toBe(' x');
    expect(strip(' \n\u0085')).toBe('');
  });

  it('agrees with trim() on spaces that both know', () => {
    const text = fc
      .array(fc.constantFrom(' ', '\n', '\t', '\u00a0', 'a', 'é', '\u3000'))
      .map((letters) => letters.join(''));
    fc.assert(
      fc.property(text, (sample) => {
        expect(strip(sample)).toBe(sample.trim());
        expect(rightStrip(sample)).toBe(sample.trimEnd());
      }),
    );
  });

  it('takes time in proportion to a run of spaces inside a text', () => {
    const long = (size: number): string => `${' '.repeat(size)}a${' '.repeat(size)}b`;
    expect(strip(long(300_000))).toHaveLength(300_002);
    expectLinear((size) => strip.bind(undefined, long(size)), 100_000);
  });
});

describe('codePointLength', () => {
  thorough('counts as len() does', () => {
    expect(codePointLength('naïve')).toBe(5);
    expect(codePointLength('a😀b')).toBe(3);
    expect(codePointLength('\ud800x')).toBe(2);
    expect(codePointLength('')).toBe(0);
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(codePointLength(text)).toBe([...text].length);
      }),
    );
  });
});
