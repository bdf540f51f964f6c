/** The first factor of adapters over fibres: against float64, and the same bits in every tile and company. */
import { describe, expect, it } from 'vitest';
import { computationHash, kernelSignature } from '../../../codegen/signature.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { adapterCase, emulateShrink, interpretAdapters } from './adapterCases.js';

/** k of 200 ends within a step, and the last ranges are empty. */
const SHAPE = { hidden: 64, inter: 200, headDim: 32 } as const;

describe('shrink', () => {
  const mixed = [0, -1, 2, 2, 0, 1, -1, 2, 1, 0, 0, 0, 2, -1, 1, 1, 2, 0, 1];
  it.each(casesHere(['qkv', 'down'] as const, 0))('computes %s', (which) => {
    const own = adapterCase(which, SHAPE, { slots: 3, rank: which === 'qkv' ? 16 : 32 });
    const rows = { slots: mixed };
    const expected = interpretAdapters(own, rows).get(own.shrink.out)!;
    const width = expected.length / mixed.length;
    const few = emulateShrink(own, rows, 8);
    mixed.forEach((slot, row) => {
      if (slot < 0) return;
      for (let i = row * width; i < (row + 1) * width; i++)
        expect(Math.abs(few[i]! - expected[i]!)).toBeLessThanOrEqual(Math.abs(expected[i]!) / 128 + 1e-4);
    });
    for (const tile of casesHere([64, 16, 32] as const, 0))
      expectSame(emulateShrink(own, rows, tile), few, `tiles of ${tile}`);
  });
});

describe('shrink of many rows', () => {
  thorough('shares tiles of more slots than blocks take turns, whole steps in ranges of k', () => {
    // Ranges are five steps, and two: a stage has two.
    for (const [which, hidden] of [
      ['qkv', 1056],
      ['o', 512],
    ] as const) {
      const own = adapterCase(which, { ...SHAPE, hidden }, { slots: 12, rank: 16 });
      const rows = { slots: Array.from({ length: 70 }, (_, row) => (row < 66 ? row % 11 : 2)) };
      expectSame(emulateShrink(own, rows, 64, { backwards: true }), emulateShrink(own, rows, 32), which);
    }
  });
});

describe('shrink of very many rows', () => {
  const bits = (which: 'qkv' | 'o' | 'down', hidden: number, slots: readonly number[], ranks: number): void => {
    const own = adapterCase(which, { ...SHAPE, hidden }, { slots: 3, rank: ranks });
    const few = emulateShrink(own, { slots }, 32);
    expectSame(emulateShrink(own, { slots }, 128), few, which);
  };
  it('has the bits of other tiles where a panel has several slots and rows of none', () => {
    bits(
      'down',
      64,
      Array.from({ length: 40 }, (_, row) => (row % 7 === 0 ? -1 : row < 16 || row === 39 ? 1 : 2)),
      16,
    );
  });
  thorough(
    'goes on in a second panel, leaves out tiles without rows of a slot, and has ranges of several stages',
    () => {
      bits(
        'qkv',
        1056,
        Array.from({ length: 270 }, (_, row) => (row % 5 === 0 ? -1 : row < 100 ? 0 : row < 258 ? row % 3 : 2)),
        32,
      );
      bits(
        'o',
        3072,
        Array.from({ length: 300 }, (_, row) => (row < 256 ? -1 : 1)),
        16,
      );
    },
  );
});

describe('shrink of long ranges of k', () => {
  thorough('adds up their parts in every tile', () => {
    // Three parts, of which the last range has a short one.
    const own = adapterCase('down', { ...SHAPE, inter: 8232 }, { slots: 4, rank: 16 });
    const rows = { slots: [0, 3, -1, 2, 0, 0, 1, 1, 3], cancels: true };
    const few = emulateShrink(own, rows, 8);
    for (const tile of [16, 32, 64, 128] as const) expectSame(emulateShrink(own, rows, tile), few, `tiles of ${tile}`);
    const mutate = (source: string): string => source.replace('SHRINK_DEEP = 1024', 'SHRINK_DEEP = 2048');
    expect(() => expectSame(emulateShrink(own, rows, 8, { mutate }), few, 'ranges without parts')).toThrow();
  });
});

describe('schedules of contractions with adapters', () => {
  it('are found under the key of the contraction without them', () => {
    const { base, kernel, module } = adapterCase('qkv', SHAPE, { slots: 3, rank: 16 });
    const capacity = { T: 64, R: 64 };
    expect(computationHash(kernel, module, capacity)).toBe(computationHash(base.kernel, base.module, capacity));
    expect(kernelSignature(kernel, module, capacity)).not.toBe(kernelSignature(base.kernel, base.module, capacity));
  });
});
