/** The bytes of one slot of a weight, as packers lay weights out (ir/packing.ts), made column by column. */
import type { WeightDecl } from '../../ir/kernel.js';
import { packedDepth, panelColumns, slotBytes } from '../../ir/packing.js';
import type { FormatName } from '../../ir/storage.js';

const SINGLE = new Float32Array(1);
const BITS = new Uint32Array(SINGLE.buffer);

function bf16Bits(value: number): number {
  SINGLE[0] = value;
  const bits = BITS[0]!;
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Smallest magnitude that becomes infinite, and smallest one with a full fraction, as bits of an f32. */
const F16_INFINITE = 0x477ff000;
const F16_NORMAL = 0x38800000;

function f16Bits(value: number): number {
  SINGLE[0] = value;
  const bits = BITS[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= F16_INFINITE) return sign | 0x7c00;
  if (magnitude >= F16_NORMAL) return sign | ((magnitude - (112 << 23) + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
  const units = Math.abs(SINGLE[0]) * 2 ** 24;
  const below = Math.floor(units);
  const rest = units - below;
  return sign | (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below);
}

/** To the nearest element of a format, ties to even. */
const ENCODERS: Readonly<Record<Exclude<FormatName, 'f32'>, (value: number) => number>> = {
  bf16: bf16Bits,
  f16: f16Bits,
};

export class SlotImage {
  readonly bytes: Uint8Array;
  private readonly words: Float32Array | Uint16Array;
  private readonly encode: ((value: number) => number) | undefined;
  private readonly depth: number;
  /** Columns side by side in one panel; 1: each column is one run. */
  private readonly lanes: number;

  /** `columns`: physical ones, the length of physicalToLogical. Zeros at first. */
  constructor(weight: WeightDecl, columns: number) {
    const { layout, format, name } = weight;
    if (format !== 'f32' && format !== 'bf16' && format !== 'f16')
      throw new Error(`Weight ${name}: a slot of ${format}.`);
    if (layout !== 'panels' && layout !== 'kmajor' && layout !== 'rows')
      throw new Error(`Weight ${name}: a slot in layout ${layout}.`);
    this.bytes = new Uint8Array(slotBytes(weight, columns));
    const { buffer } = this.bytes;
    this.words = format === 'f32' ? new Float32Array(buffer) : new Uint16Array(buffer);
    this.encode = format === 'f32' ? undefined : ENCODERS[format];
    this.depth = packedDepth(weight);
    this.lanes = layout === 'panels' ? panelColumns(weight) : 1;
  }

  /** Column `column` begins with `count` values from `from` on, times their factors, in f32, where there are some. */
  set(column: number, values: Float32Array, from: number, count: number, factors?: Float32Array): void {
    const { words, encode, depth, lanes } = this;
    let at = Math.floor(column / lanes) * lanes * depth + (column % lanes);
    for (let i = 0; i < count; i++, at += lanes) {
      const value = factors === undefined ? values[from + i]! : Math.fround(values[from + i]! * factors[i]!);
      words[at] = encode === undefined ? value : encode(value);
    }
  }
}
