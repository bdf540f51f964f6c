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

/** The size of one call, or of the largest one: a whole number for each extent of the function. */
export type Extents = Readonly<Record<ExtentName, number>>;

/** The number that `dim` stands for. Throws if `extents` does not contain it. */
export function extentIn(dim: Dim, extents: Extents): number {
  if (typeof dim === 'number') return dim;
  const value = Object.hasOwn(extents, dim) ? extents[dim] : undefined;
  if (value === undefined)
    throw new RangeError(`There is no extent ${dim}; the known ones are ${Object.keys(extents).join(', ') || 'none'}.`);
  return value;
}

/** Whether every extent of `size` is at most that of `limit`. */
export const fitsIn = (size: Extents, limit: Extents): boolean =>
  Object.keys(size).every((name) => size[name]! <= extentIn(name, limit));

/** `64 T, 16 R`, for messages. */
export const printExtents = (extents: Extents): string =>
  Object.entries(extents)
    .map(([name, value]) => `${value} ${name}`)
    .join(', ');
