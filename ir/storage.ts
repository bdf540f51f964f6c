/**
 * Storage formats: how the elements of a weight are encoded in memory, one record for each format. Checkpoint readers
 * name the format of every tensor, packing converts it to the format of the weight, and code generators ask how an
 * element is loaded.
 */
import { MICRO_COLUMNS, microscaledBytes } from './microscaled.js';
import { QUAD_COLUMNS, QUADS, quadPanelBytes, unitBytes, unitDepth } from './quads.js';
import { LARGEST, roundToDType } from './round.js';
import { DTYPE_BYTES, type FloatType } from './types.js';

export { LARGEST };

/** Layouts of a packed weight; see WeightDecl. */
export const LAYOUTS = ['panels', 'vnni', 'quads', 'kmajor', 'groups', 'microscaled', 'rows'] as const;
export type Layout = (typeof LAYOUTS)[number];

/** Formats of checkpoint tensors whose elements are floats of their own. */
export const FORMAT_NAMES = ['f32', 'f16', 'bf16'] as const;
export type FormatName = (typeof FORMAT_NAMES)[number];

/** Formats of codes of 8 bits: a packed row's values are its codes times a scale, which is kept apart (rowScale). */
export const CODE_FORMATS = ['e4m3', 'i8'] as const;
export type CodeFormat = (typeof CODE_FORMATS)[number];

/** Formats of blocks of ggml (ir/blocks.ts), which hold their scales. */
export const BLOCK_NAMES = ['q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k'] as const;
export type BlockName = (typeof BLOCK_NAMES)[number];

/** Codes of 4 bits: a value is (code − zero point) · scale, both of its group of columns (ir/groups.ts). */
const GROUP_FORMATS = ['u4'] as const;

/** Codes of 4 bits in E2M1 with a power of two for every 32 columns (ir/microscaled.ts). */
const MICRO_FORMATS = ['mxfp4'] as const;

export const WEIGHT_FORMATS = [
  ...FORMAT_NAMES,
  ...CODE_FORMATS,
  ...BLOCK_NAMES,
  ...GROUP_FORMATS,
  ...MICRO_FORMATS,
] as const;
/** Formats of packed weights. */
export type WeightFormat = (typeof WEIGHT_FORMATS)[number];

export interface StorageFormat {
  readonly name: WeightFormat;
  /**
   * Number of the format in packing jobs. 0 to 2 index FORMATS of runtime/native/pack.cc; tw_format in
   * runtime/cuda/packKernels.ts also has 3, e4m3. Other formats are packed by name.
   */
  readonly code: number;
  /** Element type that generated code loads and converts to f32; bytes where it unpacks them. */
  readonly element: FloatType | CodeFormat | 'u8';
  /** Bits of an element in memory; in blocks, with its share of their scales. */
  readonly elementBits: number;
  /** Neighbouring elements of a row that are encoded together. */
  readonly blockElements: number;
  /**
   * Factors that are not part of the elements. `none`: an element is its own value. `rows`: one for each row, in a
   * weight of its own. `blocks`: in the blocks. `groups`: one for each row and group of columns, beside the codes.
   */
  readonly scales: 'none' | 'rows' | 'blocks' | 'groups';
  readonly zeroPoints: 'none' | 'groups';
  /** Whether every column may be multiplied by its own factor (a folded norm weight) at the cost of one rounding. */
  readonly takesColumnScale: boolean;
  /** Layouts in which kernels read the format. */
  readonly layouts: readonly Layout[];
  /** Bytes of a [rows, k] matrix. */
  bytes(rows: number, k: number): number;
  /** Decodes stored elements to float64, for interpreters and tests. */
  decode(bytes: Uint8Array): Float64Array;
  /** Encodes float64 values as the nearest stored elements (ties to even), for interpreters and tests. */
  encode(values: Float64Array): Uint8Array;
}

/** Reads and writes one element of at most 32 bits. Its value is exact in a double. */
interface Bits {
  readonly toValue: (bits: number) => number;
  readonly ofValue: (value: number) => number;
}

const SINGLE = new Float32Array(1);
const SINGLE_BITS = new Uint32Array(SINGLE.buffer);

const F32: Bits = {
  toValue: (bits) => {
    SINGLE_BITS[0] = bits;
    return SINGLE[0]!;
  },
  ofValue: (value) => {
    SINGLE[0] = value;
    return SINGLE_BITS[0]!;
  },
};

/** The upper half of an f32. */
const BF16: Bits = {
  toValue: (bits) => F32.toValue(bits << 16),
  ofValue: (value) => F32.ofValue(value) >>> 16,
};

/** IEEE binary16: 5 bits of exponent with bias 15, 10 of the fraction. */
const F16: Bits = {
  toValue: (bits) => {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 0x1f;
    const fraction = bits & 0x3ff;
    if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN;
    return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
  },
  ofValue: (value) => {
    const single = F32.ofValue(value);
    const sign = (single >>> 16) & 0x8000;
    const magnitude = single & 0x7fffffff;
    if (magnitude >= 0x7f800000) return sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00);
    if (Math.abs(value) < 2 ** -14) return sign | (Math.abs(value) * 2 ** 24);
    return sign | ((magnitude - (112 << 23)) >>> 13);
  },
};

/** A format whose elements are independent little-endian floats. */
function floats<N extends FormatName, const L extends readonly Layout[]>(
  name: N,
  code: number,
  layouts: L,
  bits: Bits,
): StorageFormat & { readonly name: N; readonly element: N; readonly layouts: L } {
  const elementBytes = DTYPE_BYTES[name];
  const wordsOf = (bytes: ArrayBuffer): Uint16Array | Uint32Array =>
    elementBytes === 4 ? new Uint32Array(bytes) : new Uint16Array(bytes);
  return {
    name,
    code,
    element: name,
    elementBits: 8 * elementBytes,
    blockElements: 1,
    scales: 'none',
    zeroPoints: 'none',
    takesColumnScale: true,
    layouts,
    bytes: (rows, k) => rows * k * elementBytes,
    decode: (bytes) => Float64Array.from(wordsOf(Uint8Array.from(bytes).buffer), bits.toValue),
    encode: (values) => {
      const words = wordsOf(new ArrayBuffer(values.length * elementBytes));
      values.forEach((value, i) => (words[i] = bits.ofValue(roundToDType(value, name))));
      return new Uint8Array(words.buffer);
    },
  };
}

/** A format of codes of one byte each. Elements are codes as numbers, without the scales of rows. */
function codes<N extends CodeFormat, const L extends readonly Layout[]>(
  name: N,
  code: number,
  layouts: L,
  { toValue, ofValue }: Bits,
): StorageFormat & { readonly name: N; readonly element: N; readonly layouts: L } {
  return {
    name,
    code,
    element: name,
    elementBits: 8,
    blockElements: 1,
    scales: 'rows',
    zeroPoints: 'none',
    takesColumnScale: true,
    layouts,
    bytes: (rows, k) => rows * k,
    decode: (bytes) => Float64Array.from(bytes, toValue),
    encode: (values) => Uint8Array.from(values, (value) => ofValue(roundToDType(value, name))),
  };
}

/** Sign, 4 bits of exponent with bias 7, 3 of the fraction; all ones are NaN, and there is no infinity (E4M3FN). */
const E4M3: Bits = {
  toValue: (bits) => {
    const sign = bits & 0x80 ? -1 : 1;
    const [exponent, fraction] = [(bits >> 3) & 15, bits & 7];
    if ((bits & 0x7f) === 0x7f) return NaN;
    return sign * (exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10));
  },
  ofValue: (value) => {
    const sign = value < 0 || Object.is(value, -0) ? 0x80 : 0;
    const magnitude = Math.abs(value);
    if (Number.isNaN(value)) return 0x7f;
    if (magnitude < 2 ** -6) return sign | (magnitude * 2 ** 9);
    const exponent = Math.floor(Math.log2(magnitude));
    return sign | ((exponent + 7) << 3) | (magnitude * 2 ** (3 - exponent) - 8);
  },
};

/** Codes of 4 bits without their scales, two in a byte. */
const u4 = {
  name: 'u4',
  code: 10,
  element: 'u8',
  elementBits: 4,
  blockElements: 1,
  scales: 'groups',
  zeroPoints: 'groups',
  takesColumnScale: false,
  layouts: ['groups'],
  bytes: (rows, k) => Math.ceil((rows * k) / 2),
  decode: (bytes) => Float64Array.from({ length: 2 * bytes.length }, (_, i) => (bytes[i >> 1]! >> (4 * (i & 1))) & 15),
  encode: (values) =>
    Uint8Array.from(
      { length: Math.ceil(values.length / 2) },
      (_, i) => values[2 * i]! | ((values[2 * i + 1] ?? 0) << 4),
    ),
} as const satisfies StorageFormat;

/** Codes of 4 bits with their powers of two. Values are those of ir/microscaled.ts. */
const mxfp4 = {
  name: 'mxfp4',
  code: 11,
  element: 'u8',
  elementBits: 4.25,
  blockElements: MICRO_COLUMNS,
  scales: 'blocks',
  zeroPoints: 'none',
  takesColumnScale: false,
  layouts: ['microscaled'],
  bytes: microscaledBytes,
  decode: () => refuse('mxfp4'),
  encode: () => refuse('mxfp4'),
} as const satisfies StorageFormat;

function refuse(name: string): never {
  throw new Error(`${name} is no format of single elements.`);
}

const I8: Bits = { toValue: (bits) => (bits << 24) >> 24, ofValue: (value) => value & 0xff };

/** Blocks, which are packed as they are stored. Their values are those of ir/blocks.ts. */
function blocks<N extends BlockName>(
  name: N,
  code: number,
): StorageFormat & { readonly name: N; readonly element: 'u8'; readonly layouts: readonly ['quads'] } {
  const panel = QUADS[name];
  return {
    name,
    code,
    element: 'u8',
    elementBits: (8 * unitBytes(panel)) / QUAD_COLUMNS / unitDepth(panel),
    blockElements: unitDepth(panel),
    scales: 'blocks',
    zeroPoints: 'none',
    takesColumnScale: false,
    layouts: ['quads'],
    bytes: (rows, k) => (rows / QUAD_COLUMNS) * quadPanelBytes(panel, k),
    decode: () => refuse(name),
    encode: () => refuse(name),
  };
}

/** All formats by name. */
export const FORMATS = {
  f32: floats('f32', 0, ['panels', 'rows'], F32),
  f16: floats('f16', 1, ['panels', 'kmajor', 'rows'], F16),
  bf16: floats('bf16', 2, ['panels', 'vnni', 'kmajor', 'rows'], BF16),
  e4m3: codes('e4m3', 3, ['kmajor'], E4M3),
  i8: codes('i8', 4, ['quads'], I8),
  q8_0: blocks('q8_0', 5),
  q4_0: blocks('q4_0', 6),
  q4_k: blocks('q4_k', 7),
  q5_k: blocks('q5_k', 8),
  q6_k: blocks('q6_k', 9),
  u4,
  mxfp4,
} as const satisfies Readonly<Record<WeightFormat, StorageFormat>>;

export const isBlockFormat = (name: string): name is BlockName => BLOCK_NAMES.some((each) => each === name);

export const isCodeFormat = (name: string): name is CodeFormat => CODE_FORMATS.some((each) => each === name);

/** Formats that kernels read in layout `L`. A table over them must have an entry for each to compile. */
export type FormatIn<L extends Layout> = {
  [N in WeightFormat]: L extends (typeof FORMATS)[N]['layouts'][number] ? N : never;
}[WeightFormat];

export function isFormatIn<L extends Layout>(layout: L, name: WeightFormat): name is FormatIn<L> {
  const { layouts }: StorageFormat = FORMATS[name];
  return layouts.includes(layout);
}

/** The reason why a weight of this format cannot have `layout`; undefined if it can. */
export function layoutProblem(layout: Layout, name: WeightFormat): string | undefined {
  if (isFormatIn(layout, name)) return undefined;
  const held = WEIGHT_FORMATS.filter((each) => isFormatIn(layout, each));
  return `layout ${layout} supports ${held.join(' or ')}, not ${name}`;
}

/** A rectangle of a tensor, and where it lies in a file. */
export interface FileTile {
  /** Absolute path. */
  readonly file: string;
  /** Bytes from the start of the file to its first element. */
  readonly offset: number;
  readonly row: number;
  readonly rows: number;
  readonly column: number;
  readonly columns: number;
  /** True if stored lines are its columns. Else they are its rows. */
  readonly isTransposed: boolean;
  /** Elements from the beginning of a stored line to that of the next. */
  readonly stride: number;
  /** Elements from one of a line to the next. Default: 1. */
  readonly step?: number;
}
