import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { WeightDecl } from '../../ir/kernel.js';
import { packedBytes, packedDepth } from '../../ir/packing.js';
import { roundToDType } from '../../ir/round.js';
import { FORMAT_NAMES, FORMATS, isFormatIn, layoutProblem, LAYOUTS } from '../../ir/storage.js';
import { DTYPE_BYTES } from '../../ir/types.js';
import { isThorough } from '../support/thorough.js';

describe.each(FORMAT_NAMES)('storage format %s', (name) => {
  const format = FORMATS[name];

  it('has the size and the values of its element type', () => {
    expect(format.name).toBe(name);
    expect(format.elementBits).toBe(8 * DTYPE_BYTES[format.element]);
    expect(format.bytes(3, 5)).toBe(15 * DTYPE_BYTES[format.element]);
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.double({ noNaN: true }), fc.float({ noNaN: true }))), (values) => {
        const bytes = format.encode(Float64Array.from(values));
        expect(bytes.length).toBe(format.bytes(1, values.length));
        expect([...format.decode(bytes)]).toEqual(values.map((value) => roundToDType(value, format.element)));
      }),
    );
  });

  it.runIf(isThorough || name === 'bf16')(
    'decodes and encodes every pattern of 16 bits, also in the upper half',
    () => {
      const width = format.elementBits / 8;
      const bytes = new Uint8Array(0x10000 * width);
      for (let i = 0; i < 0x10000; i++) bytes.set([i & 0xff, i >> 8], i * width + (width - 2));
      const values = format.decode(bytes);
      const again = format.encode(values);
      for (let i = 0; i < 0x10000; i++) {
        const at = i * width + (width - 2);
        if (Number.isNaN(values[i]!)) expect(format.decode(again.slice(i * width, (i + 1) * width))[0]).toBeNaN();
        else expect(again[at]! | (again[at + 1]! << 8)).toBe(i);
      }
    },
  );

  it('reads bytes that begin anywhere in a larger array', () => {
    const bytes = Uint8Array.of(0xff, ...format.encode(Float64Array.of(1, -2.5)));
    expect([...format.decode(bytes.subarray(1))]).toEqual([1, -2.5]);
  });
});

describe('storage formats', () => {
  it('encode known numbers', () => {
    const bits = (name: 'f16' | 'bf16', value: number): number => {
      const [low, high] = FORMATS[name].encode(Float64Array.of(value));
      return low! | (high! << 8);
    };
    expect([1, -2, 65504, 65520, 2 ** -24, 2 ** -14, -Infinity].map((value) => bits('f16', value))).toEqual([
      0x3c00, 0xc000, 0x7bff, 0x7c00, 0x0001, 0x0400, 0xfc00,
    ]);
    expect([1, -2, 1 + 2 ** -8, 1 + 3 * 2 ** -8].map((value) => bits('bf16', value))).toEqual([
      0x3f80, 0xc000, 0x3f80, 0x3f82,
    ]);
  });

  it('have codes that count up from 0, as the tables of the packers do', () => {
    expect(FORMAT_NAMES.map((name) => FORMATS[name].code)).toEqual(FORMAT_NAMES.map((_, i) => i));
  });

  it('say which layouts hold them', () => {
    expect(layoutProblem('vnni', 'bf16')).toBeUndefined();
    expect(layoutProblem('vnni', 'f16')).toBe('layout vnni supports bf16, not f16');
    expect(layoutProblem('panels', 'f16')).toBeUndefined();
    expect(layoutProblem('kmajor', 'f32')).toBe('layout kmajor supports f16 or bf16 or e4m3, not f32');
    expect(FORMAT_NAMES.every((name) => isFormatIn('rows', name))).toBe(true);
  });

  it('pad k and columns of packed weights as their layout requires', () => {
    const weight = (layout: WeightDecl['layout'], format: WeightDecl['format']): WeightDecl => ({
      name: 'w',
      layout,
      format,
      sources: [{ tensor: 't', rows: 20 }],
      k: 33,
      pairing: { kind: 'none' },
    });
    const formatOf = (layout: WeightDecl['layout']): WeightDecl['format'] => (layout === 'quads' ? 'q8_0' : 'bf16');
    const depths = LAYOUTS.map((layout) => packedDepth(weight(layout, formatOf(layout))));
    expect(depths).toEqual([33, 64, 64, 40, 33, 33, 33]);
    expect(packedDepth({ ...weight('quads', 'i8'), k: 65 })).toBe(128);
    const grouped = { ...weight('groups', 'u4'), k: 256, group: 32 } as const;
    expect(packedBytes(grouped, 32)).toBe(32 * (128 + 8 * 4));
    expect(packedBytes(weight('panels', 'f32'), 20)).toBe(32 * 33 * 4);
    expect(packedBytes(weight('panels', 'bf16'), 20)).toBe(32 * 33 * 2);
    expect(packedBytes(weight('vnni', 'bf16'), 20)).toBe(32 * 64 * 2);
    expect(packedBytes(weight('kmajor', 'f16'), 20)).toBe(20 * 40 * 2);
    expect(packedBytes(weight('rows', 'f32'), 20)).toBe(20 * 33 * 4);
  });
});
