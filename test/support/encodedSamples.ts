/** Matrices of every encoding with seeded bytes, and files of them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type BlockName, BLOCKS, STORED_BLOCKS, type StoredBlock } from '../../ir/blocks.js';
import {
  byteCodes,
  type CodesEncoding,
  decodeEncoded,
  type Encoding,
  partBytes,
  type PartName,
  type PerPart,
  type ScaleGrid,
  type ScaleType,
  wordCodes,
} from '../../ir/encoding.js';
import { codeBytes, groupBytes, QUAD_COLUMNS, quadPanelBytes, QUADS, unitBytes, unitDepth } from '../../ir/quads.js';
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
  mxfp4: codes({ codes: wordCodes('e2m1', 'row', false), scales: grid('e8m0', 1, 32, false), zero: NONE }),
  fp8Powers: codes({ codes: byteCodes('e5m2'), scales: grid('e8m0', 1, 32, false), zero: NONE }),
  ...(Object.fromEntries(
    STORED_BLOCKS.map((block) => [block === 'mxfp4' ? 'mxfp4Blocks' : block, { kind: 'blocks', block }]),
  ) as Readonly<Record<BlockName | 'mxfp4Blocks', Encoding>>),
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
const SCALE_PLACES: Readonly<Record<StoredBlock, readonly number[]>> = {
  q8_0: [0],
  q4_0: [0],
  q4_k: [0, 2],
  q5_k: [0, 2],
  q6_k: [208],
  mxfp4: [0],
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
      for (const place of SCALE_PLACES[encoding.block])
        parts.blocks!.set(SCALES[encoding.block === 'mxfp4' ? 'e8m0' : 'f16'](next), at + place);
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

// Panels of quads from blocks of ggml: the reference of the packer, element by element, after ir/quads.ts.

interface Parts {
  readonly d: Uint8Array;
  readonly minimum: Uint8Array;
  /** Scales (and minima) of a group. */
  readonly scales: (group: number) => readonly [number, number];
  readonly code: (at: number) => number;
}

/** The numbers of a block, unsigned. */
function partsOf(name: BlockName, b: Uint8Array): Parts {
  const none = new Uint8Array(2);
  const zero = (): readonly [number, number] => [0, 0];
  const nibble = (codes: Uint8Array, at: number): number =>
    (codes[32 * (at >> 6) + (at & 31)]! >> (at & 32 ? 4 : 0)) & 15;
  const subBlocks =
    (s: Uint8Array) =>
    (j: number): readonly [number, number] =>
      j < 4
        ? [s[j]! & 63, s[j + 4]! & 63]
        : [(s[j + 4]! & 15) | ((s[j - 4]! >> 6) << 4), (s[j + 4]! >> 4) | ((s[j]! >> 6) << 4)];
  const common = { d: b.subarray(0, 2), minimum: none, scales: zero };
  switch (name) {
    case 'q8_0':
      return { ...common, code: (at) => (b[2 + at]! + 128) & 255 };
    case 'q4_0':
      return { ...common, code: (at) => (b[2 + (at & 15)]! >> (at < 16 ? 0 : 4)) & 15 };
    case 'q4_k':
      return {
        ...{ d: b.subarray(0, 2), minimum: b.subarray(2, 4), scales: subBlocks(b.subarray(4, 16)) },
        code: (at) => nibble(b.subarray(16), at),
      };
    case 'q5_k':
      return {
        ...{ d: b.subarray(0, 2), minimum: b.subarray(2, 4), scales: subBlocks(b.subarray(4, 16)) },
        code: (at) => nibble(b.subarray(48), at) | (((b[16 + (at & 31)]! >> (at >> 5)) & 1) << 4),
      };
    case 'q6_k':
      return {
        ...{ d: b.subarray(208, 210), minimum: none, scales: (j) => [b[192 + 2 * j]!, b[193 + 2 * j]!] },
        code: (at) => {
          const [half, quarter, i] = [at >> 7, (at >> 5) & 3, at & 31];
          const low = (b[64 * half + 32 * (quarter & 1) + i]! >> (4 * (quarter >> 1))) & 15;
          return low | (((b[128 + 32 * half + i]! >> (2 * quarter)) & 3) << 4);
        },
      };
    default:
      return name satisfies never;
  }
}

/** `order`: the row of `blocks` in each physical column, −1 for padding. */
export function quadPanels(name: BlockName, blocks: Uint8Array, k: number, order: Int32Array): Uint8Array {
  const panel = QUADS[name];
  const { bytes } = BLOCKS[name];
  const [units, own] = [k / unitDepth(panel), quadPanelBytes(panel, k)];
  const out = new Uint8Array(Math.ceil(order.length / QUAD_COLUMNS) * own);
  for (let column = 0; column < order.length; column++) {
    const lane = column % QUAD_COLUMNS;
    for (let unit = 0; unit < units; unit++) {
      const at = Math.floor(column / QUAD_COLUMNS) * own + unit * unitBytes(panel);
      const row = order[column]!;
      const block = blocks.subarray((row * units + unit) * bytes, (row * units + unit + 1) * bytes);
      const parts = row < 0 ? undefined : partsOf(name, block);
      if (parts !== undefined) out.set(parts.d, at + 2 * lane);
      if (parts !== undefined && panel.hasMinimum) out.set(parts.minimum, at + 64 + 2 * lane);
      for (let group = 0; group < panel.groups; group++) {
        const first = at + panel.head + group * groupBytes(panel);
        if (parts !== undefined && panel.scales > 0)
          parts.scales(group).forEach((scale, i) => (out[first + 32 * i + lane] = scale));
        const lines = out.subarray(first + panel.scales, first + panel.scales + codeBytes(panel));
        for (let i = 0; i < 32; i++) {
          const code = parts?.code(32 * group + i) ?? panel.zero;
          const [quad, place] = [i >> 2, 4 * lane + (i & 3)];
          if (panel.bits === 8) lines[128 * quad + place] = code;
          else {
            lines[128 * (quad >> 1) + place]! |= (code & 15) << (4 * (quad & 1));
            if (panel.bits === 5) lines[512 + place]! |= (code >> 4) << quad;
            if (panel.bits === 6) lines[512 + 128 * (quad >> 2) + place]! |= (code >> 4) << (2 * (quad & 3));
          }
        }
      }
    }
  }
  return out;
}

/** Panels of codes with signs, whose scales are for whole rows. `order`: the row in each physical column. */
export function codePanels(codes: Int8Array, k: number, order: Int32Array): Uint8Array {
  const own = quadPanelBytes(QUADS.i8, k);
  const out = new Uint8Array(Math.ceil(order.length / QUAD_COLUMNS) * own).fill(QUADS.i8.zero);
  order.forEach((row, column) => {
    if (row < 0) return;
    const panel = out.subarray(Math.floor(column / QUAD_COLUMNS) * own);
    for (let i = 0; i < k; i++)
      panel[128 * (i >> 2) + 4 * (column % QUAD_COLUMNS) + (i & 3)] = codes[row * k + i]! + 128;
  });
  return out;
}
