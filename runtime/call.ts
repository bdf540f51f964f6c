/** Calls of a plan's functions: what is checked before native code reads their inputs, and which bucket fits. */
import { extentIn, type Extents, fitsIn, printExtents } from '../ir/extents.js';
import {
  type FunctionInterface,
  type InputDecl,
  isDistinct,
  type RoleLimits,
  roleRange,
  type RoleRange,
  sizeNames,
} from '../ir/function.js';
import type { Bucket } from '../ir/plan.js';
import type { Dim } from '../ir/types.js';
import type { PortData } from './native.js';
import { RowList } from './rowList.js';

/** Arrays by the names of the function's inputs or outputs, dense and row-major. Those of 16-bit types hold bits. */
export type CallArrays = Readonly<Record<string, PortData>>;

/** Something a device did for a call. Times are milliseconds of the host's clock since the epoch, with fractions. */
export interface DeviceSpan {
  /** Index among the executor's devices, from 0: its stage. */
  readonly device: number;
  /** Kernels, or sending what the next stage needs. */
  readonly kind: 'compute' | 'copy';
  readonly begin: number;
  readonly end: number;
}

export interface CallResult {
  readonly outputs: CallArrays;
  /** What it kept busy, and when. */
  readonly spans?: readonly DeviceSpan[];
}

export interface LaunchProfile {
  readonly kernel: string;
  readonly path: string;
  readonly nanoseconds: number;
}

export interface Diagnosis {
  /** Model path of the first launch that wrote a value that is not finite. */
  readonly path: string;
  readonly buffer: string;
  readonly row: number;
  readonly column: number;
}

/** A value became NaN or infinite. eval recognizes it by its name, `where` and `rows`. */
export class NonFiniteError extends Error {
  /** Model path of the first kernel whose result is not finite, where it could be found. */
  readonly where: string | undefined;
  /** Rows of the output that it reached. */
  readonly rows: readonly number[];

  constructor(where: string | undefined, rows: readonly number[]) {
    const some = `${rows.slice(0, 8).join(', ')}${rows.length > 8 ? ', …' : ''}`;
    super(`A value is NaN or infinite${where === undefined ? '' : ` in ${where}`} (rows ${some} of the call).`);
    this.name = 'NonFiniteError';
    this.where = where;
    this.rows = rows;
  }
}

const typeOf = ({ dtype }: Pick<InputDecl, 'dtype'>): new (length: number) => PortData => {
  switch (dtype) {
    case 'f32':
      return Float32Array;
    case 'i32':
      return Int32Array;
    case 'f16':
    case 'bf16':
      return Uint16Array;
    case 'bool':
    case 'e4m3':
    case 'i8':
      throw new Error(`A ${dtype} is no array of a call.`);
    default:
      return dtype satisfies never;
  }
};

/** An output's elements in the type of its array. */
export function arrayOf(decl: Pick<InputDecl, 'dtype'>, data: ArrayBuffer): PortData {
  switch (decl.dtype) {
    case 'f32':
      return new Float32Array(data);
    case 'i32':
      return new Int32Array(data);
    default:
      return new Uint16Array(data);
  }
}

/** Elements in one row of an array. */
export const rowElements = ({ shape }: { readonly shape: readonly Dim[] }, extents: Extents): number =>
  shape.slice(1).reduce<number>((product, dim) => product * extentIn(dim, extents), 1);

/**
 * The extents of a call, from the lengths of its inputs. Slots of adapters may be left out (`withAdapters`). Throws
 * RangeError where another input is missing, one is not of the function's, is of another type, or has a length that the
 * others contradict.
 */
export function extentsOf({ name, extents, inputs: declared }: FunctionInterface, inputs: CallArrays): Extents {
  const stranger = Object.keys(inputs).find((each) => !declared.some((input) => input.name === each));
  if (stranger !== undefined) throw new RangeError(`${name} takes no ${stranger}.`);
  const found: Record<string, number> = {};
  const from: Record<string, string> = {};
  for (const input of declared) {
    const array = inputs[input.name];
    if (array === undefined && input.role.kind === 'adapter') continue;
    if (!(array instanceof typeOf(input)))
      throw new RangeError(`${name} takes ${input.name}, an array of ${input.dtype}.`);
    const [rows = 1] = input.shape;
    const width = rowElements(input, found);
    if (typeof rows === 'string' && !Object.hasOwn(found, rows)) {
      found[rows] = Math.floor(array.length / width);
      from[rows] = input.name;
    }
    const wanted = extentIn(rows, found) * width;
    if (array.length === wanted) continue;
    const by = typeof rows === 'string' && from[rows] !== input.name ? `, by ${from[rows]}` : '';
    throw new RangeError(`${input.name} has ${array.length} entries, not ${wanted}${by}.`);
  }
  const unknown = sizeNames({ extents }).find((extent) => !Object.hasOwn(found, extent));
  if (unknown !== undefined) throw new RangeError(`No input of ${name} says what ${unknown} is.`);
  for (const { name: inner, within } of extents)
    if (within !== undefined && found[inner]! > found[within]!)
      throw new RangeError(
        `${from[inner]} has ${found[inner]} entries, more than the ${found[within]} of ${from[within]}.`,
      );
  return found;
}

/** A call that says of each row which adapter it has. */
export interface AdaptedCall {
  readonly inputs: CallArrays;
  /** Whether any row has one. */
  readonly hasAdapters: boolean;
}

/** The call with slots of adapters: −1, which is none, for rows of which it does not say any. */
export function withAdapters({ inputs: declared }: FunctionInterface, inputs: CallArrays, size: Extents): AdaptedCall {
  const own = declared.filter(({ role }) => role.kind === 'adapter');
  if (own.length === 0) return { inputs, hasAdapters: false };
  const added = own.filter(({ name }) => inputs[name] === undefined);
  const none = added.map(({ name, shape }) => [name, new Int32Array(extentIn(shape[0] ?? 1, size)).fill(-1)]);
  return {
    inputs: { ...inputs, ...Object.fromEntries(none) },
    hasAdapters: own.some(({ name }) => inputs[name]?.some((slot) => slot >= 0) === true),
  };
}

/** Every number that kernels use as an index is in range. Throws RangeError naming the array and the entry. */
export function checkRoles({ inputs: declared }: FunctionInterface, inputs: CallArrays, limits: RoleLimits): void {
  for (const input of declared) {
    const values = inputs[input.name]!;
    const width = rowElements(input, limits.extents);
    const range = roleRange(input.role, limits, values.length / width);
    if (range === undefined || isListBelow(range, values)) continue;
    const wrong = firstOutside(values, width, range);
    if (wrong >= 0) {
      const row = Math.floor(wrong / width);
      const bounds = `${range.low(row)} to ${range.below(row) - 1}`;
      throw new RangeError(`${input.name}[${wrong}] = ${values[wrong]!} lies outside ${bounds}.`);
    }
    if (isDistinct(input.role)) checkDistinct(input.name, values);
  }
}

/** Whether an array is a list of rows whose entries are all in range, as its bound says. */
function isListBelow({ isUniform, low, below }: RoleRange, values: PortData): boolean {
  const rows = isUniform ? RowList.of(values)?.rows : undefined;
  return rows !== undefined && low(0) <= 0 && rows <= below(0);
}

/** Inputs that stay as they are, whatever is written to lists of rows. */
export const snapshotOf = (inputs: CallArrays): CallArrays =>
  Object.fromEntries(
    Object.entries(inputs).map(([name, array]) => [name, RowList.of(array) === undefined ? array : array.slice()]),
  );

/** Index of the first value that is out of range; −1 if there is none. */
function firstOutside(values: PortData, width: number, range: RoleRange): number {
  // A call over long contexts lists hundreds of thousands of keys, and its device waits for them.
  if (range.isUniform && values instanceof Int32Array) return firstBeyond(values, range.low(0), range.below(0));
  for (let i = 0; i < values.length; i++) {
    const row = width === 1 ? i : Math.floor(i / width);
    if (values[i]! < range.low(row) || values[i]! >= range.below(row)) return i;
  }
  return -1;
}

function firstBeyond(values: Int32Array, low: number, below: number): number {
  for (let i = 0; i < values.length; i++) if (values[i]! < low || values[i]! >= below) return i;
  return -1;
}

/** Threads write rows in no order, so that two numbers for one row would leave either. */
function checkDistinct(name: string, values: PortData): void {
  const at = new Map<number, number>();
  values.forEach((value, i) => {
    if (value < 0) return;
    const first = at.get(value);
    if (first !== undefined) throw new RangeError(`${name}[${i}] = ${value}, as ${name}[${first}] is already.`);
    at.set(value, i);
  });
}

/** Tokens of the largest tree, if calls bring trees; otherwise 0. */
export function longestTree({ inputs: declared }: FunctionInterface, inputs: CallArrays): number {
  const arrayWith = (kind: InputDecl['role']['kind']): PortData | undefined => {
    const input = declared.find(({ role }) => role.kind === kind);
    return input === undefined ? undefined : inputs[input.name];
  };
  const position = arrayWith('position');
  const end = arrayWith('subtreeEnd');
  let longest = 0;
  if (position === undefined || end === undefined) return longest;
  for (let i = 0; i < position.length; i++) if (position[i] === 0) longest = Math.max(longest, end[i]! - i);
  return longest;
}

/** Most rows next to each other whose path begins at the same place in a list of entries; 0 if calls bring none. */
export function longestRun({ inputs: declared }: FunctionInterface, inputs: CallArrays): number {
  const tokens = declared.find(({ role }) => role.kind === 'depth')?.shape[0];
  const isList = (extent: Dim): boolean =>
    declared.some(({ role, shape }) => role.kind === 'entry' && shape[0] === extent);
  const begin = declared.find(({ role, shape }) => role.kind === 'row' && shape[0] === tokens && isList(role.of));
  const values = begin === undefined ? undefined : inputs[begin.name];
  if (values === undefined) return 0;
  let [longest, run] = [0, 0];
  for (let i = 0; i < values.length; i++) {
    run = i > 0 && values[i] === values[i - 1] ? run + 1 : 1;
    longest = Math.max(longest, run);
  }
  return longest;
}

/**
 * Indices of the buckets that hold a call of this size and its runs, best first: the smallest by its extents in order;
 * of equals, the one with the shortest runs, then one for calls without adapters, and then the one whose paths are long
 * enough and no longer than needed. Throws RangeError where there is none.
 */
export function bucketsFor(
  buckets: readonly Bucket[],
  size: Extents,
  longest: number,
  { run = Infinity, hasAdapters = false }: { readonly run?: number; readonly hasAdapters?: boolean } = {},
): readonly number[] {
  const compare = (a: Bucket, b: Bucket): number => {
    for (const name of Object.keys(size)) {
      const difference = extentIn(name, a.extents) - extentIn(name, b.extents);
      if (difference !== 0) return difference;
    }
    if (a.run !== b.run) return (a.run ?? Infinity) - (b.run ?? Infinity);
    if (a.withoutAdapters !== b.withoutAdapters) return a.withoutAdapters === true ? -1 : 1;
    const [aFits, bFits] = [a.longest >= longest, b.longest >= longest];
    if (aFits !== bFits) return aFits ? -1 : 1;
    return aFits ? a.longest - b.longest : b.longest - a.longest;
  };
  const fitting = [...buckets.keys()].filter((i) => {
    const bucket = buckets[i]!;
    if (hasAdapters && bucket.withoutAdapters === true) return false;
    return fitsIn(size, bucket.extents) && run <= (bucket.run ?? Infinity);
  });
  if (fitting.length === 0)
    throw new RangeError(
      `No bucket holds ${printExtents(size)}; the largest has ${printExtents(buckets.at(-1)?.extents ?? {})}.`,
    );
  return fitting.sort((a, b) => compare(buckets[a]!, buckets[b]!));
}

/** Rows of an output with a value that is NaN or infinite. */
export function nonFiniteRows(decl: Pick<InputDecl, 'dtype' | 'shape'>, values: PortData, extents: Extents): number[] {
  if (!(values instanceof Float32Array)) return [];
  const width = rowElements(decl, extents);
  const rows = new Set<number>();
  for (let i = 0; i < values.length; i++) if (!Number.isFinite(values[i])) rows.add(Math.floor(i / width));
  return [...rows];
}
