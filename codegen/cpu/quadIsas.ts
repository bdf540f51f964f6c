/** The table of what register tiles of bytes need, for each instruction set. */
import type { CpuIsa } from '../../ir/plan.js';
import type { QuadName } from '../../ir/quads.js';

/** Instruction sets with tiles of vectors that are printed. `avxvnni` multiplies quads of 8 columns at once. */
export type QuadIsa = Exclude<CpuIsa, 'amx'> | 'avxvnni';

/**
 * The tiles of a schedule, weakest first. Where there are two, their results have the same bits, and the processor
 * decides which of them runs, so that an artifact runs anywhere.
 */
export const quadIsas = (isa: CpuIsa): readonly QuadIsa[] =>
  isa === 'amx' ? ['avx512'] : isa === 'avx2' ? ['avx2', 'avxvnni'] : [isa];

const range = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i);
const quad = (a: string, offset: number): string => `*(const tw_quad *)(${a} + ${offset})`;

const AVX2: QuadVectors = {
  int: '__m256i',
  codes: '__m256i',
  float: '__m256',
  lanes: 8,
  zero: '_mm256_setzero_si256()',
  setInt: '_mm256_set1_epi32',
  load: 'tw_q256_load',
  take: 'tw_q256_take',
  or: '_mm256_or_si256',
  halves: 'tw_q256_halves',
  bytes: 'tw_q256_bytes',
  signed: 'tw_q256_signed',
  set: '_mm256_set1_ps',
  multiply: '_mm256_mul_ps',
  loadFloat: '_mm256_loadu_ps',
  storeFloat: '_mm256_storeu_ps',
  subtract: '_mm256_sub_epi32',
  toFloat: (value) => `_mm256_cvtepi32_ps(${value})`,
  fma: (a, b, c) => `_mm256_fmadd_ps(${a}, ${b}, ${c})`,
  fnma: (a, b, c) => `_mm256_fnmadd_ps(${a}, ${b}, ${c})`,
  addTo: (place, value) => `tw_q256_add(${place}, ${value});`,
  dot: (sum, name, first, bits, a, depth) => {
    const at = (i: number): number => 4 * (first + i);
    const w = (i: number): string => `${name}${first + i}`;
    if (bits === 8)
      return [0, 1, 2, 3].map(
        (i) => `TW_Q256_WIDE(${sum}, ${w(i)}, ${quad(a, depth + at(i))}, ${quad(a, 2 * depth + at(i))});`,
      );
    // Of 4 and 5 bits, sums of 8 products fit 16 bits; of 6 bits, sums of 4.
    const part = (i: number): string => `TW_Q256_PART(${w(i)}, ${quad(a, at(i))})`;
    const pair = (i: number): string => `_mm256_add_epi16(${part(i)}, ${part(i + 1)})`;
    return bits < 6
      ? [`TW_Q256_SUM(${sum}, _mm256_add_epi16(${pair(0)}, ${pair(2)}));`]
      : [`TW_Q256_SUM(${sum}, ${pair(0)});`, `TW_Q256_SUM(${sum}, ${pair(2)});`];
  },
  widen: (value, at, vector, zero) =>
    ['EVEN', 'ODD'].map(
      (half, i) =>
        `_mm256_storeu_si256((__m256i *)(codes + ${128 * at + 64 * i + 32 * vector}), ` +
        `_mm256_sub_epi16(TW_Q256_${half}(${value}), _mm256_set1_epi16(${zero})));`,
    ),
  across: {
    sums: 8,
    dot: (at, places, rows, depth) => [
      ...rows.flatMap((row, r) =>
        [1, 2].map((half) => `const __m256i a${r}_${half} = _mm256_set1_epi32(${quad(row, half * depth + 4 * at)});`),
      ),
      ...places.flatMap((place, j) => [
        '{',
        `const __m256i w = tw_q256_load(${place}), even = TW_Q256_EVEN(w), odd = TW_Q256_ODD(w);`,
        ...rows.flatMap((_, r) => [
          `TW_Q256_MADD(c${r}_${j}, even, a${r}_1);`,
          `TW_Q256_MADD(c${r}_${j}, odd, a${r}_2);`,
        ]),
        '}',
      ]),
    ],
  },
  widenedZero: false,
  quadBytes: 128,
  many: (at, mr, nv, { pitch, depth }) =>
    [0, 1].flatMap((half) => [
      '{',
      ...range(nv).map((j) => `const __m256i b${j} = tw_q256_load(w + ${128 * at + 64 * half + 32 * j});`),
      ...range(mr).flatMap((r) => [
        `const __m256i a${r} = _mm256_set1_epi32(${quad('a', r * pitch + (1 + half) * depth + 4 * at)});`,
        ...range(nv).map((j) => `TW_Q256_MADD(c${r}_${j}, b${j}, a${r});`),
      ]),
      '}',
    ]),
  loadInt: (place) => `_mm256_loadu_si256((const __m256i *)(${place}))`,
  storeInt: (place, value) => `_mm256_storeu_si256((__m256i *)(${place}), ${value});`,
  hasPairs: true,
  header: 'lib/codes256.h',
};

const dot256 = (sum: string, w: string, a: string): string => `${sum} = _mm256_dpbusd_avx_epi32(${sum}, ${w}, ${a});`;
const quad256 = (a: string, offset: number): string => `_mm256_set1_epi32(${quad(a, offset)})`;

const AVX_VNNI: QuadVectors = {
  ...AVX2,
  dot: (sum, name, first, _bits, a) =>
    range(4).map((i) => dot256(sum, `${name}${first + i}`, quad256(a, 4 * (first + i)))),
  widen: (value, at, vector) => [`_mm256_storeu_si256((__m256i *)(codes + ${64 * at + 32 * vector}), ${value});`],
  widenedZero: true,
  quadBytes: 64,
  across: {
    sums: 8,
    dot: (at, places, rows) => [
      ...rows.map((row, r) => `const __m256i a${r} = ${quad256(row, 4 * at)};`),
      ...places.flatMap((place, j) => [
        '{',
        `const __m256i w = tw_q256_load(${place});`,
        ...rows.map((_, r) => dot256(`c${r}_${j}`, 'w', `a${r}`)),
        '}',
      ]),
    ],
  },
  many: (at, mr, nv, { pitch }) => [
    '{',
    ...range(nv).map((j) => `const __m256i b${j} = tw_q256_load(w + ${64 * at + 32 * j});`),
    ...range(mr).flatMap((r) => [
      `const __m256i a${r} = ${quad256('a', r * pitch + 4 * at)};`,
      ...range(nv).map((j) => dot256(`c${r}_${j}`, `b${j}`, `a${r}`)),
    ]),
    '}',
  ],
  needs: 'avxvnni',
  hasPairs: false,
};

/** Rows by the two vectors of a tile's columns. */
const bytesBy =
  (add: string): QuadVectors['many'] =>
  (at, mr, _nv, { pitch, bounded = 0 }) => [
    '{',
    ...[0, 1].map((j) => `const __m256i b${j} = tw_q256_load(w + ${64 * at + 32 * j});`),
    ...range(mr).map((r) => `${add}(c${r}_0, c${r}_1, b0, b1, ${quad('a', r * pitch + bounded + 4 * at)});`),
    '}',
  ];

/**
 * Bytes without AVX-VNNI: vpmaddubsw adds pairs of products in 16 bits, which hold 255 · 128. Codes of weights of up to
 * 6 bits are below 64. With those of 8 bits, rows have codes of which no pair has a sum above 128, and what was taken
 * off is multiplied behind the others.
 */
const AVX2_BYTES: QuadVectors = {
  ...AVX2,
  widen: AVX_VNNI.widen,
  widenedZero: AVX_VNNI.widenedZero,
  quadBytes: AVX_VNNI.quadBytes,
  many: bytesBy('TW_Q256_BYTES'),
  narrow: {
    many: bytesBy('TW_Q256_NARROW'),
    widened: (sum, start) => `_mm256_add_epi32(${start}, _mm256_madd_epi16(${sum}, _mm256_set1_epi16(1)))`,
  },
};

const AVX512: QuadVectors = {
  int: '__m512i',
  codes: '__m512i',
  float: '__m512',
  lanes: 16,
  zero: '_mm512_setzero_si512()',
  setInt: '_mm512_set1_epi32',
  load: '_mm512_loadu_si512',
  take: 'tw_q512_take',
  or: '_mm512_or_si512',
  halves: 'tw_q512_halves',
  bytes: 'tw_q512_bytes',
  signed: 'tw_q512_signed',
  set: '_mm512_set1_ps',
  multiply: '_mm512_mul_ps',
  loadFloat: '_mm512_loadu_ps',
  storeFloat: '_mm512_storeu_ps',
  subtract: '_mm512_sub_epi32',
  toFloat: (value) => `_mm512_cvtepi32_ps(${value})`,
  fma: (a, b, c) => `_mm512_fmadd_ps(${a}, ${b}, ${c})`,
  fnma: (a, b, c) => `_mm512_fnmadd_ps(${a}, ${b}, ${c})`,
  addTo: (place, value) => `tw_q512_add(${place}, ${value});`,
  dot: (sum, name, first, _bits, a) =>
    [0, 1, 2, 3].map((i) => `TW_DOT(${sum}, ${name}${first + i}, ${quad(a, 4 * (first + i))});`),
  widen: (value, at, vector) => [`_mm512_storeu_si512(codes + ${128 * at + 64 * vector}, ${value});`],
  widenedZero: true,
  quadBytes: 128,
  many: (at, mr, nv, { pitch }) => [
    '{',
    ...range(nv).map((j) => `const __m512i b${j} = _mm512_loadu_si512(w + ${128 * at + 64 * j});`),
    ...range(mr).flatMap((r) => range(nv).map((j) => `TW_DOT(c${r}_${j}, b${j}, ${quad('a', r * pitch + 4 * at)});`)),
    '}',
  ],
  loadInt: (place) => `_mm512_loadu_si512(${place})`,
  storeInt: (place, value) => `_mm512_storeu_si512(${place}, ${value});`,
  feature: 'avx512vnni',
  hasPairs: false,
  header: 'lib/codes512.h',
};

const PORTABLE: QuadVectors = {
  int: 'tw_i',
  codes: 'tw_q',
  float: 'tw_v',
  lanes: 16,
  zero: 'tw_seti(0)',
  setInt: 'tw_seti',
  load: 'tw_q_load',
  take: 'tw_q_take',
  or: 'tw_q_or',
  halves: 'tw_q_halves',
  bytes: 'tw_q_bytes',
  signed: 'tw_q_signed',
  set: 'tw_set1',
  multiply: 'tw_q_multiply',
  loadFloat: 'tw_load',
  storeFloat: 'tw_store',
  subtract: 'tw_q_subtract',
  toFloat: (value) => `tw_float(${value})`,
  fma: (a, b, c) => `tw_fma(${a}, ${b}, ${c})`,
  fnma: (a, b, c) => `tw_fma(-(${a}), ${b}, ${c})`,
  addTo: (place, value) => `tw_q_add(${place}, ${value});`,
  dot: (sum, name, first, _bits, a) =>
    [0, 1, 2, 3].map((i) => `tw_q_dot(&${sum}, &${name}${first + i}, ${a} + ${4 * (first + i)});`),
  widen: (value, at, vector) => [`memcpy(codes + ${128 * at + 64 * vector}, &${value}, 64);`],
  widenedZero: true,
  quadBytes: 128,
  many: (at, mr, nv, { pitch }) => [
    '{',
    ...range(nv).map((j) => `const tw_q b${j} = tw_q_load(w + ${128 * at + 64 * j});`),
    ...range(mr).flatMap((r) => range(nv).map((j) => `tw_q_dot(&c${r}_${j}, &b${j}, a + ${r * pitch + 4 * at});`)),
    '}',
  ],
  loadInt: (place) => `tw_loadi((const int32_t *)(${place}))`,
  storeInt: (place, value) => `memcpy(${place}, &${value}, 64);`,
  hasPairs: false,
  header: 'lib/codesPortable.h',
};

/** Tiles of a format: those of bytes where AVX2 has them. Scales of 32 neighbours would leave too much to bound. */
export const vectorsOf = (isa: QuadIsa, format: QuadName): QuadVectors =>
  isa === 'avx2' && format !== 'q8_0' ? AVX2_BYTES : QUAD_ISAS[isa];

export const QUAD_ISAS: Readonly<Record<QuadIsa, QuadVectors>> = {
  portable: PORTABLE,
  avx2: AVX2,
  avxvnni: AVX_VNNI,
  avx512: AVX512,
};

/** What register tiles of bytes need of an instruction set. */
export interface QuadVectors {
  /** C types of a vector of 32-bit lanes, of the codes of its quads, and of floats. */
  readonly int: string;
  readonly codes: string;
  readonly float: string;
  readonly lanes: number;
  readonly zero: string;
  readonly setInt: string;
  /** Loads the bytes of a vector's quads; (v >> n or v << −n) & mask for each byte; or. */
  readonly load: string;
  readonly take: string;
  readonly or: string;
  /** A vector of f16, of unsigned and of signed bytes, as floats. */
  readonly halves: string;
  readonly bytes: string;
  readonly signed: string;
  readonly set: string;
  readonly multiply: string;
  readonly loadFloat: string;
  readonly storeFloat: string;
  /** Of vectors of integers. */
  readonly subtract: string;
  readonly toFloat: (value: string) => string;
  readonly fma: (a: string, b: string, c: string) => string;
  /** c − a·b */
  readonly fnma: (a: string, b: string, c: string) => string;
  /** Adds a vector of integers to memory. */
  readonly addTo: (place: string, value: string) => string;
  /**
   * Statements that add products of 4 quads from `first` on, `name`N of codes of `bits`, and of the row at `a`, to
   * `sum`. The row's codes are followed by those of even and odd places in 16 bits, `depth` bytes each (AVX2).
   */
  readonly dot: (sum: string, name: string, first: number, bits: number, a: string, depth: number) => readonly string[];
  /** Statements that store the codes `value` of a quad and vector of columns for tiles of many rows. */
  readonly widen: (value: string, quad: number, vector: number, zero: number) => readonly string[];
  /** Whether these codes are unsigned still. */
  readonly widenedZero: boolean;
  /** Bytes of a quad of widened codes, of all columns of a tile. */
  readonly quadBytes: 64 | 128;
  /** Statements that add products of a quad of widened codes to all sums `c`R_V of `mr` rows and `nv` vectors. */
  readonly many: (quad: number, mr: number, nv: number, rows: RowCodes) => readonly string[];
  /**
   * The same for codes of 4 bits, where sums of the eight quads of a group fit 16 bits; and such a sum in 32 bits, plus
   * `start`. Absent: `many`.
   */
  readonly narrow?: {
    readonly many: QuadVectors['many'];
    readonly widened: (sum: string, start: string) => string;
  };
  readonly loadInt: (place: string) => string;
  readonly storeInt: (place: string, value: string) => string;
  /** Feature of the processor whose dot product of bytes takes the place of several instructions. */
  readonly feature?: string;
  /** Feature without which no function of these tiles runs. */
  readonly needs?: string;
  /**
   * Where all vectors of a panel's columns are best multiplied side by side, up to so many sums: statements that add
   * products of a quad, whose codes of 8 bits lie at `places`, and of the rows at `rows`, to `c`ROW_VECTOR.
   */
  readonly across?: {
    readonly sums: number;
    readonly dot: (
      quad: number,
      places: readonly string[],
      rows: readonly string[],
      depth: number,
    ) => readonly string[];
  };
  /** Whether rows have codes in 16 bits. */
  readonly hasPairs: boolean;
  /** Functions that tiles call. */
  readonly header: string;
}

/** Bytes from one row's codes to the next, and codes of a row. */
interface RowCodes {
  readonly pitch: number;
  readonly depth: number;
  /** Where bounded codes begin, which tiles of many rows multiply in place of the others (quadRound). */
  readonly bounded?: number;
}
