/**
 * Matrices rounded and packed as the tools do it whose checkpoints are read. Every writer also returns the values that
 * it meant, from plain lists of codes, scales and zero points: it shares no code with the decoders.
 */
import { FORMATS } from '../../ir/storage.js';

/** Stored tensors of a module by what follows its name, and the values of the matrix. */
export interface Packed {
  readonly tensors: Readonly<Record<string, StoredBytes>>;
  readonly values: Float32Array;
}

export interface StoredBytes {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export interface Matrix {
  readonly rows: number;
  readonly k: number;
  readonly values: Float32Array;
  /** Rows of the projections in it. */
  readonly projections: readonly number[];
}

export type Writer = (matrix: Matrix) => Packed;

const bytesOf = (array: ArrayBufferView): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
export const i32 = (shape: readonly number[], values: ArrayLike<number>): StoredBytes => ({
  dtype: 'I32',
  shape,
  bytes: bytesOf(Int32Array.from(values)),
});
export const float = (dtype: 'F16' | 'BF16' | 'F32', shape: readonly number[], values: Float64Array): StoredBytes => ({
  dtype,
  shape,
  bytes: FORMATS[dtype === 'F16' ? 'f16' : dtype === 'BF16' ? 'bf16' : 'f32'].encode(values),
});
const rounded = (dtype: 'F16' | 'BF16' | 'F32', value: number): number =>
  FORMATS[dtype === 'F16' ? 'f16' : dtype === 'BF16' ? 'bf16' : 'f32'].decode(
    float(dtype, [1], Float64Array.of(value)).bytes,
  )[0]!;

/** Codes of a matrix, with a scale and a zero point for each row and group. */
interface Codes {
  /** [row][column] */
  readonly codes: readonly (readonly number[])[];
  /** [row][group] */
  readonly scales: readonly (readonly number[])[];
  readonly zeros: readonly (readonly number[])[];
  readonly groupOf: readonly number[];
  readonly values: Float32Array;
}

interface Rounding {
  readonly bits: number;
  readonly size: number;
  readonly isSymmetric: boolean;
  readonly dtype: 'F16' | 'BF16' | 'F32';
  readonly isOrdered?: boolean;
}

/** Rounds to the nearest code. Columns of odd numbers come first in the order, where there is one. */
function roundCodes(
  { rows, k, values }: Matrix,
  { bits, size, isSymmetric, dtype, isOrdered = false }: Rounding,
): Codes {
  const group = size === -1 ? k : size;
  const columns = Array.from({ length: k }, (_, i) => i);
  const order = isOrdered ? [...columns.filter((i) => i % 2 === 1), ...columns.filter((i) => i % 2 === 0)] : columns;
  const groupOf = new Array<number>(k);
  order.forEach((column, at) => (groupOf[column] = Math.floor(at / group)));
  const out = new Float32Array(rows * k);
  const most = 2 ** bits - 1;
  const [codes, scales, zeros]: [number[][], number[][], number[][]] = [[], [], []];
  for (let row = 0; row < rows; row++) {
    const own = Array.from({ length: k / group }, (_, g) =>
      columns.filter((column) => groupOf[column] === g).map((column) => values[row * k + column]!),
    );
    const low = own.map((list) => Math.min(...list));
    const high = own.map((list) => Math.max(...list));
    const largest = own.map((list) => Math.max(...list.map(Math.abs)));
    scales[row] = own.map((_, g) =>
      rounded(dtype, isSymmetric ? (2 * largest[g]!) / most : (Math.max(high[g]!, 0) - Math.min(low[g]!, 0)) / most),
    );
    zeros[row] = own.map((_, g) =>
      isSymmetric ? 2 ** (bits - 1) : Math.min(most, Math.max(0, Math.round(-Math.min(low[g]!, 0) / scales[row]![g]!))),
    );
    codes[row] = columns.map((column) => {
      const g = groupOf[column]!;
      const code = Math.round(values[row * k + column]! / scales[row]![g]!) + zeros[row]![g]!;
      return Math.min(most, Math.max(0, code));
    });
    columns.forEach((column) => {
      const g = groupOf[column]!;
      out[row * k + column] = (codes[row]![column]! - zeros[row]![g]!) * scales[row]![g]!;
    });
  }
  return { codes, scales, zeros, groupOf, values: out };
}

/** `at(i)` for i < count, `bits` each, packed into words from their lowest bits on. */
function words(count: number, bits: number, at: (i: number) => number): number[] {
  const inWord = 32 / bits;
  return Array.from({ length: Math.ceil(count / inWord) }, (_, word) => {
    let packed = 0n;
    for (let i = 0; i < inWord && word * inWord + i < count; i++)
      packed |= BigInt(at(word * inWord + i)) << BigInt(bits * i);
    return Number(BigInt.asIntN(32, packed));
  });
}

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

/** GPTQ; `version` 1 stores zero points less 1. */
export const gptqWriter =
  (options: Rounding & { readonly version: 1 | 2; readonly hasIndex?: boolean }): Writer =>
  (matrix) => {
    const { rows, k } = matrix;
    const { bits, version, isOrdered = false, hasIndex = true } = options;
    const { codes, scales, zeros, groupOf, values } = roundCodes(matrix, options);
    const groups = scales[0]!.length;
    const most = 2 ** bits - 1;
    const inWord = 32 / bits;
    const ofColumn = range(rows).map((row) => words(k, bits, (column) => codes[row]![column]!));
    return {
      values,
      tensors: {
        qweight: i32(
          [k / inWord, rows],
          range(k / inWord).flatMap((word) => range(rows).map((row) => ofColumn[row]![word]!)),
        ),
        qzeros: i32(
          [groups, rows / inWord],
          range(groups).flatMap((g) => words(rows, bits, (row) => (zeros[row]![g]! - (version === 1 ? 1 : 0)) & most)),
        ),
        scales: float(
          options.dtype,
          [groups, rows],
          Float64Array.from(range(groups).flatMap((g) => range(rows).map((row) => scales[row]![g]!))),
        ),
        ...(hasIndex || isOrdered ? { g_idx: i32([k], groupOf) } : {}),
      },
    };
  };

/** AWQ for GEMM kernels: rows 0, 2, 4, 6, 1, 3, 5, 7 of eight from the lowest bits of a word on. */
export const awqWriter =
  (options: Rounding): Writer =>
  (matrix) => {
    const { rows, k } = matrix;
    const { codes, scales, zeros, values } = roundCodes(matrix, options);
    const groups = scales[0]!.length;
    const rowOf = (i: number): number => i - (i % 8) + [0, 2, 4, 6, 1, 3, 5, 7][i % 8]!;
    return {
      values,
      tensors: {
        qweight: i32(
          [k, rows / 8],
          range(k).flatMap((column) => words(rows, 4, (i) => codes[rowOf(i)]![column]!)),
        ),
        qzeros: i32(
          [groups, rows / 8],
          range(groups).flatMap((g) => words(rows, 4, (i) => zeros[rowOf(i)]![g]!)),
        ),
        scales: float(
          options.dtype,
          [groups, rows],
          Float64Array.from(range(groups).flatMap((g) => range(rows).map((row) => scales[row]![g]!))),
        ),
      },
    };
  };

/** compressed-tensors, packed. */
export const packedWriter =
  (options: Rounding): Writer =>
  (matrix) => {
    const { rows, k } = matrix;
    const { bits, isSymmetric, isOrdered = false, dtype } = options;
    const { codes, scales, zeros, groupOf, values } = roundCodes(matrix, options);
    const groups = scales[0]!.length;
    const inWord = 32 / bits;
    const zeroWords = range(groups).map((g) => words(rows, bits, (row) => zeros[row]![g]!));
    return {
      values,
      tensors: {
        weight_packed: i32(
          [rows, Math.ceil(k / inWord)],
          range(rows).flatMap((row) => words(k, bits, (i) => codes[row]![i]!)),
        ),
        weight_scale: float(dtype, [rows, groups], Float64Array.from(scales.flat())),
        weight_shape: { dtype: 'I64', shape: [2], bytes: bytesOf(BigInt64Array.of(BigInt(rows), BigInt(k))) },
        ...(isSymmetric
          ? {}
          : {
              weight_zero_point: i32(
                [Math.ceil(rows / inWord), groups],
                range(Math.ceil(rows / inWord)).flatMap((word) => range(groups).map((g) => zeroWords[g]![word]!)),
              ),
            }),
        ...(isOrdered ? { weight_g_idx: i32([k], groupOf) } : {}),
      },
    };
  };

/** The magnitudes of E4M3 by code, from the definition: bias 7, 3 bits of fraction, no infinities. */
const E4M3 = range(127).map((code) =>
  code < 8 ? (code / 8) * 2 ** -6 : (1 + (code % 8) / 8) * 2 ** (Math.floor(code / 8) - 7),
);
const toE4M3 = (value: number): number => {
  let best = 0;
  E4M3.forEach((magnitude, code) => {
    if (Math.abs(magnitude - Math.abs(value)) < Math.abs(E4M3[best]! - Math.abs(value))) best = code;
  });
  return best | (value < 0 ? 0x80 : 0);
};

/** Blocks of elements that share a scale: rows and columns of each. A row of `rows` is for each projection. */
export interface PlainOptions {
  readonly code: 'F8_E4M3' | 'I8';
  readonly block: 'matrix' | 'projection' | 'row' | readonly [number, number];
  readonly dtype: 'F16' | 'BF16' | 'F32';
  readonly scale: string;
  readonly shape: (rows: number, columns: number) => readonly number[];
  readonly more?: Readonly<Record<string, StoredBytes>>;
}

/** A byte for each element. */
export const plainWriter =
  ({ code, block, dtype, scale: name, shape, more = {} }: PlainOptions): Writer =>
  ({ rows, k, values, projections }) => {
    const starts = projections.map((_, i) => projections.slice(0, i).reduce((sum, count) => sum + count, 0));
    const [down, across] = typeof block === 'string' ? [1, k] : block;
    const blockRow = (row: number): number =>
      block === 'matrix'
        ? 0
        : block === 'projection'
          ? starts.findLastIndex((start) => start <= row)
          : Math.floor(row / down);
    const [blocks, columns] = [blockRow(rows - 1) + 1, Math.ceil(k / across)];
    const largest = new Float64Array(blocks * columns);
    const placeOf = (i: number): number => blockRow(Math.floor(i / k)) * columns + Math.floor((i % k) / across);
    values.forEach((value, i) => (largest[placeOf(i)] = Math.max(largest[placeOf(i)]!, Math.abs(value))));
    const scales = largest.map((value) => rounded(dtype, value / (code === 'I8' ? 127 : 448)));
    const codes = Uint8Array.from(values, (value, i) => {
      const x = value / scales[placeOf(i)]!;
      return code === 'I8' ? Math.max(-128, Math.min(127, Math.round(x))) & 255 : toE4M3(x);
    });
    const meant = Float32Array.from(codes, (each, i) => {
      const plain = code === 'I8' ? (each < 128 ? each : each - 256) : E4M3[each & 127]! * (each < 128 ? 1 : -1);
      return plain * scales[placeOf(i)]!;
    });
    return {
      values: meant,
      tensors: {
        weight: { dtype: code, shape: [rows, k], bytes: codes },
        [name]: float(dtype, shape(blocks, columns), scales),
        ...more,
      },
    };
  };
