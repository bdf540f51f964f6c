/** Cuts a sequence into parts so that the most expensive part is as cheap as possible. */

/** Elements from one point to another: their total cost and their total bytes. */
export interface CutRange {
  readonly cost: number;
  readonly bytes: number;
}

/** Points `first` to `end` − 1. */
export interface CutPart extends CutRange {
  readonly first: number;
  readonly end: number;
}

interface State {
  readonly most: number;
  /** Sum of squared costs. Among cuts whose most expensive parts cost the same, the most even cut wins. */
  readonly squares: number;
  readonly part: CutPart;
  readonly before: State | undefined;
}

const isBetter = (a: Pick<State, 'most' | 'squares'>, b: State | undefined): boolean =>
  b === undefined || a.most < b.most || (a.most === b.most && a.squares < b.squares);

/**
 * Dynamic programming over (parts, end). `rangesFrom(first)[i]` is the range of elements from `first` to `first` + i.
 * Costs and bytes are not negative. Each of `parts` has at least one element and at most `maxBytes` bytes; undefined
 * if that is impossible. Takes time parts × points².
 */
export function bestCuts(
  points: number,
  parts: number,
  rangesFrom: (first: number) => readonly CutRange[],
  maxBytes: number,
): readonly CutPart[] | undefined {
  const ranges = Array.from({ length: points }, (_, first) => rangesFrom(first));
  let row: (State | undefined)[] = [];
  for (let count = 1; count <= parts; count++) {
    const next: (State | undefined)[] = new Array<State | undefined>(points + 1).fill(undefined);
    for (let first = count - 1; first < points; first++) {
      const before = row[first];
      if (count > 1 && before === undefined) continue;
      if (count === 1 && first > 0) break;
      ranges[first]!.forEach(({ cost, bytes }, i) => {
        if (bytes > maxBytes) return;
        const end = first + i + 1;
        const candidate = { most: Math.max(before?.most ?? 0, cost), squares: (before?.squares ?? 0) + cost * cost };
        if (isBetter(candidate, next[end])) next[end] = { ...candidate, part: { first, end, cost, bytes }, before };
      });
    }
    row = next;
  }
  const result: CutPart[] = [];
  for (let state = row[points]; state !== undefined; state = state.before) result.unshift(state.part);
  return result.length === 0 ? undefined : result;
}
