/** Encoded weights: the addon's decoder beside its slow reference, bit for bit, and what both refuse. */
import { afterAll, describe, expect, it } from 'vitest';
import type { WeightDecl } from '../../ir/kernel.js';
import { type Encoding, type PerPart } from '../../ir/encoding.js';
import { loadAddon } from '../../runtime/addon.js';
import { loadWeights } from '../../runtime/cpu/loadWeights.js';
import { FileMappings } from '../../runtime/files.js';
import type { EncodedSource } from '../../runtime/tensorSource.js';
import { planWeights } from '../../runtime/weightPlan.js';
import { columnsOf, ENCODINGS, sampleSource } from '../support/encodedSamples.js';
import { temporaryFolder } from './kernels.js';
import { isThorough } from '../support/thorough.js';

const folder = temporaryFolder();
const files = new FileMappings();
const pool = new (loadAddon().Pool)(2);
afterAll(() => files.release());
let made = 0;

/** The rows of a tensor as the addon loads them. */
async function load(source: EncodedSource): Promise<Float32Array> {
  const [rows, k] = source.shape as readonly [number, number];
  const weight: WeightDecl = {
    name: 'w',
    layout: 'rows',
    format: 'f32',
    k,
    pairing: { kind: 'none' },
    sources: [{ tensor: 't', rows }],
  };
  const plan = planWeights([weight], [], new Map([['t', source]]));
  const slots = await loadWeights(plan, pool, files, new (loadAddon().Memory)(plan.packedBytes));
  const { memory, offset, bytes } = slots.get('w')!;
  return new Float32Array(memory.read(offset, bytes));
}

const sample = (
  encoding: Encoding,
  rows: number,
  k: number,
  change?: (parts: PerPart<Uint8Array>) => PerPart<Uint8Array>,
) => sampleSource(folder, `m${made++}`, encoding, rows, k, made, change);

describe('encoded weights', () => {
  // Blocks of K are much alike.
  const KINDS = Object.entries(ENCODINGS).filter(([name]) => isThorough || !/^q[45]_k$/.test(name));
  it.each(KINDS)('%s is decoded as the reference decodes it', async (_name, encoding) => {
    for (const [rows, columns] of [
      [32, 1],
      [64, 5],
      [96, 3],
    ] as const) {
      const { source, values } = sample(encoding, rows, columns * columnsOf(encoding));
      expect(await load(source)).toEqual(Float32Array.from(values()));
    }
  });

  it('mxfp4: every byte is two numbers, that of its lower half first', async () => {
    const numbers = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];
    const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    // A scale for each row of 16 bytes, from 2^-127 on.
    const scales = Uint8Array.from({ length: 16 }, (_, row) => 8 * row);
    const { source, values } = sample(ENCODINGS['mxfp4']!, 16, 32, () => ({ codes: bytes, scales }));
    const wanted = Float32Array.from(
      [...bytes].flatMap((byte) => [numbers[byte & 15]!, numbers[byte >> 4]!]),
      (number, i) => number * 2 ** (8 * Math.floor(i / 32) - 127),
    );
    expect(await load(source)).toEqual(wanted);
    expect(Float32Array.from(values())).toEqual(wanted);
  });

  it.each(['packed', 'fp8Blocks', 'awq', 'int8Zeros'])(
    '%s has rows that are no whole words or blocks',
    async (name) => {
      const { source, values } = sample(ENCODINGS[name]!, 29, 213);
      expect(await load(source)).toEqual(Float32Array.from(values()));
    },
  );

  it('reads some rows of a matrix', async () => {
    const { source, values } = sample(ENCODINGS['gptqGroups']!, 96, 64);
    const view = { first: 8, rows: 8, stride: 24 };
    const got = await load({ ...source, shape: [24, 64], view });
    const wanted = [8, 32, 56].flatMap((row) => [...values().subarray(row * 64, (row + 8) * 64)]);
    expect(got).toEqual(Float32Array.from(wanted));
  });

  it.each([
    ['0', 0],
    ['infinite', 0x7c00],
    ['no number', 0x7c01],
  ])('refuses a scale that is %s', async (what, bits) => {
    const { source: plain, values } = sample(ENCODINGS['gptq']!, 32, 64, (parts) => {
      new DataView(parts.scales!.buffer).setUint16(2 * 35, bits, true);
      return parts;
    });
    const scales = { ...plain.parts.scales!, tensor: 'm.scales' };
    const source = { ...plain, parts: { ...plain.parts, scales } };
    await expect(load(source)).rejects.toThrow(
      `${scales.file}: tensor "m.scales": the scale of row 3, column 32 is ${what}`,
    );
    expect(values).toThrow('the scale of row 3, column 32 is ');
  });

  it.each([
    ['q4_k', [0, 0x7c], 144 * 3 + 2],
    ['mxfp4Blocks', [255], 17 * 24],
  ] as const)('refuses a scale of a block that is not finite: %s', async (name, bits, at) => {
    const { source } = sample(ENCODINGS[name]!, 2, 512, (parts) => {
      parts.blocks!.set(bits, at);
      return parts;
    });
    await expect(load(source)).rejects.toThrow(
      `${source.parts.blocks!.file}: tensor "t": the scale of row 1, column 256 is not finite`,
    );
  });

  it('has the numbers of E2M1 in blocks, low halves first, of every power', async () => {
    const numbers = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];
    const codes = Uint8Array.from({ length: 16 }, (_, i) => i + 16 * (15 - i));
    const powers = [0, 1, 2, 100, 127, 128, 200, 252];
    const blocks = Uint8Array.from(powers.flatMap((power) => [power, ...codes]));
    const { source, values } = sample(ENCODINGS['mxfp4Blocks']!, 4, 64, () => ({ blocks }));
    const wanted = powers.flatMap((power) => [...numbers, ...numbers.toReversed()].map((x) => x * 2 ** (power - 127)));
    expect(await load(source)).toEqual(Float32Array.from(wanted));
    expect(Float32Array.from(values())).toEqual(Float32Array.from(wanted));
  });

  it.each([
    ['column 5 is in group 2 of 2', 5, 2],
    ['column 5 is in group -1 of 2', 5, -1],
    ['no permutation of columns', 5, 'other'],
  ] as const)('refuses groups: %s', async (message, column, group) => {
    const { source } = sample(ENCODINGS['gptqGroups']!, 32, 64, (parts) => {
      const groups = new DataView(parts.groups!.buffer);
      const now = groups.getInt32(4 * column, true);
      groups.setInt32(4 * column, group === 'other' ? 1 - now : group, true);
      return parts;
    });
    await expect(load(source)).rejects.toThrow(`${source.parts.groups!.file}: tensor "t": `);
    await expect(load(source)).rejects.toThrow(message);
  });

  it('refuses parts that are not what the shape needs', async () => {
    const { source } = sample(ENCODINGS['gptq']!, 32, 64);
    const { scales, zeros, ...rest } = source.parts;
    await expect(load({ ...source, parts: { ...rest, zeros: zeros! } })).rejects.toThrow('scales: no bytes');
    const short = { ...scales!, byteLength: scales!.byteLength - 2 };
    await expect(load({ ...source, parts: { ...source.parts, scales: short } })).rejects.toThrow(
      'scales: 126 bytes, its shape needs 128',
    );
    const far = { ...scales!, offset: 1 << 20 };
    await expect(load({ ...source, parts: { ...source.parts, scales: far } })).rejects.toThrow('is cut off');
    const view = { first: 0, rows: 16, stride: 32 };
    await expect(load({ ...source, shape: [48, 64], view })).rejects.toThrow('its rows are not inside a matrix of 32');
    await expect(load({ ...source, encoding: ENCODINGS['q4_k']! })).rejects.toThrow('not whole blocks of 256');
  });
});
