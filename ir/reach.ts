/** How far back the keys lie that a query sees. */

/** At most one of the two. Without any, a query sees all keys of its path. */
export interface Reach {
  /** A query sees the last keys of its path, so many by position, itself among them. */
  readonly window?: number | undefined;
  /** A path is cut into pieces of so many positions, and a query sees keys of its own. */
  readonly chunk?: number | undefined;
}

/** The position of the first key that a query at `position` sees. */
export function firstSeen(position: number, { window, chunk }: Reach): number {
  if (window !== undefined) return Math.max(0, position - window + 1);
  return chunk === undefined ? 0 : position - (position % chunk);
}
