/** The bytes of one slot of a weight, as packers lay weights out (ir/packing.ts), made column by column. */
import type { WeightDecl } from '../../ir/kernel.js';
import { packedDepth, panelColumns, slotBytes } from '../../ir/packing.js';
import type { FormatName } from '../../ir/storage.js';

/** Of an f32's bits: those of the nearest bf16, ties to even. */
function bf16Bits(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Smallest magnitude that becomes infinite, and smallest one with a full fraction, as bits of an f32. */
const F16_INFINITE = 0x477ff000;
const F16_NORMAL = 0x38800000;

/** The same for f16. */
function f16Bits(bits: number, value: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= F16_INFINITE) return sign | 0x7c00;
  if (magnitude >= F16_NORMAL) return sign | ((magnitude - (112 << 23) + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
  const units = Math.abs(value) * 2 ** 24;
  const below = Math.floor(units);
  const rest = units - below;
  return sign | (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below);
}

export class SlotImage {
  readonly bytes: Uint8Array;
  private readonly format: FormatName;
  private readonly floats: Float32Array;
  private readonly halves: Uint16Array;
  private readonly depth: number;
  /** Columns side by side in one panel; 1: each column is one run. */
  private readonly lanes: number;
  /** The values of a column, and their bits. */
  private readonly column: Float32Array;
  private readonly bits: Uint32Array;

  /** `columns`: physical ones, the length of physicalToLogical. Zeros at first. */
  constructor(weight: WeightDecl, columns: number) {
    const { layout, format, name } = weight;
    if (format !== 'f32' && format !== 'bf16' && format !== 'f16')
      throw new Error(`Weight ${name}: a slot of ${format}.`);
    if (layout !== 'panels' && layout !== 'kmajor' && layout !== 'rows')
      throw new Error(`Weight ${name}: a slot in layout ${layout}.`);
    this.format = format;
    this.bytes = new Uint8Array(slotBytes(weight, columns));
    const { buffer } = this.bytes;
    const none = new ArrayBuffer(0);
    this.floats = new Float32Array(format === 'f32' ? buffer : none);
    this.halves = new Uint16Array(format === 'f32' ? none : buffer);
    this.depth = packedDepth(weight);
    this.lanes = layout === 'panels' ? panelColumns(weight) : 1;
    this.column = new Float32Array(this.depth);
    this.bits = new Uint32Array(this.column.buffer);
  }

  /** Column `column` begins with `count` values from `from` on, times their factors, in f32, where there are some. */
  set(column: number, values: Float32Array, from: number, count: number, factors?: Float32Array): void {
    const { floats, halves, bits, depth, lanes, column: own } = this;
    own.set(values.subarray(from, from + count));
    if (factors !== undefined) for (let i = 0; i < count; i++) own[i] = own[i]! * factors[i]!;
    let at = Math.floor(column / lanes) * lanes * depth + (column % lanes);
    switch (this.format) {
      case 'f32':
        for (let i = 0; i < count; i++, at += lanes) floats[at] = own[i]!;
        return;
      case 'bf16':
        for (let i = 0; i < count; i++, at += lanes) halves[at] = bf16Bits(bits[i]!);
        return;
      case 'f16':
        for (let i = 0; i < count; i++, at += lanes) halves[at] = f16Bits(bits[i]!, own[i]!);
        return;
      default:
        this.format satisfies never;
    }
  }
}
