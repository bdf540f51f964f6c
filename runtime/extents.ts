/** What native programs are told of a function's extents. */
import type { Bucket } from '../ir/plan.js';
import type { Extent, ProgramExtent } from './addon.js';

/** The extents of programs that are bound for a bucket, in the order of the function's interface. */
export const programExtents = ({ extents }: Pick<Bucket, 'extents'>): readonly ProgramExtent[] =>
  Object.entries(extents).map(([name, most]) => ({ name, most }));

/** The sizes of a call as large as a bucket, in the order of its program's extents. */
export const sizesOf = ({ extents }: Pick<Bucket, 'extents'>): readonly number[] => Object.values(extents);

/** The most that an extent can be in a program. Throws where the program has no such extent. */
export function mostOf(extent: Extent, extents: readonly ProgramExtent[]): number {
  if (typeof extent === 'number') return extent;
  const found = extents.find(({ name }) => name === extent);
  if (found === undefined) throw new RangeError(`There is no extent ${extent}.`);
  return found.most;
}
