/**
 * Paths in lexicographic order of their input tokens. The time is proportional to the tokens: hundreds of questions
 * with the same shots are read once, and not compared pair by pair.
 */
import { pathLength, tokenAt, type Path } from './tree.js';

export interface OrderedPaths {
  /** A prefix before longer paths, and equal paths by question and choice. */
  readonly paths: readonly Path[];
  /** i32[n] for each path, the number of leading tokens that it has in common with the one before; 0 for the first. */
  readonly shared: Int32Array;
}

/** Paths [from, to) agree in their first `depth` tokens. */
interface Range {
  readonly from: number;
  readonly to: number;
  readonly depth: number;
}

export function orderPaths(unordered: readonly Path[]): OrderedPaths {
  const paths = unordered.slice();
  const shared = new Int32Array(paths.length);
  const ranges: Range[] = [{ from: 0, to: paths.length, depth: 0 }];
  for (let range = ranges.pop(); range !== undefined; range = ranges.pop()) {
    const { from, to } = range;
    if (to - from < 2) continue;
    const depth = commonDepth(paths, range);
    const ended: Path[] = [];
    const byToken = new Map<number, Path[]>();
    for (let i = from; i < to; i++) {
      const path = paths[i]!;
      if (depth >= pathLength(path)) {
        ended.push(path);
        continue;
      }
      const token = tokenAt(path, depth);
      const group = byToken.get(token);
      if (group === undefined) byToken.set(token, [path]);
      else group.push(path);
    }
    ended.sort((a, b) => a.question - b.question || a.choice - b.choice);
    let at = from;
    const place = (group: readonly Path[]): void => {
      if (at > from) shared[at] = depth;
      for (const path of group) paths[at++] = path;
    };
    for (const path of ended) place([path]);
    for (const token of [...byToken.keys()].sort((a, b) => a - b)) {
      const group = byToken.get(token)!;
      ranges.push({ from: at, to: at + group.length, depth: depth + 1 });
      place(group);
    }
  }
  return { paths, shared };
}

/** The number of leading tokens in which all paths of the range agree. */
function commonDepth(paths: readonly Path[], { from, to, depth }: Range): number {
  const first = paths[from]!;
  let end = pathLength(first);
  for (let i = from + 1; i < to && end > depth; i++) {
    const path = paths[i]!;
    // Choices of a question have one context.
    let at = path.context === first.context ? Math.max(depth, Math.min(end, path.context.length)) : depth;
    const most = Math.min(end, pathLength(path));
    while (at < most && tokenAt(path, at) === tokenAt(first, at)) at++;
    end = Math.min(at, most);
  }
  return end;
}
