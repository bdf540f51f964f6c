/** The definition of an op: one record with every fact about it. An op with a missing field does not compile. */
import { EXTENT_NAME } from '../extents.js';
import type { Dim, TensorType } from '../types.js';
import type { Scalar } from '../scalar.js';

/** How an op may be fused. */
export type FuseKind =
  /** One result element comes from the elements at the same (broadcast) place. Has a scalar expression. */
  | 'elementwise'
  /** Sums the last axis, which stays with extent 1. Kernels write partial sums, and readers add them. */
  | 'sum'
  /** Another reduction of the last axis. Kernels exist only for the patterns that passes recognize. */
  | 'reduction'
  /** Matrix product. */
  | 'contraction'
  /** The same elements in row-major order: readers see through it. */
  | 'view'
  /** Selects rows by an index list: readers see through it. */
  | 'gather'
  /** A new version of a state: a kernel of its own writes rows in place. */
  | 'write'
  /** rotate_half: it fuses like an elementwise op. */
  | 'rotation'
  /** Row or column numbers: readers compute them. */
  | 'index'
  /** A literal vector, in memory from the start. */
  | 'literal'
  /** Any other permutation of elements. Kernels exist only for the patterns that passes recognize. */
  | 'movement'
  /** A kernel of its own, recognized by a pass. */
  | 'opaque';

/** A tensor of the reference interpreter: row-major float64, with booleans as 0 and 1. */
export interface Tensor {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

export type AttributeKind = 'number' | 'string' | 'boolean' | 'dims' | 'numbers';
type AttributeBag = Readonly<Record<string, number | string | boolean | readonly (number | string)[]>>;

interface OpFacts {
  /** The meaning in one line, with shapes. */
  readonly summary: string;
  /** Names and kinds of the attributes that every node has. */
  readonly attributes: Readonly<Record<string, AttributeKind>>;
  /** Those that a node may have beside them. Default: none. */
  readonly optional?: Readonly<Record<string, AttributeKind>>;
  /** Smallest and largest number of operands. */
  readonly arity: readonly [number, number];
  /** The result type. Throws `TypeMismatch` if there is none. */
  readonly infer: (operands: readonly TensorType[], attributes: AttributeBag) => TensorType;
  /** float64 reference. `shape` is the concrete result shape. */
  readonly evaluate: (operands: readonly Tensor[], attributes: AttributeBag, shape: readonly number[]) => Tensor;
}

export interface ElementwiseDef extends OpFacts {
  readonly fuse: 'elementwise';
  /** The result element as an expression of the operands' elements. */
  readonly scalar: (operands: readonly Scalar[], attributes: AttributeBag) => Scalar;
}

export interface OtherDef extends OpFacts {
  readonly fuse: Exclude<FuseKind, 'elementwise'>;
  readonly scalar?: undefined;
}

export type OpDef = ElementwiseDef | OtherDef;

/** Thrown when an op does not accept its operands. */
export class TypeMismatch extends Error {}

export const numberAttribute = (a: AttributeBag, name: string): number => {
  const value = a[name];
  if (typeof value !== 'number') throw new TypeMismatch(`attribute '${name}' must be a number`);
  return value;
};

/** A number that must be above 0; undefined if the attribute is absent. */
export function positiveAttribute(a: AttributeBag, name: string): number | undefined {
  const value = a[name];
  if (value === undefined || (typeof value === 'number' && value > 0 && Number.isFinite(value))) return value;
  throw new TypeMismatch(`attribute '${name}' must be a number above 0`);
}

export const stringAttribute = (a: AttributeBag, name: string): string => {
  const value = a[name];
  if (typeof value !== 'string') throw new TypeMismatch(`attribute '${name}' must be a string`);
  return value;
};

/** A list of dimensions: numbers and names of extents. */
export const dimsAttribute = (a: AttributeBag, name: string): readonly Dim[] => {
  const value = a[name];
  if (!Array.isArray(value)) throw new TypeMismatch(`attribute '${name}' must be a list of dimensions`);
  return value.map((dim: unknown) => {
    if (typeof dim === 'string' && EXTENT_NAME.test(dim)) return dim;
    if (typeof dim === 'number' && Number.isInteger(dim) && dim >= 0) return dim;
    throw new TypeMismatch(
      `attribute '${name}': ${String(dim)} is not a dimension (a whole number or the name of an extent)`,
    );
  });
};

export const numbersAttribute = (a: AttributeBag, name: string): readonly number[] => {
  const value = a[name];
  if (!Array.isArray(value)) throw new TypeMismatch(`attribute '${name}' must be a list of numbers`);
  return value.map((entry: unknown) => {
    if (typeof entry !== 'number') throw new TypeMismatch(`attribute '${name}': ${String(entry)} is not a number`);
    return entry;
  });
};

export const elementCount = (shape: readonly number[]): number => shape.reduce((n, dim) => n * dim, 1);

/** Element i of an index tensor. Throws unless it is a whole number below `limit`. */
export function indexAt(index: Tensor, i: number, limit: number): number {
  const value = index.data[i]!;
  if (Number.isInteger(value) && value >= 0 && value < limit) return value;
  throw new Error(`index ${value} at position ${i} is not a whole number below ${limit}`);
}

/** Element i of a list of rows to write, checked to be a whole number below `limit`; undefined for −1, no row. */
export const slotAt = (slot: Tensor, i: number, limit: number): number | undefined =>
  slot.data[i] === -1 ? undefined : indexAt(slot, i, limit);

/** Row-major strides, in elements. */
export function strides(shape: readonly number[]): number[] {
  const out = new Array<number>(shape.length).fill(1);
  for (let i = shape.length - 2; i >= 0; i--) out[i] = out[i + 1]! * shape[i + 1]!;
  return out;
}

/** Calls `f(flat index, index per axis)` for every element of `shape` in row-major order. */
export function forEachIndex(shape: readonly number[], f: (flat: number, index: readonly number[]) => void): void {
  const count = elementCount(shape);
  const index = new Array<number>(shape.length).fill(0);
  for (let flat = 0; flat < count; flat++) {
    f(flat, index);
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      if (++index[axis]! < shape[axis]!) break;
      index[axis] = 0;
    }
  }
}
