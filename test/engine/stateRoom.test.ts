import { expect, it } from 'vitest';
import { stateRowsFor } from '../../engine/stateRoom.js';

const MIB = 2 ** 20;
/** 36 layers of 2 MiB; 12 layers of keys and values. */
const LARGE = { rowBytes: 72 * MIB, tokenBytes: 24 * 1024 };
/** Tails of convolutions alone. */
const SMALL = { rowBytes: 128 * 1024, tokenBytes: 16 * 1024 };

it('rows are enough for texts of 1,024 tokens, and then take as much memory as keys and values', () => {
  expect([4096, 16_384, 65_536].map((tokens) => stateRowsFor(tokens, LARGE))).toEqual([8, 16, 64]);
  const many = stateRowsFor(1 << 20, LARGE);
  expect(many * LARGE.rowBytes).toBeLessThanOrEqual((1 << 20) * LARGE.tokenBytes);
  expect((many + 1) * LARGE.rowBytes).toBeGreaterThan((1 << 20) * LARGE.tokenBytes);
});

it('there are no more of small rows than texts can use, and a model without keys has some', () => {
  expect([512, 4096, 65_536].map((tokens) => stateRowsFor(tokens, SMALL))).toEqual([8, 64, 512]);
  expect([512, 65_536, 1 << 20].map((tokens) => stateRowsFor(tokens, { ...LARGE, tokenBytes: 0 }))).toEqual([
    8, 64, 64,
  ]);
});
