import { describe, expect, it } from 'vitest';
import { programExtents, sizesOf } from '../../runtime/bindPorts.js';

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
});
