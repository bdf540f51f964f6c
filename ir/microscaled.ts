/**
 * Weights of 4 bits with a power of two for every 32 columns of a row (MXFP4, of the OCP's microscaling formats,
 * version 1.0). The value of an element is code · 2^e, where a code has E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
 * negatives. It is exact in bf16, so a contraction with these weights has the bits of the same numbers in bf16.
 *
 * Which power of two a block has follows from its values: the largest magnitude has code 4 or 6. So a matrix that is
 * stored in MXFP4 keeps its values, whatever powers its file has.
 *
 * Memory (layout `microscaled`): blocks of 16 rows × 64 columns, those of 64 columns one after another, so that many
 * rows of them are one stretch. A block is 128 words of codes, four for each lane of a warp, then a byte for each row
 * and 32 columns. Lane 4·g + q has words of rows g and g + 8, two each, of which one has 32 columns: pair p of a word
 * is columns 8·p + 2·q and the next. These are what the lane multiplies in two steps of tensor cores.
 *
 * Bits of a word: each pair has its first column in the lower half of the word, its second in the upper one. The sign,
 * two bits of exponent and one of fraction lie in bits 15, 8, 7, 6 of a half (pair 0); 12, 5, 4, 3 (pair 1); 9, 2, 1, 0
 * (pair 2); 14, 13, 11, 10 (pair 3). Shifted to the places of pair 0 they are bf16 numbers, 2^-126 times the codes'
 * values: subnormal ones too. A byte b stands for 2^(b − 127), by which these are multiplied: b = e + 253. It is 255,
 * an infinity, where the block has a magnitude of 16 or more, or one that is no number: no model has such weights, and
 * no result is finite then.
 */

/** Columns with a common power of two, and rows and columns of a block of memory. */
export const MICRO_COLUMNS = 32;
export const MICRO_ROWS = 16;
export const MICRO_DEPTH = 64;
const CODE_BYTES = 512;
/** Bytes of a block of memory. */
export const MICRO_BYTES = CODE_BYTES + (MICRO_ROWS * MICRO_DEPTH) / MICRO_COLUMNS;
/** Of the byte of a block whose values are in range. */
const BIAS = 253;
const NO_NUMBER = 255;

/** Bytes of a matrix of `rows` rows, a multiple of 16, and k columns, a multiple of 64. */
export const microscaledBytes = (rows: number, k: number): number =>
  (rows / MICRO_ROWS) * (k / MICRO_DEPTH) * MICRO_BYTES;

/** Places of the bits of a pair's elements in half a word: fraction, exponent, sign. */
const PLACES = [
  [6, 7, 8, 15],
  [3, 4, 5, 12],
  [0, 1, 2, 9],
  [10, 11, 13, 14],
] as const;

/** The first byte of the block of an element, in a matrix of `rows` rows. */
const blockAt = (row: number, column: number, rows: number): number =>
  (Math.floor(column / MICRO_DEPTH) * (rows / MICRO_ROWS) + Math.floor(row / MICRO_ROWS)) * MICRO_BYTES;

/** The byte of a power of two. */
export const powerPlace = (row: number, column: number, rows: number): number =>
  blockAt(row, column, rows) +
  CODE_BYTES +
  (row % 8) * 4 +
  (Math.floor(row / 8) % 2) * 2 +
  (Math.floor(column / MICRO_COLUMNS) % 2);

/** The word of a code, as a byte offset, and the bits of its fraction, exponent and sign. */
export function microPlace(
  row: number,
  column: number,
  rows: number,
): { readonly word: number; readonly bits: readonly number[] } {
  const within = column % MICRO_COLUMNS;
  const lane = (row % 8) * 4 + ((within % 8) >> 1);
  const word = lane * 4 + (Math.floor(row / 8) % 2) * 2 + (Math.floor(column / MICRO_COLUMNS) % 2);
  const shift = 16 * (within & 1);
  return { word: blockAt(row, column, rows) + 4 * word, bits: PLACES[within >> 3]!.map((place) => place + shift) };
}

/** Magnitudes half way between neighbouring codes; of two equally near ones the even code is taken. */
const CUTS = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5] as const;
const MAGNITUDES = [0, 0.5, 1, 1.5, 2, 3, 4, 6] as const;

/** The code, sign and all, that is nearest to a value. */
function codeOf(value: number): number {
  const magnitude = Math.abs(value);
  const code = CUTS.filter((cut, i) => (i % 2 === 0 ? magnitude > cut : magnitude >= cut)).length;
  return code | (value < 0 || Object.is(value, -0) ? 8 : 0);
}

/** The value of a code without its power. */
export const e2m1Value = (code: number): number => (code & 8 ? -1 : 1) * MAGNITUDES[code & 7]!;

/** Rows of k columns as codes, and for every 32 of them the exponent of their power of two. */
interface Microscaled {
  readonly codes: Uint8Array;
  /** Infinity where there is no such. */
  readonly exponents: Float64Array;
}

function microscale(values: Float64Array): Microscaled {
  const count = values.length / MICRO_COLUMNS;
  const [codes, exponents] = [new Uint8Array(values.length), new Float64Array(count)];
  for (let i = 0; i < count; i++) {
    const own = values.subarray(i * MICRO_COLUMNS, (i + 1) * MICRO_COLUMNS).map(Math.fround);
    const most = own.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    // Math.log2 may miss a whole number by a last bit.
    let exponent = Math.floor(Math.log2(most));
    if (2 ** exponent > most) exponent--;
    if (2 ** (exponent + 1) <= most) exponent++;
    exponents[i] = most === 0 ? 0 : most < 16 ? Math.max(exponent, -126) - 2 : Infinity;
    own.forEach((value, j) => (codes[i * MICRO_COLUMNS + j] = codeOf(value / 2 ** exponents[i]!)));
  }
  return { codes, exponents };
}

/** The nearest values that are stored so; those that are stay as they are. */
export function roundToMicroscaled(values: Float64Array): Float64Array {
  const { codes, exponents } = microscale(values);
  return Float64Array.from(codes, (code, i) => e2m1Value(code) * 2 ** exponents[Math.floor(i / MICRO_COLUMNS)]!);
}

/** The memory of matrices [rows, k]; `rowOf` is the row at each physical one, −1 for none. For tests. */
export function packMicroscaled(values: Float64Array, rowOf: Int32Array, k: number, matrices = 1): Uint8Array {
  const { codes, exponents } = microscale(values);
  const rows = rowOf.length / matrices;
  const size = microscaledBytes(rows, k);
  const bytes = new Uint8Array(matrices * size);
  const view = new DataView(bytes.buffer);
  rowOf.forEach((row, at) => {
    if (row < 0) return;
    const [own, first] = [at % rows, Math.floor(at / rows) * size];
    for (let column = 0; column < k; column++) {
      const { word, bits } = microPlace(own, column, rows);
      const code = codes[row * k + column]!;
      const set = bits.reduce((sum, bit, i) => sum | (((code >> i) & 1) << bit), 0);
      view.setUint32(first + word, (view.getUint32(first + word, true) | set) >>> 0, true);
      const exponent = exponents[(row * k + column) / MICRO_COLUMNS]!;
      if (column % MICRO_COLUMNS === 0)
        bytes[first + powerPlace(own, column, rows)] = exponent === Infinity ? NO_NUMBER : exponent + BIAS;
    }
  });
  return bytes;
}
