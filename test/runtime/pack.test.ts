/** The packer compared with its slow reference: random shapes, every layout, format, pairing and kind of source. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { WeightDecl } from '../../ir/kernel.js';
import { packedBytes, physicalToLogical } from '../../ir/packing.js';
import { FORMAT_NAMES, type FormatName, FORMATS, isFormatIn, LAYOUTS } from '../../ir/storage.js';
import { loadAddon } from '../../runtime/addon.js';
import type { NativeMemory, PackJob, PackSource } from '../../runtime/native.js';
import { temporaryFolder } from './kernels.js';
import {
  bitsFloat,
  floatBits,
  type Matrix,
  normalize,
  packReference,
  randomStored,
  randomValue,
  roundTo,
  toBf16,
  toF16,
} from './packReference.js';
import { randomShapes } from './randomShapes.js';
import { isThorough } from '../support/thorough.js';

const folder = temporaryFolder();
const { Memory, Pool, pack } = loadAddon();
const pools = [1, 2, 3].map((threads) => new Pool(threads));

const elements = (weight: Pick<WeightDecl, 'format'>, bytes: ArrayBuffer): number[] => [
  ...(weight.format === 'f32' ? new Uint32Array(bytes) : new Uint16Array(bytes)),
];

/** Packs on `threads` threads into memory filled with garbage, at an offset, and checks the surrounding bytes. */
async function packNative(
  weight: WeightDecl,
  sources: readonly PackSource[],
  columnScale?: PackSource,
  threads = 2,
): Promise<number[]> {
  const rowMap = physicalToLogical(weight);
  const bytes = packedBytes(weight, rowMap.length);
  const { layout } = weight;
  if (layout === 'kmajor' || layout === 'quads' || layout === 'groups' || layout === 'microscaled')
    throw new Error('tested elsewhere');
  const target = new Memory(bytes + 192);
  target.write(0, new Uint8Array(bytes + 192).fill(0xa5));
  await pack(pools[threads - 1]!, {
    layout,
    format: FORMATS[weight.format].code,
    k: weight.k,
    rowMap,
    sources,
    target: { memory: target, offset: 128, bytes },
    ...(columnScale === undefined ? {} : { columnScale }),
  });
  expect(
    new Uint8Array(target.read(0, 128)).every((byte) => byte === 0xa5),
    'bytes before the target',
  ).toBe(true);
  expect(
    new Uint8Array(target.read(128 + bytes, 64)).every((byte) => byte === 0xa5),
    'bytes after the target',
  ).toBe(true);
  return elements(weight, target.read(128, bytes));
}

/** Random stored bits, NaN, infinities and denormals included, at an offset that need not be aligned. */
function stored(
  format: FormatName,
  rows: number,
  k: number,
  seed: number,
  offset: number,
): { source: PackSource; matrix: Matrix } {
  const { bytes, matrix } = randomStored(format, rows, k, seed);
  const memory = new Memory(offset + bytes.length);
  memory.write(offset, bytes);
  return { source: { kind: 'memory', format: FORMATS[format].code, rows, memory, offset }, matrix };
}

const formats = fc.constantFrom(...FORMAT_NAMES);
const layouts = fc.constantFrom(
  ...LAYOUTS.filter((layout) => layout !== 'kmajor').flatMap((layout) =>
    FORMAT_NAMES.filter((format) => isFormatIn(layout, format)).map((format) => ({ layout, format })),
  ),
);
const shapes = randomShapes(1, 4, 16, 32);

describe('pack', () => {
  it('equals the reference for random shapes, layouts, pairings, formats and scales, on 1 to 3 threads', async () => {
    await fc.assert(
      fc.asyncProperty(
        layouts,
        shapes,
        formats,
        fc.integer({ min: 1, max: 300 }),
        fc.integer({ min: 0, max: 1 << 30 }),
        fc.boolean(),
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 0, max: 7 }),
        async (layout, { rows, pairing }, format, k, seed, isScaled, threads, offset) => {
          const weight: WeightDecl = {
            name: 'w',
            ...layout,
            k,
            pairing,
            sources: rows.map((n, i) => ({ tensor: `t${i}`, rows: n })),
          };
          const matrices = rows.map((n, i) => stored(format, n, k, seed + i, offset));
          const scale = isScaled ? stored('f32', 1, k, seed + 77, 4) : undefined;
          const got = await packNative(
            weight,
            matrices.map(({ source }) => source),
            scale?.source,
            threads,
          );
          const wanted = packReference(
            weight,
            matrices.map(({ matrix }) => matrix),
            scale && ((column) => scale.matrix(0, column)),
          );
          expect(got.map((bits) => normalize(weight.format as FormatName, bits))).toEqual(
            wanted.map((bits) => normalize(weight.format as FormatName, bits)),
          );
        },
      ),
      { numRuns: isThorough ? 120 : 50 },
    );
  });

  it('generates random weights from (seed, index) only, rounded, in any layout, by any threads', async () => {
    for (const format of ['f32', 'bf16', 'f16'] as const) {
      for (const threads of [1, 2, 3]) {
        const weight: WeightDecl = {
          name: 'w',
          layout: 'panels',
          format: 'f32',
          k: 37,
          pairing: { kind: 'none' },
          sources: [{ tensor: 't', rows: 50 }],
        };
        const source: PackSource = {
          kind: 'random',
          format: FORMATS[format].code,
          rows: 50,
          seed: 0xdeadbeefcafef00dn,
          scale: 0.02,
        };
        const wanted = packReference(weight, [
          (row, column) => roundTo(format, randomValue(0xdeadbeefcafef00dn, row * 37 + column, 0.02)),
        ]);
        expect(await packNative(weight, [source], undefined, threads)).toEqual(wanted);
      }
    }
  });

  it('has random weights of about the requested deviation and mean 0', async () => {
    const weight: WeightDecl = {
      name: 'w',
      layout: 'rows',
      format: 'f32',
      k: 1000,
      pairing: { kind: 'none' },
      sources: [{ tensor: 't', rows: 100 }],
    };
    const values = (
      await packNative(weight, [{ kind: 'random', format: FORMATS.f32.code, rows: 100, seed: 1n, scale: 0.5 }])
    ).map(bitsFloat);
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length);
    expect(Math.abs(mean)).toBeLessThan(0.01);
    expect(deviation).toBeGreaterThan(0.49);
    expect(deviation).toBeLessThan(0.51);
    expect(new Set(values.slice(0, 1000)).size).toBeGreaterThan(900);
  });

  it('fills with constants, rounded to the format of the tensor', async () => {
    const weight: WeightDecl = {
      name: 'w',
      layout: 'vnni',
      format: 'bf16',
      k: 33,
      pairing: { kind: 'none' },
      sources: [{ tensor: 't', rows: 17 }],
    };
    const wanted = packReference(weight, [() => roundTo('bf16', 1.2345)]);
    expect(
      await packNative(weight, [{ kind: 'constant', format: FORMATS.bf16.code, rows: 17, value: 1.2345 }]),
    ).toEqual(wanted);
  });

  it('rounds every bf16 tie and every f16 value as IEEE says', async () => {
    const values = [
      0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0x00008000, 0x00018000, 0x80000000,
      0x7f800001, 0xffc00000,
    ].concat(
      [
        65504,
        65519.99,
        65520,
        2 ** -24,
        2 ** -25,
        2 ** -25 * 1.0001,
        2 ** -14,
        2 ** -15 * 1.5,
        1 + 2 ** -11,
        1 + 3 * 2 ** -11,
      ].map(floatBits),
    );
    const memory = new Memory(values.length * 4);
    memory.write(0, Uint32Array.from(values));
    for (const [format, encode] of [
      ['bf16', toBf16],
      ['f16', toF16],
    ] as const) {
      const weight: WeightDecl = {
        name: 'w',
        layout: 'rows',
        format,
        k: values.length,
        pairing: { kind: 'none' },
        sources: [{ tensor: 't', rows: 1 }],
      };
      const got = await packNative(weight, [{ kind: 'memory', format: FORMATS.f32.code, rows: 1, memory, offset: 0 }]);
      expect(got.map((bits) => normalize(format, bits))).toEqual(
        values.map((bits) => normalize(format, encode(bitsFloat(bits)))),
      );
    }
  });
});

describe('the packer', () => {
  const weight: WeightDecl = {
    name: 'w',
    layout: 'panels',
    format: 'f32',
    k: 8,
    pairing: { kind: 'none' },
    sources: [{ tensor: 't', rows: 4 }],
  };
  const rowMap = physicalToLogical(weight);
  const memory = (bytes: number): NativeMemory => new Memory(bytes);
  const format = FORMATS.f32.code;
  const good = (): PackJob => ({
    layout: 'panels',
    format,
    k: 8,
    rowMap,
    sources: [{ kind: 'memory', format, rows: 4, memory: memory(128), offset: 0 }],
    target: { memory: memory(1024), offset: 0, bytes: 1024 },
  });
  const refused =
    (change: Partial<PackJob>): (() => unknown) =>
    () =>
      pack(pools[0]!, { ...good(), ...change });

  it('accepts the job that the others are variations of', async () => {
    await pack(pools[0]!, good());
  });

  it('refuses sources and targets outside their memory, and invalid offsets', () => {
    const source = { kind: 'memory', format, rows: 4, memory: memory(128), offset: 0 } as const;
    expect(refused({ sources: [{ ...source, offset: 1 }] })).toThrow(/outside a memory of 128 bytes/);
    expect(refused({ sources: [{ ...source, rows: 5 }] })).toThrow(/outside/);
    expect(refused({ sources: [{ ...source, offset: -4 }] })).toThrow(/integer/);
    expect(refused({ sources: [{ ...source, offset: 0.5 }] })).toThrow(/integer/);
    expect(refused({ sources: [{ ...source, offset: Number.MAX_SAFE_INTEGER }] })).toThrow(/outside/);
    expect(refused({ sources: [{ ...source, rows: 2 ** 31 }], k: 2 ** 31 })).toThrow(/too large/);
    expect(refused({ target: { memory: memory(1024), offset: 0, bytes: 1023 } })).toThrow(/needs 1024/);
    expect(refused({ target: { memory: memory(1024), offset: 64, bytes: 1024 } })).toThrow(/outside/);
    expect(refused({ target: { memory: memory(2048), offset: 8, bytes: 1024 } })).toThrow(/multiple of 64/);
    expect(refused({ columnScale: { kind: 'memory', format, rows: 1, memory: memory(31), offset: 0 } })).toThrow(
      /outside/,
    );
  });

  it('refuses row numbers outside the sources', () => {
    expect(refused({ rowMap: Int32Array.from([0, 4]) })).toThrow(/rowMap\[1\] = 4 lies outside 4 rows/);
    expect(refused({ rowMap: Int32Array.from([-2]) })).toThrow(/rowMap\[0\] = -2/);
    expect(refused({ rowMap: new Int32Array(0) })).toThrow(/empty/);
  });

  it('refuses unknown format codes, and formats whose elements do not fit a layout', () => {
    expect(refused({ layout: 'vnni' })).toThrow(/layout vnni holds elements of 2 bytes, not 4/);
    expect(refused({ format: FORMAT_NAMES.length })).toThrow(/format must be .* from 0 to 2/);
    expect(refused({ format: -1 })).toThrow(/format/);
  });

  it('refuses to write into a mapped file', () => {
    const path = join(folder, 'weights.bin');
    writeFileSync(path, new Uint8Array(1024));
    const mapped = new Memory(path);
    expect(refused({ target: { memory: mapped, offset: 0, bytes: 1024 } })).toThrow(/mapped file/);
    expect(() => mapped.write(0, new Uint8Array(1))).toThrow(/mapped file/);
  });
});
