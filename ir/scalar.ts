/**
 * Scalar expressions: what an elementwise op, a prologue or an epilogue computes for one element. An op's definition
 * gives its expression once; the interpreter evaluates it, and every backend prints it.
 *
 * The vocabulary is a closed type: an interpreter, printer, cost table or reader that misses an operator does not
 * compile.
 */

export const UNARY = [
  'neg',
  'exp',
  'log',
  'sqrt',
  'rsqrt',
  'sin',
  'cos',
  'tanh',
  'erf',
  'floor',
  'not',
  'toF32',
  'roundBf16',
  'roundF20',
  'roundF24',
  'tailF24',
] as const;
export const BINARY = ['add', 'sub', 'mul', 'div', 'max', 'min', 'le', 'lt', 'eq', 'and', 'or', 'joinF24'] as const;
export type UnaryOp = (typeof UNARY)[number];
export type BinaryOp = (typeof BINARY)[number];

/**
 * The element of a buffer that a load reads while it computes element (row, column).
 * - `element`: buffer[row, column] - `row`: buffer[row] - `column`: buffer[column]
 * - `periodic`: buffer[row, column mod period] (rotary tables, shared by all heads)
 * - `columnPeriodic`: buffer[column mod period] (a norm weight of a head, shared by all heads; one number, of period 1)
 * `via` reads the row number through an i32 buffer first: buffer[via[row], …] (embedding, scored rows).
 */
export type Access =
  | { readonly kind: 'element'; readonly via?: string }
  | { readonly kind: 'row'; readonly via?: string }
  | { readonly kind: 'column' }
  | { readonly kind: 'periodic'; readonly period: number; readonly via?: string }
  | { readonly kind: 'columnPeriodic'; readonly period: number };

/** Expressions without operands. */
export type ScalarLeaf =
  | { readonly op: 'const'; readonly value: number }
  /**
   * The contraction's accumulator at this element. `index` 1 is the second matrix of an interleaved pair (up next to
   * gate).
   */
  | { readonly op: 'acc'; readonly index: 0 | 1 }
  | { readonly op: 'load'; readonly buffer: string; readonly access: Access }
  /**
   * Sum over all columns of buffer[row, ·] (the partial sums of x² that an earlier epilogue wrote), through `via` if
   * given. With `by` the largest of them.
   */
  | { readonly op: 'rowSum'; readonly buffer: string; readonly via?: string; readonly by?: 'max' }
  /**
   * Sum over the segment that contains the column. Segments are `width` columns of the domain. Each has `parts`
   * adjacent columns of the buffer (partial sums of x² of a head that an earlier epilogue wrote, or the elements of the
   * head itself). They are added one by one from the first to the last: Σ_{i < parts} buffer[row, parts·⌊column /
   * width⌋ + i]. With `by` the largest of them.
   */
  | {
      readonly op: 'segmentSum';
      readonly buffer: string;
      readonly width: number;
      readonly parts: number;
      readonly via?: string;
      readonly by?: 'max';
    }
  | { readonly op: 'rowIndex' }
  | { readonly op: 'columnIndex' };

export type Scalar =
  | ScalarLeaf
  /**
   * rotate_half(a): −a at column+d/2 in the first half of a head, a at column−d/2 in the second. The segment's pairing
   * or the loop kernel gives the width of heads.
   */
  | { readonly op: 'rotateHalf'; readonly a: Scalar }
  /**
   * Σ of a over the group of `width` columns that contains the column, within an epilogue: what the norm of a head
   * needs of the kernel's own product. Groups are adjacent columns of the domain. The target adds them in an order that
   * depends on the width alone, never on tiles.
   */
  | { readonly op: 'groupSum'; readonly a: Scalar; readonly width: number }
  | { readonly op: UnaryOp; readonly a: Scalar }
  | { readonly op: BinaryOp; readonly a: Scalar; readonly b: Scalar }
  | { readonly op: 'select'; readonly condition: Scalar; readonly a: Scalar; readonly b: Scalar };

const UNARY_SET: ReadonlySet<string> = new Set(UNARY);
const BINARY_SET: ReadonlySet<string> = new Set(BINARY);
export type SegmentSum = Extract<Scalar, { op: 'segmentSum' }>;
export type UnaryScalar = Extract<Scalar, { op: UnaryOp }>;
export type BinaryScalar = Extract<Scalar, { op: BinaryOp }>;
export const isUnary = (s: Scalar): s is UnaryScalar => UNARY_SET.has(s.op);
export const isBinary = (s: Scalar): s is BinaryScalar => BINARY_SET.has(s.op);

/** The direct sub-expressions of `s`, in order. */
export function operands(s: Scalar): readonly Scalar[] {
  if (isUnary(s) || s.op === 'rotateHalf' || s.op === 'groupSum') return [s.a];
  if (isBinary(s)) return [s.a, s.b];
  if (s.op === 'select') return [s.condition, s.a, s.b];
  s satisfies ScalarLeaf;
  return [];
}

/** What a leaf reads: a buffer, and the index list that selects its row. */
export interface ScalarRead {
  readonly buffer: string;
  readonly via: string | undefined;
}

export const viaOf = (access: Access): string | undefined => ('via' in access ? access.via : undefined);

/** The buffer that the expression itself reads, not counting its operands; undefined if it reads none. */
export const readOf = (s: Scalar): ScalarRead | undefined =>
  'buffer' in s ? { buffer: s.buffer, via: s.op === 'load' ? viaOf(s.access) : s.via } : undefined;

/** `s` with the names of all that it reads passed through `rename`, index lists before buffers. */
export const renameReads = (s: Scalar, rename: (name: string) => string): Scalar =>
  mapScalar(s, (leaf) => {
    if (!('buffer' in leaf)) return leaf;
    const list = readOf(leaf)?.via;
    const via = list === undefined ? {} : { via: rename(list) };
    const buffer = rename(leaf.buffer);
    return leaf.op === 'load' ? { ...leaf, buffer, access: { ...leaf.access, ...via } } : { ...leaf, buffer, ...via };
  });

/**
 * Rebuilds `s` with every sub-expression (leaves first) passed through `f`. What takes the place of an expression keeps
 * its origin.
 */
export function mapScalar(s: Scalar, f: (s: Scalar) => Scalar): Scalar {
  const made = (inner: Scalar): Scalar => {
    const result = f(inner === s ? s : withOrigin(inner, originOf(s)));
    return result === s ? s : withOrigin(result, originOf(s));
  };
  if (isUnary(s) || s.op === 'rotateHalf' || s.op === 'groupSum') {
    const a = mapScalar(s.a, f);
    return made(a === s.a ? s : { ...s, a });
  }
  if (isBinary(s)) {
    const [a, b] = [mapScalar(s.a, f), mapScalar(s.b, f)];
    return made(a === s.a && b === s.b ? s : { ...s, a, b });
  }
  if (s.op === 'select') {
    const [condition, a, b] = [mapScalar(s.condition, f), mapScalar(s.a, f), mapScalar(s.b, f)];
    return made(condition === s.condition && a === s.a && b === s.b ? s : { ...s, condition, a, b });
  }
  return made(s satisfies ScalarLeaf);
}

/** Round-to-nearest-even of a double to bfloat16, as a double. */
export function roundToBf16(value: number): number {
  SCRATCH_F32[0] = value;
  const bits = SCRATCH_U32[0]!;
  if ((bits & 0x7f800000) === 0x7f800000) return SCRATCH_F32[0]!;
  SCRATCH_U32[0] = (bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000;
  return SCRATCH_F32[0]!;
}

/**
 * Keeps the 20 leading bits of `value` as an f32 (sign, 8 bits of exponent, 11 of fraction) and returns, as a double,
 * the middle of all numbers that share them. The error is at most 2⁻¹² of `value`. Rounding again changes nothing.
 * Infinities become NaN, and NaN stays NaN.
 */
export function roundToF20(value: number): number {
  SCRATCH_F32[0] = value;
  SCRATCH_U32[0] = (SCRATCH_U32[0]! & 0xfffff000) | 0x800;
  return SCRATCH_F32[0]!;
}

/**
 * The same with 24 leading bits (15 of the fraction): the error is at most 2⁻¹⁶ of `value`. The result is never halfway
 * between two bf16 numbers.
 */
export function roundToF24(value: number): number {
  SCRATCH_F32[0] = value;
  SCRATCH_U32[0] = (SCRATCH_U32[0]! & 0xffffff00) | 0x80;
  return SCRATCH_F32[0]!;
}

/** The last 8 of those 24 bits, for which bf16 has no room: 0 to 255. */
export function tailOfF24(value: number): number {
  SCRATCH_F32[0] = value;
  return (SCRATCH_U32[0]! >>> 8) & 0xff;
}

/**
 * Recovers roundToF24(x) from x rounded to bf16 and the tail. If that rounding was upwards, the tail is 128 or more and
 * is subtracted. NaN stays NaN.
 */
export function joinF24(upper: number, tail: number): number {
  SCRATCH_F32[0] = upper;
  SCRATCH_U32[0] = SCRATCH_U32[0]! + ((tail << 24) >> 16) + 0x80;
  return SCRATCH_F32[0]!;
}
const SCRATCH_F32 = new Float32Array(1);
const SCRATCH_U32 = new Uint32Array(SCRATCH_F32.buffer);

/**
 * erf(x) = 2/√π·∫₀ˣ exp(−t²) dt, by 2/√π·exp(−x²)·Σ 2ⁿx²ⁿ⁺¹ / (2n + 1)!!, whose terms have one sign. Past 6 it is ±1 in
 * a double.
 */
export function erf(x: number): number {
  if (Math.abs(x) >= 6) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > Math.abs(sum) * 2 ** -54; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return Number.isNaN(x) ? NaN : (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** The unary operators in float64. Booleans are 0 and 1. */
export const evaluateUnary: Readonly<Record<UnaryOp, (a: number) => number>> = {
  neg: (a) => -a,
  exp: Math.exp,
  log: Math.log,
  sqrt: Math.sqrt,
  rsqrt: (a) => 1 / Math.sqrt(a),
  sin: Math.sin,
  cos: Math.cos,
  tanh: Math.tanh,
  erf,
  floor: Math.floor,
  not: (a) => (a === 0 ? 1 : 0),
  toF32: (a) => a,
  roundBf16: roundToBf16,
  roundF20: roundToF20,
  roundF24: roundToF24,
  tailF24: tailOfF24,
};

/** The binary operators in float64. */
export const evaluateBinary: Readonly<Record<BinaryOp, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  max: Math.max,
  min: Math.min,
  le: (a, b) => (a <= b ? 1 : 0),
  lt: (a, b) => (a < b ? 1 : 0),
  eq: (a, b) => (a === b ? 1 : 0),
  and: (a, b) => (a !== 0 && b !== 0 ? 1 : 0),
  or: (a, b) => (a !== 0 || b !== 0 ? 1 : 0),
  joinF24,
};

/**
 * Deterministic text of an expression: `mul(acc0, rsqrt(add(0.00001, div(rowSum(ssq), 256))))`, with the names of all
 * that it reads passed through `rename`.
 */
export function printScalar(s: Scalar, rename?: (name: string) => string): string {
  const print = (part: Scalar): string => printScalar(part, rename);
  const named = (name: string): string => (rename === undefined ? name : rename(name));
  if (isUnary(s)) return `${s.op}(${print(s.a)})`;
  if (isBinary(s)) return `${s.op}(${print(s.a)}, ${print(s.b)})`;
  switch (s.op) {
    case 'const':
      return Object.is(s.value, -Infinity) ? '-inf' : String(s.value);
    case 'acc':
      return `acc${s.index}`;
    case 'rotateHalf':
      return `rotateHalf(${print(s.a)})`;
    case 'groupSum':
      return `groupSum(${print(s.a)} of ${s.width} columns)`;
    case 'rowIndex':
      return 'row';
    case 'columnIndex':
      return 'column';
    case 'rowSum':
    case 'segmentSum': {
      const via = s.via === undefined ? '' : `[${named(s.via)}]`;
      const [what, of] = s.op === 'rowSum' ? ['row', ''] : ['segment', `, ${s.parts} for ${s.width} columns`];
      return `${what}${s.by === 'max' ? 'Max' : 'Sum'}(${named(s.buffer)}${via}${of})`;
    }
    case 'load': {
      const list = viaOf(s.access);
      const via = list === undefined ? 'row' : `${named(list)}[row]`;
      const buffer = named(s.buffer);
      switch (s.access.kind) {
        case 'element':
          return `${buffer}[${via}, column]`;
        case 'row':
          return `${buffer}[${via}]`;
        case 'column':
          return `${buffer}[column]`;
        case 'periodic':
          return `${buffer}[${via}, column mod ${s.access.period}]`;
        case 'columnPeriodic':
          return `${buffer}[column mod ${s.access.period}]`;
        default:
          return s.access satisfies never;
      }
    }
    case 'select':
      return `select(${print(s.condition)}, ${print(s.a)}, ${print(s.b)})`;
    default:
      return s satisfies never;
  }
}

/**
 * Which op of a graph a scalar expression computes, for people who look at kernels. A table beside the expressions, no
 * part of them: equal kernels stay equal, whatever they were made of. Expressions read from a file have no origin until
 * restoreOrigins gives them those that were kept beside it.
 */
const ORIGINS = new WeakMap<object, string>();

/** The name of the result of the op that `scalar` computes; undefined where nothing is known. */
export const originOf = (scalar: object): string | undefined => ORIGINS.get(scalar);

/** `scalar`, noted to compute the op whose result is called `name`, unless it is known as that of another. */
export function withOrigin<S extends object>(scalar: S, name: string | undefined): S {
  if (name !== undefined && !ORIGINS.has(scalar)) ORIGINS.set(scalar, name);
  return scalar;
}

/** Names of the results of ops, by expressions in the order of a walk. */
export type Origins = readonly (string | null)[];

/** All expressions in a kernel, a program or another object of plain data, in the order of its fields. */
function* expressionsIn(value: unknown): Generator<object> {
  if (typeof value !== 'object' || value === null) return;
  if ('op' in value) yield value;
  for (const part of Object.values(value)) yield* expressionsIn(part);
}

/** The origins of all expressions in `value`; empty if none has one. */
export function originsIn(value: object): Origins {
  const found = [...expressionsIn(value)].map((each) => originOf(each) ?? null);
  return found.every((each) => each === null) ? [] : found;
}

/** Notes origins that originsIn has given, of an object that reads as `value` does. */
export function restoreOrigins(value: object, origins: Origins): void {
  if (origins.length === 0) return;
  let at = 0;
  for (const each of expressionsIn(value)) withOrigin(each, origins[at++] ?? undefined);
}

// Which programs have the same value in every column of a row.

/** `also`: other expressions that count as the same in all columns that are asked about. */
export function isRowInvariant(program: Scalar, also: (s: Scalar) => boolean = () => false): boolean {
  if (also(program)) return true;
  const areOperands = (): boolean => operands(program).every((operand) => isRowInvariant(operand, also));
  if (isUnary(program) || isBinary(program)) return areOperands();
  switch (program.op) {
    case 'acc':
    case 'columnIndex':
    case 'rotateHalf':
    case 'groupSum':
    case 'segmentSum':
      return false;
    case 'load':
      return program.access.kind === 'row';
    case 'const':
    case 'rowIndex':
    case 'rowSum':
      return true;
    case 'select':
      return areOperands();
    default:
      return program satisfies never;
  }
}
