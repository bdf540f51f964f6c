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
  readonly helpers: () => string;
}

/** Bytes from one row's codes to the next, and codes of a row. */
interface RowCodes {
  readonly pitch: number;
  readonly depth: number;
  /** Where bounded codes begin, which tiles of many rows multiply in place of the others (quadRound). */
  readonly bounded?: number;
}
