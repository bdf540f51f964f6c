/** A slow and simple packer whose bits the addon and device code must reproduce, and random weights for it. */
import type { WeightDecl } from '../../ir/kernel.js';
import { physicalToLogical } from '../../ir/packing.js';
import { storedRow } from '../../ir/rotaryOrder.js';
import { FORMATS, type FormatName } from '../../ir/storage.js';

const F32 = new Float32Array(1);
const U32 = new Uint32Array(F32.buffer);

export function floatBits(value: number): number {
  F32[0] = value;
  return U32[0]!;
}

export function bitsFloat(bits: number): number {
  U32[0] = bits;
  return F32[0]!;
}

/** Nearest bfloat16, ties to even; NaN stays NaN. */
export function toBf16(value: number): number {
  const bits = floatBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  const low = bits & 0xffff;
  const high = bits >>> 16;
  return (low > 0x8000 || (low === 0x8000 && high % 2 === 1) ? high + 1 : high) & 0xffff;
}

/** The value of a half: sign · 2^(e − 15) · (1 + m/1024), or m · 2^−24 for e = 0. */
export function fromF16(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const mantissa = half & 1023;
  if (exponent === 31) return mantissa === 0 ? sign * Infinity : NaN;
  return exponent === 0 ? sign * mantissa * 2 ** -24 : sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}

/** The nearest half, found by trying all of them, so only for small tests. Ties to even. */
export function toF16(value: number): number {
  if (Number.isNaN(value)) return floatBits(value) & 0x80000000 ? 0xfe00 : 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (magnitude >= 65520) return sign | 0x7c00;
  let low = 0;
  let high = 0x7bff;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (fromF16(middle) <= magnitude) low = middle;
    else high = middle - 1;
  }
  const above = low === 0x7bff ? 65536 : fromF16(low + 1);
  const [down, up] = [magnitude - fromF16(low), above - magnitude];
  return sign | (down < up || (down === up && low % 2 === 0) ? low : low + 1);
}

const MASK = (1n << 64n) - 1n;

function mix(z: bigint): bigint {
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/** The value at a flat index of a random tensor, before rounding to its format. */
export function randomValue(seed: bigint, index: number, scale: number): number {
  const h = mix((mix(seed) + BigInt(index) * 0x9e3779b97f4a7c15n) & MASK);
  const sum = Number((h & 0xffffn) + ((h >> 16n) & 0xffffn) + ((h >> 32n) & 0xffffn) + (h >> 48n));
  return Math.fround((sum - 131070) * Math.fround((scale * 1.7320508075688772) / 65536));
}

export function roundTo(format: FormatName, value: number): number {
  switch (format) {
    case 'f32':
      return Math.fround(value);
    case 'bf16':
      return bitsFloat(toBf16(value) << 16);
    case 'f16':
      return fromF16(toF16(value));
    default:
      return format satisfies never;
  }
}

const valueOf = (format: FormatName, bits: number): number =>
  format === 'f32' ? bitsFloat(bits) : format === 'bf16' ? bitsFloat(bits << 16) : fromF16(bits);

/** NaN payloads are not compared: a NaN equals any NaN. */
export const normalize = (format: FormatName, bits: number): number =>
  Number.isNaN(valueOf(format, bits)) ? -1 : bits;

/** A matrix of random stored bits, NaN, infinities and denormals included, and its values. */
export function randomStored(
  format: FormatName,
  rows: number,
  k: number,
  seed: number,
): { bytes: Uint8Array; matrix: Matrix } {
  const bits = Array.from({ length: rows * k }, (_, i) =>
    Number(
      BigInt.asUintN(FORMATS[format].elementBits, BigInt(floatBits(randomValue(BigInt(seed), i, 1))) * 2654435761n),
    ),
  );
  const words = format === 'f32' ? Uint32Array.from(bits) : Uint16Array.from(bits);
  return { bytes: new Uint8Array(words.buffer), matrix: (row, column) => valueOf(format, bits[row * k + column]!) };
}

/** A matrix of f32 values per source. */
export type Matrix = (row: number, column: number) => number;

/** Stored bits of the packed weight, in order: one entry per element. */
export function packReference(
  weight: WeightDecl,
  matrices: readonly Matrix[],
  columnScale?: (column: number) => number,
): number[] {
  const physical = physicalToLogical(weight);
  const element = (column: number, k: number): number => {
    let row = physical[column] ?? -1;
    if (row < 0 || k >= weight.k) return 0;
    for (const [i, source] of weight.sources.entries()) {
      if (row < source.rows) {
        const value = matrices[i]!(source.order === undefined ? row : storedRow(source.order, row), k);
        return columnScale === undefined ? value : Math.fround(value * columnScale(k));
      }
      row -= source.rows;
    }
    throw new Error('row outside the sources');
  };
  const encode = weight.format === 'f32' ? floatBits : weight.format === 'bf16' ? toBf16 : toF16;
  const out: number[] = [];
  const width = weight.layout === 'panels' && weight.format !== 'f32' ? 32 : 16;
  const panels = Math.ceil(physical.length / width);
  switch (weight.layout) {
    case 'rows':
      for (let column = 0; column < physical.length; column++)
        for (let k = 0; k < weight.k; k++) out.push(encode(element(column, k)));
      break;
    case 'kmajor':
      for (let column = 0; column < physical.length; column++) {
        for (let k = 0; k < Math.ceil(weight.k / 8) * 8; k++) out.push(encode(element(column, k)));
      }
      break;
    case 'panels':
      for (let p = 0; p < panels; p++)
        for (let k = 0; k < weight.k; k++)
          for (let lane = 0; lane < width; lane++) out.push(encode(element(p * width + lane, k)));
      break;
    case 'vnni':
      for (let p = 0; p < panels; p++) {
        for (let pair = 0; pair < Math.ceil(weight.k / 32) * 16; pair++) {
          for (let lane = 0; lane < 16; lane++)
            for (const half of [0, 1]) out.push(encode(element(p * 16 + lane, 2 * pair + half)));
        }
      }
      break;
    case 'quads':
      throw new Error('panels of quads have a reference of their own');
    case 'groups':
      throw new Error('groups are packed by ir/groups.ts');
    case 'microscaled':
      throw new Error('they are packed by ir/microscaled.ts');
    default:
      return weight.layout satisfies never;
  }
  return out;
}
