/** Element types, symbolic dimensions and tensor types: shared by both IRs and the plan. */

export const DTYPES = ['f32', 'f16', 'bf16', 'e4m3', 'i8', 'i32', 'bool'] as const;
/** Element type of a tensor. Stores of `e4m3` (E4M3FN) and `i8` round to even, and to ±448 and ±127 what is larger. */
export type DType = (typeof DTYPES)[number];

/**
 * Element types of a kernel's buffers: those of tensors, and `u8` for the low byte of numbers whose upper half is in
 * another buffer.
 */
export const BUFFER_DTYPES = [...DTYPES, 'u8'] as const;
export type BufferDType = (typeof BUFFER_DTYPES)[number];

/** Floating-point element types. */
export type FloatType = Extract<DType, 'f32' | 'f16' | 'bf16'>;

export const isFloat = (dtype: BufferDType): dtype is FloatType =>
  dtype === 'f32' || dtype === 'f16' || dtype === 'bf16';

/** Bytes of one element of a buffer (a bool takes one byte). For weights see ir/storage.ts. */
export const DTYPE_BYTES: Readonly<Record<BufferDType, number>> = {
  f32: 4,
  f16: 2,
  bf16: 2,
  e4m3: 1,
  i8: 1,
  i32: 4,
  bool: 1,
  u8: 1,
};

/** Name of an extent that is known only when a function is called, such as T for packed tokens. See ir/extents.ts. */
export type ExtentName = string;
/** A dimension: a fixed extent or the name of one. */
export type Dim = number | ExtentName;

/** The type of a value: element type and shape, outermost dimension first. A scalar has shape []. */
export interface TensorType {
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

export const isSymbol = (dim: Dim): dim is ExtentName => typeof dim === 'string';

interface ExtentTuple<D> {
  readonly 1: readonly [D];
  readonly 2: readonly [D, D];
  readonly 3: readonly [D, D, D];
}

/** The extents of a shape of this rank. Throws if it has another. */
export function extentsOf<D extends Dim, R extends keyof ExtentTuple<D>>(
  shape: readonly D[],
  rank: R,
): ExtentTuple<D>[R] {
  if (!hasRank(shape, rank)) throw new Error(`[${shape.join(', ')}] is of rank ${shape.length}, not ${rank}.`);
  return shape;
}

const hasRank = <D, R extends keyof ExtentTuple<D>>(
  shape: readonly D[],
  rank: R,
): shape is readonly D[] & ExtentTuple<D>[R] => shape.length === rank;

export function sameShape(a: readonly Dim[], b: readonly Dim[]): boolean {
  return a.length === b.length && a.every((dim, i) => dim === b[i]);
}

export function sameType(a: TensorType, b: TensorType): boolean {
  return a.dtype === b.dtype && sameShape(a.shape, b.shape);
}

/** `bf16[T, 4096]` */
export const printType = (type: TensorType): string => `${type.dtype}[${type.shape.join(', ')}]`;

/** The smallest multiple of `step` that is at least `value`. */
export const roundUp = (value: number, step: number): number => Math.ceil(value / step) * step;
