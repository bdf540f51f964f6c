/**
 * Weights of 4 bits with a scale and a zero point for each row and group of columns. The value of an element is
 * (code − zero)·scale, and a contraction means
 *
 *     acc[row, j] = Σ_g scale[j, g] · Σ_{k in g} a[row, k]·(code[j, k] − zero[j, g])
 *
 * where the sum of a group is in f32 in order of k, and is added to the total by one fused multiply-add, in order of
 * groups. Codes less zero points are integers of at most 15, exact in any 16-bit float.
 *
 * Memory (layout `groups`): blocks of 8 rows × 128 columns, those of 128 columns one after another, so that many rows
 * of them are one stretch. A block is 128 words of codes, 16 for each row, then for each row the word of each of its
 * groups: the scale's f32 with the zero point in the lowest eight bits, which scales of 16 bits leave free. Word
 * 4·q + i of a row has columns 32·i + 2·q and its neighbour, and those 8, 16 and 24 behind them: the elements that lane
 * q of a quad multiplies in two steps of tensor cores. Pair p of a word is in bits 4·p and 4·p + 16.
 */

export const GROUP_SIZES = [32, 64, 128] as const;
export type GroupSize = (typeof GROUP_SIZES)[number];

/** Rows and columns of a block. */
export const BLOCK_ROWS = 8;
export const BLOCK_COLUMNS = 128;
const CODE_WORDS = 128;
const WORDS_OF_ROW = 16;
/** Bits of a scale's word that hold the zero point: a byte, so that one instruction finds it. */
export const ZERO_BITS = 255;

/** 32-bit words of a block. */
export const blockWords = (group: GroupSize): number => CODE_WORDS + (BLOCK_ROWS * BLOCK_COLUMNS) / group;

/** Bytes of a matrix of `rows` rows, a multiple of 8, and k columns, a multiple of 128. */
export const groupedBytes = (rows: number, k: number, group: GroupSize): number =>
  (rows / BLOCK_ROWS) * (k / BLOCK_COLUMNS) * blockWords(group) * 4;

/** The first word of a block, in a matrix of `rows` rows. */
const blockAt = (row: number, chunk: number, rows: number, group: GroupSize): number =>
  (chunk * (rows / BLOCK_ROWS) + Math.floor(row / BLOCK_ROWS)) * blockWords(group);

/** The word of a code, and the bits below it, in a matrix of `rows` rows. */
export function codePlace(
  row: number,
  column: number,
  rows: number,
  group: GroupSize,
): { readonly word: number; readonly shift: number } {
  const block = blockAt(row, Math.floor(column / BLOCK_COLUMNS), rows, group);
  const within = column % 32;
  const lane = (within % 8) >> 1;
  const word = 4 * lane + Math.floor((column % BLOCK_COLUMNS) / 32);
  return {
    word: block + (row % BLOCK_ROWS) * WORDS_OF_ROW + word,
    shift: 4 * (within >> 3) + 16 * (within & 1),
  };
}

/** The word of a group's scale and zero point, in a matrix of `rows` rows. */
export function scalePlace(row: number, index: number, rows: number, group: GroupSize): number {
  const inBlock = BLOCK_COLUMNS / group;
  return (
    blockAt(row, Math.floor(index / inBlock), rows, group) +
    CODE_WORDS +
    (row % BLOCK_ROWS) * inBlock +
    (index % inBlock)
  );
}

/** The group in which weights are kept whose scales are for `columns` columns of k; undefined if there is none. */
export function groupOf(columns: number, k: number): GroupSize | undefined {
  if (k % BLOCK_COLUMNS !== 0) return undefined;
  // A scale for more columns is repeated.
  if (columns % BLOCK_COLUMNS === 0) return BLOCK_COLUMNS;
  return GROUP_SIZES.find((size) => size === columns);
}

/** A matrix in groups: codes [rows, k], scales and zero points [rows, k / group]. */
export interface Grouped {
  readonly codes: Uint8Array;
  readonly scales: Float64Array;
  readonly zeros: Uint8Array;
}

const SINGLE = new Float32Array(1);
const BITS = new Uint32Array(SINGLE.buffer);

/** Its f32 without the bits of zero points, rounded to bf16. */
function shortened(value: number): number {
  SINGLE[0] = value;
  const bits = BITS[0]!;
  BITS[0] = (bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000;
  return SINGLE[0];
}

/**
 * The nearest codes around 8 of each group, whose largest magnitude becomes 7. What is in such groups stays as it is.
 */
export function roundToGroups(values: Float64Array, group: GroupSize): Grouped {
  const count = values.length / group;
  const [codes, scales] = [new Uint8Array(values.length), new Float64Array(count)];
  for (let i = 0; i < count; i++) {
    const own = values.subarray(i * group, (i + 1) * group);
    const scale = shortened(own.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 7);
    scales[i] = scale === 0 ? 1 : scale;
    own.forEach((value, j) => (codes[i * group + j] = Math.min(15, 8 + Math.round(value / scales[i]!))));
  }
  return { codes, scales, zeros: new Uint8Array(count).fill(8) };
}

/** Values of a matrix in groups. */
export const valuesOfGroups = ({ codes, scales, zeros }: Grouped, group: GroupSize): Float64Array =>
  Float64Array.from(codes, (code, i) => {
    const at = Math.floor(i / group);
    return (code - zeros[at]!) * scales[at]!;
  });

/** The word of a scale and its zero point. Throws where the scale has digits that the word does not hold. */
function scaleWord(scale: number, zero: number): number {
  SINGLE[0] = scale;
  if (SINGLE[0] !== scale || (BITS[0]! & ZERO_BITS) !== 0) throw new Error(`a scale of ${scale} is none of 16 bits`);
  return BITS[0]! | zero;
}

/** The memory of a matrix [rows, k]; `rowOf` is the row at each physical one, −1 for none. For tests. */
export function packGroups(matrix: Grouped, rowOf: Int32Array, k: number, group: GroupSize): Uint32Array {
  const words = new Uint32Array(groupedBytes(rowOf.length, k, group) / 4);
  const count = k / group;
  rowOf.forEach((row, at) => {
    if (row < 0) return;
    for (let column = 0; column < k; column++) {
      const { word, shift } = codePlace(at, column, rowOf.length, group);
      words[word] = (words[word]! | (matrix.codes[row * k + column]! << shift)) >>> 0;
    }
    for (let i = 0; i < count; i++)
      words[scalePlace(at, i, rowOf.length, group)] = scaleWord(
        matrix.scales[row * count + i]!,
        matrix.zeros[row * count + i]!,
      );
  });
  return words;
}
