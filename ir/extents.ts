/** Named extents: the sizes of a call of a function. */
import type { Dim, ExtentName } from './types.js';

/**
 * Names of extents. They are printed into generated source as parameters, so the grammar allows only identifiers that
 * start with a capital letter. It excludes the constants that kernels define beside them: D, the width of a head, and
 * K, the depth of a product.
 */
export const EXTENT_NAME = /^(?![DK]$)[A-Z][a-z0-9]{0,15}$/;

/** What an extent counts, as users read it: `tokens`. */
export const EXTENT_COUNTS = /^[a-z][a-z ]{0,31}$/;

/**
 * An extent that a function declares. The shapes of its interface and of its values use only these and fixed extents.
 */
export interface ExtentDecl {
  readonly name: ExtentName;
  /** `tokens`, `rows`; absent if not stated. */
  readonly counts?: string;
  /** In every call this extent is at most that one: its rows are the first of those. */
  readonly within?: ExtentName;
}

/** Whether rows of `inner` are the first of the rows of `outer`, or all of them. */
export const isWithin = (inner: Dim, outer: Dim, declared: readonly ExtentDecl[]): boolean =>
  inner === outer || declared.some(({ name, within }) => name === inner && within === outer);

/** The size of one call, or of the largest one: a whole number for each extent of the function that is no product. */
export type Extents = Readonly<Record<ExtentName, number>>;

/** An extent times a whole number has a name of its own, which says so: `Tx8` is 8·T. */
const PRODUCT = /^([A-Z][a-wyz0-9]*)x([1-9][0-9]{0,3})$/;

export const productName = (of: ExtentName, times: number): ExtentName => `${of}x${times}`;

/** What a name of a product says; undefined for any other name. */
export function productOf(name: ExtentName): { readonly of: ExtentName; readonly times: number } | undefined {
  const [, of, times] = PRODUCT.exec(name) ?? [];
  return of === undefined ? undefined : { of, times: Number(times) };
}

/** The number that `dim` stands for. Throws if `extents` neither contains it nor what it is a product of. */
export function extentIn(dim: Dim, extents: Extents): number {
  if (typeof dim === 'number') return dim;
  const value = Object.hasOwn(extents, dim) ? extents[dim] : undefined;
  if (value !== undefined) return value;
  const product = productOf(dim);
  if (product !== undefined && Object.hasOwn(extents, product.of)) return product.times * extents[product.of]!;
  throw new RangeError(`There is no extent ${dim}; the known ones are ${Object.keys(extents).join(', ') || 'none'}.`);
}

/** Whether every extent of `size` is at most that of `limit`. */
export const fitsIn = (size: Extents, limit: Extents): boolean =>
  Object.keys(size).every((name) => size[name]! <= extentIn(name, limit));

/** `64 T, 16 R`, for messages. */
export const printExtents = (extents: Extents): string =>
  Object.entries(extents)
    .map(([name, value]) => `${value} ${name}`)
    .join(', ');
