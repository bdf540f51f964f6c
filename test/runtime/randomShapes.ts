/** Shapes of random weights, for tests of packing. */
import fc from 'fast-check';
import type { Pairing } from '../../ir/kernel.js';

/** Rows of a weight's sources, with a pairing that they allow. `interleaved`: widths of interleaved blocks. */
export const randomShapes = (...interleaved: readonly number[]): fc.Arbitrary<{ rows: number[]; pairing: Pairing }> =>
  fc.oneof(
    fc
      .array(fc.integer({ min: 1, max: 70 }), { minLength: 1, maxLength: 3 })
      .map((rows) => ({ rows, pairing: { kind: 'none' } as Pairing })),
    fc
      .record({
        heads: fc.integer({ min: 1, max: 4 }),
        blocks: fc.integer({ min: 1, max: 3 }),
        width: fc.constantFrom(1, 2, 4, 8, 16),
      })
      .map(({ heads, blocks, width }) => ({
        rows: [heads * blocks * width * 2],
        pairing: { kind: 'rotate', headDim: blocks * width * 2, width } as Pairing,
      })),
    fc
      .record({ rows: fc.integer({ min: 1, max: 70 }), width: fc.constantFrom(...interleaved) })
      .map(({ rows, width }) => ({ rows: [rows, rows], pairing: { kind: 'interleave', width } as Pairing })),
  );
