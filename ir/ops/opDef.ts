/** The definition of an op: one record with every fact about it. An op with a missing field does not compile. */
import { extentsOf, type Dim, type TensorType } from '../types.js';
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

/** A static argument of an op: a number, a word, a flag, or a list of dimensions or numbers. */
export type Attribute = number | string | boolean | readonly (number | string)[];
export type Attributes = Readonly<Record<string, Attribute | undefined>>;

interface AttributeTypes {
  readonly number: number;
  readonly string: string;
  readonly boolean: boolean;
  readonly dims: readonly Dim[];
  readonly numbers: readonly number[];
}
/** The type of an attribute. A list of words: one of them. */
export type AttributeKind = keyof AttributeTypes | readonly string[];
export type AttributeKinds = Readonly<Record<string, AttributeKind>>;
type AttributeOf<K> = K extends keyof AttributeTypes
  ? AttributeTypes[K]
  : K extends readonly (infer Word)[]
    ? Word
    : never;
export type TypedAttributes<A, O> = { readonly [N in keyof A]: AttributeOf<A[N]> } & {
  readonly [N in keyof O]?: AttributeOf<O[N]> | undefined;
};

/**
 * How many values an operand stands for: one, one or none, or all that follow. `when`: one where the attributes say so,
 * and otherwise none.
 */
export type OperandKind = 'one' | 'optional' | 'list' | { readonly when: (attributes: Attributes) => boolean };
export type OperandKinds = Readonly<Record<string, OperandKind>>;
/** Operands by name, each a `V`: a value of a graph, its type, a tensor or an expression. */
export type TypedOperands<K, V> = {
  readonly [N in keyof K as K[N] extends 'one' | 'list' ? N : never]: K[N] extends 'list' ? readonly V[] : V;
} & { readonly [N in keyof K as K[N] extends 'one' | 'list' ? never : N]?: V | undefined };
/** The operands of any op. */
export type NamedOperands<V> = Readonly<Record<string, V | readonly V[] | undefined>>;

/** Every fact about an op whose operands are `V` and whose attributes are `A`. Functions take operands by name. */
interface OpFacts<Types, Tensors, A> {
  /** The meaning in one line, with shapes. */
  readonly summary: string;
  /** The result type. Throws `TypeMismatch` if there is none. */
  infer(operands: Types, attributes: A): TensorType;
  /** float64 reference. `shape` is the concrete result shape. */
  evaluate(operands: Tensors, attributes: A, shape: readonly number[]): Tensor;
}

/** Only an elementwise op has an expression for one element of its result, of elements of its operands. */
type Fusion<Scalars, A> =
  | { readonly fuse: 'elementwise'; scalar(operands: Scalars, attributes: A): Scalar }
  | { readonly fuse: Exclude<FuseKind, 'elementwise'>; readonly scalar?: undefined };

/** What is written down of an op. Operands are declared in the order of the text form. */
export type OpSpec<K extends OperandKinds, A extends AttributeKinds, O extends AttributeKinds> = OpFacts<
  TypedOperands<K, TensorType>,
  TypedOperands<K, Tensor>,
  TypedAttributes<A, O>
> &
  Fusion<TypedOperands<K, Scalar>, TypedAttributes<A, O>> & {
    readonly operands: K;
    /** Attributes that every node has. Default: none. */
    readonly attributes?: A;
    /** Attributes that a node may have beside them. Default: none. */
    readonly optional?: O;
  };

/** An op of the table. Its type has the names and types of operands and attributes. */
export type TypedOp<K extends OperandKinds, A extends AttributeKinds, O extends AttributeKinds> = OpSpec<K, A, O> & {
  readonly attributes: A;
  readonly optional: O;
  readonly slots: readonly (readonly [name: string, kind: OperandKind])[];
};

/** Any op. */
export type OpDef = OpFacts<NamedOperands<TensorType>, NamedOperands<Tensor>, Attributes> &
  Fusion<NamedOperands<Scalar>, Attributes> & {
    readonly attributes: AttributeKinds;
    readonly optional: AttributeKinds;
    readonly slots: readonly (readonly [name: string, kind: OperandKind])[];
  };

export type None = Readonly<Record<never, never>>;

export const op = <
  const K extends OperandKinds,
  const A extends AttributeKinds = None,
  const O extends AttributeKinds = None,
>(
  spec: OpSpec<K, A, O>,
): TypedOp<K, A, O> => ({ attributes: {} as A, optional: {} as O, ...spec, slots: Object.entries(spec.operands) });

/** Most values of an operand that is a list. */
const MAX_LIST = 4096;

/** The smallest and largest number of values that a node with these attributes takes. */
export function arityOf({ slots }: Pick<OpDef, 'slots'>, attributes: Attributes): readonly [number, number] {
  let [min, max] = [0, 0];
  for (const [, kind] of slots) {
    const isGiven = kind === 'one' || kind === 'list' || (kind !== 'optional' && kind.when(attributes));
    if (isGiven) min++;
    if (isGiven || kind === 'optional') max += kind === 'list' ? MAX_LIST : 1;
  }
  return [min, max];
}

const isList = <V>(value: V | readonly V[] | undefined): value is readonly V[] => Array.isArray(value);

/** Operands by name in the order of the text form. */
export function listOperands<V>({ slots }: Pick<OpDef, 'slots'>, operands: NamedOperands<V>): readonly V[] {
  const list: V[] = [];
  for (const [name] of slots) {
    const value = operands[name];
    if (isList(value)) list.push(...value);
    else if (value !== undefined) list.push(value);
  }
  return list;
}

/** Operands in the order of the text form by name. Throws TypeMismatch where the op takes another number of them. */
export function nameOperands<V>(
  def: Pick<OpDef, 'slots'>,
  list: readonly V[],
  attributes: Attributes,
): NamedOperands<V> {
  const operands: Record<string, V | readonly V[] | undefined> = {};
  let at = 0;
  for (const [name, kind] of def.slots) {
    if (kind === 'list') {
      operands[name] = list.slice(at);
      at = Math.min(list.length, at + MAX_LIST);
    } else if (kind === 'one' || (kind === 'optional' ? at < list.length : kind.when(attributes)))
      operands[name] = list[at++];
  }
  if (at === list.length && !(list.length === 0 && def.slots.some(([, kind]) => kind === 'list'))) return operands;
  const [min, max] = arityOf(def, attributes);
  const count = min === max ? min : `${min} to ${max}`;
  throw new TypeMismatch(`it takes ${count} operand${max === 1 ? '' : 's'}, not ${list.length}`);
}

/** Operands with their names, in order. */
export const operandEntries = <V>(operands: NamedOperands<V>): readonly (readonly [name: string, value: V])[] =>
  Object.entries(operands).flatMap(([name, value]) =>
    isList(value) ? value.map((each) => [name, each] as const) : value === undefined ? [] : [[name, value] as const],
  );

/** The same operands, each passed through `f`. */
export function mapOperands<V, W>(operands: NamedOperands<V>, f: (value: V, name: string) => W): NamedOperands<W> {
  const mapped: Record<string, W | readonly W[] | undefined> = {};
  for (const name in operands) {
    const value = operands[name];
    if (isList(value)) mapped[name] = value.map((each) => f(each, name));
    else if (value !== undefined) mapped[name] = f(value, name);
  }
  return mapped;
}

/** Thrown when an op does not accept its operands. */
export class TypeMismatch extends Error {}

/** Throws unless `value`, the attribute `name`, is absent or a finite number above 0. */
export function checkPositive(name: string, value: number | undefined): void {
  if (value !== undefined && !(value > 0 && Number.isFinite(value)))
    throw new TypeMismatch(`attribute '${name}' must be a number above 0`);
}

export const elementCount = (shape: readonly number[]): number => shape.reduce((n, dim) => n * dim, 1);

/** The rows of a matrix. */
export function rowsOf({ shape, data }: Tensor): readonly Float64Array[] {
  const [rows, columns] = extentsOf(shape, 2);
  return Array.from({ length: rows }, (_, row) => data.subarray(row * columns, (row + 1) * columns));
}

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
