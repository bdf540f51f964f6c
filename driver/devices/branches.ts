/**
 * Drafts that leave the path of a part of a message, as paths whose keys are listed: that of the part up to where they
 * leave it, and rows of their own behind. A sequence keeps the regions of its branches, so that the next step lists
 * anew only what has come since.
 */
import type { DraftBranches } from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import { emptyPath, type KeyLists, type ListedPath } from './keyLists.js';

const NONE = new Int32Array(0);
export const NO_BRANCHES: DraftBranches = { of: NONE, from: NONE, count: NONE, page: NONE };

/** A branch of a call. */
export interface ListedBranch {
  /** The part whose path it leaves, itself or with the branch that it leaves. */
  readonly part: number;
  readonly path: ListedPath;
  readonly from: number;
  readonly length: number;
  /** The row of the cache of its first token. */
  readonly slot: number;
  /** Its first keys, as many as are the part's. */
  readonly shared: number;
  /** The rows of the keys behind those. */
  readonly rows: readonly number[];
}

/** The branches of a checked message, whose parts have these paths. */
export function listBranches(
  { of, from, count, page }: DraftBranches,
  parts: readonly ListedPath[],
): readonly ListedBranch[] {
  const branches: ListedBranch[] = [];
  const taken = new Map<ListedPath, number>();
  of.forEach((each, b) => {
    const left = each < parts.length ? undefined : branches[each - parts.length]!;
    const part = left?.part ?? each;
    const root = parts[part]!;
    const own = taken.get(root) ?? 0;
    taken.set(root, own + 1);
    const path = (root.branches[own] ??= emptyPath());
    Object.assign(path, { pages: root.pages, pageCount: root.pageCount });
    const [first, slot] = [from[b]!, page[b]! * PAGE_TOKENS];
    const shared = left?.shared ?? first;
    const rows = left?.rows.slice(0, first - shared) ?? [];
    for (let i = 0; i < count[b]!; i++) rows.push(slot + i);
    branches.push({ part, path, from: first, length: first + count[b]!, slot, shared, rows });
  });
  return branches;
}

/** Lists the keys of a branch that has room for them. */
export function fillBranch({ path, shared, rows }: ListedBranch, lists: KeyLists): void {
  path.filled = Math.min(path.filled, shared);
  lists.fill(path, shared);
  lists.write(path.begin + shared, rows);
}

/** Numbers that a message may have wrong: why it is refused; `ends` are those of the parts' new tokens. */
export function branchFault({ of, from, count }: DraftBranches, ends: readonly number[]): string | undefined {
  for (let b = 0; b < of.length; b++) {
    const [left, first, fresh] = [of[b]!, from[b]!, count[b]!];
    const before = left - ends.length;
    if (!(left >= 0 && before < b)) return `branch ${b} leaves ${left}, of ${ends.length} parts`;
    const [least, most] = before < 0 ? [0, ends[left]!] : [from[before]!, from[before]! + count[before]!];
    if (!(first > least && first <= most))
      return `branch ${b} leaves at ${first}, not behind ${least} and up to ${most}`;
    if (!(fresh >= 1 && fresh <= PAGE_TOKENS)) return `branch ${b} has ${fresh} tokens`;
  }
  return undefined;
}
