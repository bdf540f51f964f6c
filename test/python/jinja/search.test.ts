/** Every search gives what the engine's own one gives. */
import { describe, expect, it } from 'vitest';
import { searchBackFor, searchFor, TemplateWork } from '../../../python/jinja/work.js';

/** All texts of a length of two letters, as the bits of a number. */
const word = (bits: number, length: number): string =>
  Array.from({ length }, (_, i) => ((bits >> i) & 1 ? 'b' : 'a')).join('');

describe('searchFor and searchBackFor', () => {
  it('find what String does, in both directions and from every place', () => {
    const work = new TemplateWork(1e9);
    for (const length of [1, 2, 3, 5, 17, 18, 20])
      for (let bits = 0; bits < 40; bits++) {
        const part = word(bits * 7919, length);
        const text = word(bits * 31337, 12) + part.slice(1) + part + part.slice(0, -1) + word(bits, 9) + part;
        const forward = searchFor(part, work),
          back = searchBackFor(part, work);
        for (let at = 0; at <= text.length; at++) {
          expect(forward(text, at)).toBe(text.indexOf(part, at));
          expect(back(text, at)).toBe(at < length ? -1 : text.lastIndexOf(part, at - length));
        }
      }
  });
});
