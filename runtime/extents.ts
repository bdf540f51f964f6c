/** What native programs are told of a function's extents. */
import type { Bucket } from '../ir/plan.js';
import type { Extent, ProgramExtent } from './addon.js';

/** The extents of programs that are bound for a bucket. */
export const programExtents = ({ tokens, rows }: Pick<Bucket, 'tokens' | 'rows'>): readonly ProgramExtent[] => [
  { name: 'T', most: tokens },
  { name: 'R', most: rows },
];

/** The sizes of a call as large as a bucket, in the order of its program's extents. */
export const sizesOf = ({ tokens, rows }: Pick<Bucket, 'tokens' | 'rows'>): readonly number[] => [tokens, rows];

/** The most that an extent can be in a program. Throws where the program has no such extent. */
export function mostOf(extent: Extent, extents: readonly ProgramExtent[]): number {
  if (typeof extent === 'number') return extent;
  const found = extents.find(({ name }) => name === extent);
  if (found === undefined) throw new RangeError(`There is no extent ${extent}.`);
  return found.most;
}
