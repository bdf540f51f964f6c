/** Calls of decoding whose paths begin alike in groups. */

const PAGE = 16;
/** Pages that a path of a group has for itself: half of a step of 60 tokens, and what a fork copies. */
const OWN_PAGES = 3;
/** Successive pages lie so far apart, which is prime. */
const STRIDE = 7919;

export interface GroupedPaths {
  readonly paths: number;
  /** The inputs of attention over paths. */
  readonly lists: Readonly<Record<'begin' | 'position' | 'key', Int32Array>>;
  /** Different rows of keys that the paths have. */
  readonly rows: number;
}

/**
 * `paths` paths with a new token each, in groups of the given sizes in turn. Groups are a quarter shorter and longer
 * than `length` keys. Pages lie in no order among `cacheRows` rows; those of odd turns begin in the middle of them.
 */
export function groupedPaths({
  paths,
  sizes,
  length,
  cacheRows,
  turn,
}: {
  readonly paths: number;
  readonly sizes: readonly number[];
  readonly length: number;
  readonly cacheRows: number;
  readonly turn: number;
}): GroupedPaths {
  const all = Math.floor(cacheRows / PAGE);
  const [begin, position, key]: [number[], number[], number[]] = [[], [], []];
  const start = (turn % 2) * (all >> 1);
  let used = 0;
  const page = (): number => {
    if (used >= all) throw new Error(`${cacheRows} rows are too few for ${paths} paths of ${length} keys`);
    return ((start + used++) * STRIDE) % all;
  };
  for (let group = 0; begin.length < paths; group++) {
    const pages = Math.max(OWN_PAGES, Math.round((length / PAGE) * (0.75 + ((group * 7) % 11) / 20)));
    const size = Math.min(sizes[group % sizes.length]!, paths - begin.length);
    const stem = Array.from({ length: size === 1 ? 0 : pages - OWN_PAGES }, page);
    for (let path = 0; path < size; path++) {
      const own = Array.from({ length: pages - stem.length }, page);
      begin.push(key.length);
      // The last page is half full.
      position.push((pages - 1) * PAGE + PAGE / 2 - 1);
      for (const at of [...stem, ...own]) for (let row = 0; row < PAGE; row++) key.push(at * PAGE + row);
    }
  }
  return {
    paths,
    lists: { begin: Int32Array.from(begin), position: Int32Array.from(position), key: Int32Array.from(key) },
    rows: used * PAGE,
  };
}
