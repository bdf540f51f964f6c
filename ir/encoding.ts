/**
 * Encodings: how a matrix [rows, k] lies in files whose elements are no floats of their own, one record for each. The
 * reader of a checkpoint makes the record, runtime/native/encoded.cc and, on a GPU,
 * runtime/cuda/packCodeKernels.ts decode what it says, and decode here is their reference.
 *
 * The value of an element is one f32: the exact value of its formula, rounded once. So it is the same wherever it is
 * decoded.
 */
import { BLOCKS, type StoredBlock } from './blocks.js';
import { e2m1Value } from './microscaled.js';
import { FORMATS, type FormatName } from './storage.js';

/**
 * Numbers of at most 8 bits; `e4m3` has NaN and no infinities (E4M3FN). `e2m1` has 4 bits and neither, as MX formats
 * have it: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
 */
const CODE_TYPES = ['u2', 'u4', 'u8', 'i8', 'e4m3', 'e5m2', 'e2m1'] as const;
export type CodeType = (typeof CODE_TYPES)[number];

interface CodeFacts {
  readonly bits: 2 | 4 | 8;
  readonly isFloat: boolean;
  readonly valueOf: (code: number) => number;
}

/** Sign, exponent of `exponentBits` with bias 2^(exponentBits − 1) − 1, fraction: finite values. */
function smallFloat(code: number, exponentBits: number): number {
  const fractionBits = 7 - exponentBits;
  const bias = 2 ** (exponentBits - 1) - 1;
  const exponent = (code & 0x7f) >> fractionBits;
  const fraction = (code & (2 ** fractionBits - 1)) / 2 ** fractionBits;
  const magnitude = exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias);
  return code & 0x80 ? -magnitude : magnitude;
}

export const CODES: Readonly<Record<CodeType, CodeFacts>> = {
  u2: { bits: 2, isFloat: false, valueOf: (code) => code },
  u4: { bits: 4, isFloat: false, valueOf: (code) => code },
  u8: { bits: 8, isFloat: false, valueOf: (code) => code },
  i8: { bits: 8, isFloat: false, valueOf: (code) => (code << 24) >> 24 },
  e4m3: { bits: 8, isFloat: true, valueOf: (code) => ((code & 0x7f) === 0x7f ? NaN : smallFloat(code, 4)) },
  e5m2: {
    bits: 8,
    isFloat: true,
    valueOf: (code) =>
      (code & 0x7f) > 0x7c ? NaN : (code & 0x7f) === 0x7c ? (code & 0x80 ? -Infinity : Infinity) : smallFloat(code, 5),
  },
  e2m1: { bits: 4, isFloat: true, valueOf: e2m1Value },
};

/** A matrix of codes. Neighbours share a word, little endian. */
export interface CodeGrid {
  readonly type: CodeType;
  readonly wordBytes: 1 | 4;
  /** Whether codes of a word are neighbours in a row (of one row, in several columns), or in a column. */
  readonly along: 'row' | 'column';
  /** True if words lie one after another by columns, false if by rows. */
  readonly isTransposed: boolean;
  /** Its place in the word, in codes from the lowest bits, of each of the neighbours: a permutation. */
  readonly places: readonly number[];
}

export const SCALE_TYPES = ['f32', 'f16', 'bf16', 'e8m0'] as const;
/** `e8m0`: a power of two, 2^(code − 127). */
export type ScaleType = (typeof SCALE_TYPES)[number];

/** A factor for each block of blockRows × blockColumns elements; the last blocks of a matrix may be smaller. */
export interface ScaleGrid {
  readonly type: ScaleType;
  readonly blockRows: number;
  readonly blockColumns: number;
  readonly isTransposed: boolean;
}

/** What is subtracted from codes: a constant, or a code for each scale, to which `added` is added modulo its range. */
export type ZeroPoint =
  | { readonly kind: 'constant'; readonly value: number }
  | { readonly kind: 'stored'; readonly codes: CodeGrid; readonly added: number };

/** (code − zero point) · scale, in f32. */
export interface CodesEncoding {
  readonly kind: 'codes';
  readonly codes: CodeGrid;
  readonly scales: ScaleGrid;
  readonly zero: ZeroPoint;
  /** Whether part `groups`, i32[k], names the column of blocks that each column belongs to. */
  readonly hasGroups: boolean;
}

/** Rows of blocks, each of which holds its own scales. */
export interface BlocksEncoding {
  readonly kind: 'blocks';
  readonly block: StoredBlock;
}

export type Encoding = CodesEncoding | BlocksEncoding;

export const PART_NAMES = ['codes', 'scales', 'zeros', 'groups', 'blocks'] as const;
/** Parts of an encoded matrix, each in one piece of a file. */
export type PartName = (typeof PART_NAMES)[number];
export type PerPart<T> = { readonly [P in PartName]?: T };

/** Where a part lies. */
export interface FilePart {
  /** Absolute path. */
  readonly file: string;
  /** Bytes from the start of the file. */
  readonly offset: number;
  readonly byteLength: number;
  /** The tensor's name in the file, for messages. */
  readonly tensor?: string;
}

const inOrder = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i);

/** Codes of a byte each, by rows. */
export const byteCodes = (type: 'u8' | 'i8' | 'e4m3' | 'e5m2'): CodeGrid => ({
  type,
  wordBytes: 1,
  along: 'row',
  isTransposed: false,
  places: [0],
});

/** Codes in words of 32 bits, lowest bits first unless `places` says another order. */
export const wordCodes = (
  type: 'u2' | 'u4' | 'u8' | 'e2m1',
  along: CodeGrid['along'],
  isTransposed: boolean,
  places: readonly number[] = inOrder(32 / CODES[type].bits),
): CodeGrid => ({ type, wordBytes: 4, along, isTransposed, places });

/** Words of a grid [rows, columns]. */
function wordsOf({ along, places }: CodeGrid, rows: number, columns: number): readonly [number, number] {
  const [down, across] = along === 'column' ? [places.length, 1] : [1, places.length];
  return [Math.ceil(rows / down), Math.ceil(columns / across)];
}

/** Blocks of scales: [rows, columns]. */
const scaleBlocks = ({ blockRows, blockColumns }: ScaleGrid, rows: number, k: number): readonly [number, number] => [
  Math.ceil(rows / blockRows),
  Math.ceil(k / blockColumns),
];

const SCALE_BYTES: Readonly<Record<ScaleType, number>> = { f32: 4, f16: 2, bf16: 2, e8m0: 1 };

function gridBytes(grid: CodeGrid, rows: number, columns: number): number {
  const [wordRows, wordColumns] = wordsOf(grid, rows, columns);
  return wordRows * wordColumns * grid.wordBytes;
}

/** Bytes of each part of a matrix [rows, k]. */
export function partBytes(encoding: Encoding, rows: number, k: number): PerPart<number> {
  if (encoding.kind === 'blocks') {
    const { elements, bytes } = BLOCKS[encoding.block];
    return { blocks: rows * (k / elements) * bytes };
  }
  const { codes, scales, zero, hasGroups } = encoding;
  const [blockRows, blockColumns] = scaleBlocks(scales, rows, k);
  return {
    codes: gridBytes(codes, rows, k),
    scales: blockRows * blockColumns * SCALE_BYTES[scales.type],
    ...(zero.kind === 'stored' ? { zeros: gridBytes(zero.codes, blockRows, blockColumns) } : {}),
    ...(hasGroups ? { groups: 4 * k } : {}),
  };
}

const turnedGrid = (grid: CodeGrid): CodeGrid => ({
  ...grid,
  along: grid.along === 'row' ? 'column' : 'row',
  isTransposed: !grid.isTransposed,
});

/** The encoding of the transpose, of the same parts; undefined where rows are blocks, or columns have groups. */
export function transposed(encoding: Encoding): CodesEncoding | undefined {
  if (encoding.kind === 'blocks' || encoding.hasGroups) return undefined;
  const { codes, scales, zero } = encoding;
  return {
    ...encoding,
    codes: turnedGrid(codes),
    scales: {
      ...scales,
      blockRows: scales.blockColumns,
      blockColumns: scales.blockRows,
      isTransposed: !scales.isTransposed,
    },
    zero: zero.kind === 'stored' ? { ...zero, codes: turnedGrid(zero.codes) } : zero,
  };
}

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value > 0;

function gridProblem({ type, wordBytes, places }: CodeGrid): string | undefined {
  const inWord = (8 * wordBytes) / CODES[type].bits;
  const isOrder = places.length === inWord && new Set(places).size === inWord;
  return isOrder && places.every((place) => Number.isInteger(place) && place >= 0 && place < inWord)
    ? undefined
    : `the order [${places.join(', ')}] of codes is no order of the ${inWord} in a word`;
}

/** Why a matrix [rows, k] cannot be encoded so; undefined if it can. */
export function encodingProblem(encoding: Encoding, rows: number, k: number): string | undefined {
  if (!isCount(rows) || !isCount(k) || !isCount(rows * k)) return `it has the shape [${rows}, ${k}]`;
  if (encoding.kind === 'blocks') {
    const { elements } = BLOCKS[encoding.block];
    return k % elements === 0 ? undefined : `rows of ${k} are not whole blocks of ${elements}`;
  }
  const { codes, scales, zero } = encoding;
  const { blockRows, blockColumns } = scales;
  if (!isCount(blockRows) || !isCount(blockColumns)) return `scales are for [${blockRows}, ${blockColumns}] elements`;
  if (zero.kind === 'stored' && CODES[zero.codes.type].isFloat) return 'zero points are floats';
  return gridProblem(codes) ?? (zero.kind === 'stored' ? gridProblem(zero.codes) : undefined);
}

function codeAt(grid: CodeGrid, bytes: Uint8Array, rows: number, columns: number, row: number, column: number): number {
  const [wordRows, wordColumns] = wordsOf(grid, rows, columns);
  const per = grid.places.length;
  const [r, c] = grid.along === 'column' ? [Math.floor(row / per), column] : [row, Math.floor(column / per)];
  const index = grid.isTransposed ? c * wordRows + r : r * wordColumns + c;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const word = grid.wordBytes === 1 ? view.getUint8(index) : view.getUint32(4 * index, true);
  const { bits } = CODES[grid.type];
  return (word >>> (bits * grid.places[(grid.along === 'column' ? row : column) % per]!)) & (2 ** bits - 1);
}

/** All scales as stored, in float64. */
function decodeScales(type: ScaleType, bytes: Uint8Array): Float64Array {
  if (type === 'e8m0') return Float64Array.from(bytes, (code) => (code === 255 ? NaN : 2 ** (code - 127)));
  return FORMATS[type satisfies FormatName].decode(bytes);
}

/** What is wrong with the bytes of an encoded tensor, and in which of its parts. */
export class EncodingError extends Error {
  readonly part: keyof PerPart<unknown>;

  constructor(part: keyof PerPart<unknown>, message: string) {
    super(message);
    this.name = 'EncodingError';
    this.part = part;
  }
}

/** The group of each column. Throws EncodingError where groups are not as large as they must be. */
function groupsOf(bytes: Uint8Array, count: number, width: number, k: number): Int32Array {
  const groups = new Int32Array(Uint8Array.from(bytes).buffer);
  const sizes = new Array<number>(count).fill(0);
  groups.forEach((group, column) => {
    if (group < 0 || group >= count)
      throw new EncodingError('groups', `column ${column} is in group ${group} of ${count}`);
    sizes[group]!++;
  });
  sizes.forEach((size, group) => {
    const wanted = Math.min(width, k - group * width);
    if (size !== wanted)
      throw new EncodingError('groups', `group ${group} has ${size} columns, not ${wanted}: no permutation of columns`);
  });
  return groups;
}

/**
 * Element by element, for interpreters and tests. Throws EncodingError for a scale that is zero or not finite, and for
 * groups that are not as large as they must be.
 */
export function decodeEncoded(encoding: Encoding, rows: number, k: number, parts: PerPart<Uint8Array>): Float64Array {
  const problem = encodingProblem(encoding, rows, k);
  if (problem !== undefined) throw new Error(problem);
  const out = new Float64Array(rows * k);
  if (encoding.kind === 'blocks') {
    const { elements, bytes, decode } = BLOCKS[encoding.block];
    for (let block = 0; block < (rows * k) / elements; block++)
      out.set(decode(parts.blocks!.subarray(block * bytes, (block + 1) * bytes)), block * elements);
    return out.map(Math.fround);
  }
  const { codes, scales, zero, hasGroups } = encoding;
  const [blockRows, blockColumns] = scaleBlocks(scales, rows, k);
  const factors = decodeScales(scales.type, parts.scales!);
  const groups = hasGroups ? groupsOf(parts.groups!, blockColumns, scales.blockColumns, k) : undefined;
  const { valueOf } = CODES[codes.type];
  for (let row = 0; row < rows; row++) {
    const r = Math.floor(row / scales.blockRows);
    for (let column = 0; column < k; column++) {
      const c = groups === undefined ? Math.floor(column / scales.blockColumns) : groups[column]!;
      const scale = factors[scales.isTransposed ? c * blockRows + r : r * blockColumns + c]!;
      if (!Number.isFinite(scale) || scale === 0)
        throw new EncodingError('scales', `the scale of row ${row}, column ${column} is ${scale}`);
      const code = valueOf(codeAt(codes, parts.codes!, rows, k, row, column));
      out[row * k + column] = Math.fround((code - zeroAt(zero, parts, blockRows, blockColumns, r, c)) * scale);
    }
  }
  return out;
}

function zeroAt(
  zero: ZeroPoint,
  { zeros }: PerPart<Uint8Array>,
  rows: number,
  columns: number,
  row: number,
  column: number,
): number {
  if (zero.kind === 'constant') return zero.value;
  const { bits, valueOf } = CODES[zero.codes.type];
  return valueOf((codeAt(zero.codes, zeros!, rows, columns, row, column) + zero.added) & (2 ** bits - 1));
}
