/** Matrices of every encoding with seeded bytes, and files of them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BLOCK_NAMES, BLOCKS, type BlockName } from '../../ir/blocks.js';
import {
  byteCodes,
  decodeEncoded,
  partBytes,
  wordCodes,
  type CodesEncoding,
  type Encoding,
  type PartName,
  type PerPart,
  type ScaleGrid,
  type ScaleType,
} from '../../ir/encoding.js';
import type { EncodedSource } from '../../runtime/tensorSource.js';

export const AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7];

const grid = (type: ScaleType, blockRows: number, blockColumns: number, isTransposed: boolean): ScaleGrid => ({
  type,
  blockRows,
  blockColumns,
  isTransposed,
});

const codes = (encoding: Omit<CodesEncoding, 'kind' | 'hasGroups'>, hasGroups = false): CodesEncoding => ({
  kind: 'codes',
  ...encoding,
  hasGroups,
});

const NONE = { kind: 'constant', value: 0 } as const;

/** By name; for matrices of rows and columns that are multiples of 32. */
export const ENCODINGS: Readonly<Record<string, Encoding>> = {
  gptq: codes({
    codes: wordCodes('u4', 'row', true),
    scales: grid('f16', 1, 32, true),
    zero: { kind: 'stored', codes: wordCodes('u4', 'column', true), added: 1 },
  }),
  gptqGroups: codes(
    {
      codes: wordCodes('u4', 'row', true),
      scales: grid('f16', 1, 32, true),
      zero: { kind: 'stored', codes: wordCodes('u4', 'column', true), added: 1 },
    },
    true,
  ),
  gptq8: codes({
    codes: wordCodes('u8', 'row', true),
    scales: grid('f16', 1, 64, true),
    zero: { kind: 'stored', codes: wordCodes('u8', 'column', true), added: 0 },
  }),
  two: codes({
    codes: wordCodes('u2', 'row', true),
    scales: grid('bf16', 1, 32, true),
    zero: { kind: 'stored', codes: wordCodes('u2', 'column', true), added: 1 },
  }),
  awq: codes({
    codes: wordCodes('u4', 'column', true, AWQ_PLACES),
    scales: grid('f16', 1, 32, true),
    zero: { kind: 'stored', codes: wordCodes('u4', 'column', true, AWQ_PLACES), added: 0 },
  }),
  packed: codes({
    codes: wordCodes('u4', 'row', false),
    scales: grid('bf16', 1, 32, false),
    zero: { kind: 'constant', value: 8 },
  }),
  packedZeros: codes({
    codes: wordCodes('u8', 'row', false),
    scales: grid('f32', 1, 32, false),
    zero: { kind: 'stored', codes: wordCodes('u8', 'column', false), added: 0 },
  }),
  int8: codes({ codes: byteCodes('i8'), scales: grid('f32', 1, 1 << 20, false), zero: NONE }),
  int8Zeros: codes({
    codes: byteCodes('i8'),
    scales: grid('f32', 1, 1 << 20, false),
    zero: { kind: 'stored', codes: byteCodes('i8'), added: 0 },
  }),
  fp8Tensor: codes({ codes: byteCodes('e4m3'), scales: grid('f32', 1 << 20, 1 << 20, false), zero: NONE }),
  fp8Blocks: codes({ codes: byteCodes('e4m3'), scales: grid('f32', 16, 48, false), zero: NONE }),
  fp8Powers: codes({ codes: byteCodes('e5m2'), scales: grid('e8m0', 1, 32, false), zero: NONE }),
  ...(Object.fromEntries(BLOCK_NAMES.map((block) => [block, { kind: 'blocks', block }])) as Readonly<
    Record<BlockName, Encoding>
  >),
};

/** A row of this encoding has a multiple of so many elements. */
export const columnsOf = (encoding: Encoding): number =>
  encoding.kind === 'blocks' ? BLOCKS[encoding.block].elements : 32;

/** Whole numbers below a bound, by a linear congruence. */
export function seeded(seed: number): (below: number) => number {
  let state = (seed * 2654435761 + 12345) >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Bits of scales near 1 / 64, of both signs. */
const SCALES: Readonly<Record<ScaleType, (next: (below: number) => number) => readonly number[]>> = {
  f32: (next) => [next(256), next(256), next(256), 0x3c | (next(2) << 7)],
  f16: (next) => [next(256), 0x20 | next(8) | (next(2) << 7)],
  bf16: (next) => [next(256), 0x3c | (next(2) << 7)],
  e8m0: (next) => [118 + next(8)],
};
const F16_PLACES: Readonly<Record<BlockName, readonly number[]>> = {
  q8_0: [0],
  q4_0: [0],
  q4_k: [0, 2],
  q5_k: [0, 2],
  q6_k: [208],
};

/** Bytes of every part of a matrix [rows, k]. */
export function sampleParts(encoding: Encoding, rows: number, k: number, seed: number): PerPart<Uint8Array> {
  const next = seeded(seed);
  const parts: Partial<Record<PartName, Uint8Array>> = {};
  for (const [name, bytes] of Object.entries(partBytes(encoding, rows, k)) as [PartName, number][])
    parts[name] = Uint8Array.from({ length: bytes }, () => next(256));
  if (encoding.kind === 'blocks') {
    const { bytes } = BLOCKS[encoding.block];
    for (let at = 0; at < parts.blocks!.length; at += bytes)
      for (const place of F16_PLACES[encoding.block]) parts.blocks!.set(SCALES.f16(next), at + place);
    return parts;
  }
  const size = SCALES[encoding.scales.type](next).length;
  for (let at = 0; at < parts.scales!.length; at += size) parts.scales!.set(SCALES[encoding.scales.type](next), at);
  const { type } = encoding.codes;
  // Neither NaN nor infinite.
  if (type === 'e4m3') parts.codes = parts.codes!.map((code) => ((code & 0x7f) === 0x7f ? code ^ 1 : code));
  if (type === 'e5m2') parts.codes = parts.codes!.map((code) => ((code & 0x7f) >= 0x7c ? code ^ 0x40 : code));
  if (encoding.hasGroups) {
    const order = Int32Array.from({ length: k }, (_, i) => Math.floor(i / encoding.scales.blockColumns));
    for (let i = k - 1; i > 0; i--) {
      const j = next(i + 1);
      [order[i], order[j]] = [order[j]!, order[i]!];
    }
    parts.groups = new Uint8Array(order.buffer);
  }
  return parts;
}

/** A file with the parts one after another, from an odd offset on, and what it decodes to. */
export function sampleSource(
  folder: string,
  name: string,
  encoding: Encoding,
  rows: number,
  k: number,
  seed: number,
  change: (parts: PerPart<Uint8Array>) => PerPart<Uint8Array> = (parts) => parts,
): { readonly source: EncodedSource; readonly values: () => Float64Array } {
  const parts = change(sampleParts(encoding, rows, k, seed));
  const file = join(folder, `${name}.bin`);
  let offset = 3;
  const places = Object.entries(parts).map(([part, bytes]) => {
    const place = { file, offset, byteLength: bytes.length };
    offset += bytes.length;
    return [part, place] as const;
  });
  writeFileSync(file, Buffer.concat([Buffer.alloc(3), ...Object.values(parts)]));
  return {
    source: { kind: 'encoded', format: 'f32', shape: [rows, k], encoding, rows, parts: Object.fromEntries(places) },
    values: () => decodeEncoded(encoding, rows, k, parts),
  };
}
