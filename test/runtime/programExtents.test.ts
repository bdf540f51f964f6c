import { describe, expect, it } from 'vitest';
import { mostOf, programExtents, sizesOf } from '../../runtime/extents.js';

const INTERFACE = { extents: [{ name: 'T' }, { name: 'R' }, { name: 'Tx8', counts: 'pairs' }] };

describe('extents of programs', () => {
  it('come in the order of the interface, products too, which no call states', () => {
    expect(programExtents(INTERFACE, { R: 5, T: 64 })).toEqual([
      { name: 'T', most: 64 },
      { name: 'R', most: 5 },
      { name: 'Tx8', most: 512 },
    ]);
    expect(sizesOf(INTERFACE, { R: 2, T: 7 })).toEqual([7, 2, 56]);
  });

  it('are looked up by name', () => {
    const extents = programExtents(INTERFACE, { T: 64, R: 5 });
    expect(mostOf('Tx8', extents)).toBe(512);
    expect(mostOf(3, extents)).toBe(3);
    expect(() => mostOf('S', extents)).toThrow('There is no extent S.');
  });
});
