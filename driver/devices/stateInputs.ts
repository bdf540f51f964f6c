/**
 * Rows of states of recurrent layers (decision 69): whether a message may read and write them so, and the inputs of the
 * function `step` that say it to kernels. A part of a message and the branches that leave it are a tree of tokens,
 * which goes on from one row.
 */
import type { DraftBranches, StateRows, StepMessage } from '../../engine/device.js';
import type { StateTrees } from '../../evaluate/scorer.js';
import { STEP_STATES } from '../../ir/stepping.js';
import { NO_BRANCHES } from './branches.js';

export interface StateShape {
  /** Rows of states. */
  readonly rows: number;
  /** Rows of what a convolution has seen last, behind each of them. */
  readonly tails: number;
  /** Whether layers have states beside those. */
  readonly hasScans: boolean;
}

const NO_ROW = new Int32Array(0);
export const NO_STATES: StateRows = { from: NO_ROW, token: NO_ROW, to: NO_ROW };

/** Why a message is refused whose arrays have the right lengths; undefined if it is not. */
export function stateFault(
  { from: first, count, tokens, branches = NO_BRANCHES, states = NO_STATES }: StepMessage,
  { rows }: StateShape,
): string | undefined {
  const { from, token, to } = states;
  const readers = new Map<number, number>();
  for (let part = 0; part < from.length; part++) {
    const row = from[part]!;
    if (!(row >= -1 && row < rows)) return `row ${row} of ${rows} rows of states`;
    if (row < 0 !== (first[part] === 0)) return `part ${part} goes on from row ${row} of the states at ${first[part]}`;
    if (row >= 0) readers.set(row, readers.has(row) ? -1 : part);
  }
  for (let b = 0; b < branches.of.length; b++) {
    const part = branches.of[b]!;
    if (part < first.length && branches.from[b]! <= first[part]!)
      return `branch ${b} leaves before the new tokens of part ${part}, whose states are gone`;
  }
  const trees = treesOf(count, branches);
  const written = new Set<number>();
  for (let i = 0; i < token.length; i++) {
    const [at, row] = [token[i]!, to[i]!];
    if (!(at >= (token[i - 1] ?? 0) && at < tokens.length)) return `states behind token ${at} of ${tokens.length}`;
    if (at === token[i - 2]) return `states behind token ${at} go to more than two rows`;
    if (!(row >= 0 && row < rows)) return `states go to row ${row} of ${rows}`;
    if (written.has(row)) return `row ${row} of the states is written twice`;
    written.add(row);
    const reader = readers.get(row);
    if (reader !== undefined && reader !== trees[at]) return `row ${row} of the states is written, and others read it`;
  }
  return undefined;
}

/** The part of each token of a message. */
function treesOf(count: Int32Array, { of, count: ofBranches }: DraftBranches): Int32Array {
  const trees: number[] = [];
  const roots = [...count.keys()];
  count.forEach((length, part) => trees.push(...new Array<number>(length).fill(part)));
  of.forEach((left, b) => {
    roots.push(roots[left]!);
    trees.push(...new Array<number>(ofBranches[b]!).fill(roots[left]!));
  });
  return Int32Array.from(trees);
}

/** Parts and branches (P + b) in depth-first order, those that leave a path last first. `order`: that of the parts. */
export function treeOrder(
  parts: number,
  { of, from }: DraftBranches,
  order: Iterable<number> = Array.from({ length: parts }, (_, part) => part),
): readonly number[] {
  const leaving = Array.from({ length: parts + of.length }, (): number[] => []);
  of.forEach((left, b) => leaving[left]!.push(parts + b));
  for (const each of leaving) each.sort((a, b) => from[b - parts]! - from[a - parts]! || a - b);
  const runs: number[] = [];
  const visit = (run: number): void => {
    runs.push(run);
    leaving[run]!.forEach(visit);
  };
  for (const part of order) visit(part);
  return runs;
}

/** For each token of a message, in its own order, the one that it goes on from; −1 for the first of a part. */
function tokensBefore({ from: first, count, branches = NO_BRANCHES, tokens }: StepMessage): Int32Array {
  const before = new Int32Array(tokens.length).fill(-1);
  const starts: number[] = [];
  const firsts = [...first, ...branches.from];
  let token = 0;
  [...count, ...branches.count].forEach((length, run) => {
    starts.push(token);
    if (run >= count.length) {
      const left = branches.of[run - count.length]!;
      before[token] = starts[left]! + firsts[run]! - 1 - firsts[left]!;
    }
    for (let i = 1; i < length; i++) before[token + i] = token + i - 1;
    token += length;
  });
  return before;
}

/** The inputs for a checked message. `moved`: where each token is in the order of `treeOrder`; absent: at its place. */
export function stateInputs(
  message: StepMessage,
  moved: Int32Array | undefined,
  shape: StateShape,
): Readonly<Record<string, Int32Array>> {
  const { count, tokens, states = NO_STATES } = message;
  const placeOf = (token: number): number => (moved === undefined ? token : moved[token]!);
  const parent = new Int32Array(tokens.length).fill(-1);
  tokensBefore(message).forEach((before, token) => {
    if (before >= 0) parent[placeOf(token)] = placeOf(before);
  });
  const from = new Int32Array(tokens.length).fill(-1);
  let first = 0;
  count.forEach((each, part) => {
    from[placeOf(first)] = states.from[part]!;
    first += each;
  });
  return treeInputs({ parent, from, token: states.token.map(placeOf), to: states.to }, shape);
}

/** The inputs for trees of tokens in the order of a call. */
export function treeInputs(
  { parent, from, token, to: rows }: StateTrees,
  { tails, hasScans }: Pick<StateShape, 'tails' | 'hasScans'>,
): Readonly<Record<string, Int32Array>> {
  const subtreeEnd = Int32Array.from(parent, (_, at) => at + 1);
  for (let at = parent.length - 1; at >= 0; at--)
    if (parent[at]! >= 0) subtreeEnd[parent[at]!] = Math.max(subtreeEnd[parent[at]!]!, subtreeEnd[at]!);
  const [to, also] = [new Int32Array(parent.length).fill(-1), new Int32Array(parent.length).fill(-1)];
  token.forEach((at, i) => {
    (to[at]! < 0 ? to : also)[at] = rows[i]!;
  });
  const { stateFrom, stateTo, stateAlso } = STEP_STATES;
  return {
    subtreeEnd,
    ...(hasScans ? { [stateFrom]: from, [stateTo]: to, [stateAlso]: also } : {}),
    ...(tails === 0 ? {} : tailInputs({ parent, from, token, to: rows }, tails)),
  };
}

function tailInputs(
  { parent, from, token: places, to }: StateTrees,
  tails: number,
): Readonly<Record<string, Int32Array>> {
  const fresh = new Int32Array(parent.length);
  const row = from.slice();
  parent.forEach((before, at) => {
    if (before < 0) return;
    fresh[at] = fresh[before]! + 1;
    row[at] = row[before]!;
  });
  /** The row of the tails of the token so many before that at place `at`, which is none of the call. */
  const oldEntry = (at: number, back: number): number => row[at]! * tails + back - fresh[at]! - 1;
  const isOld = (at: number, back: number): boolean => back > fresh[at]! && row[at]! >= 0;
  const rows = Math.max(1, places.length * tails);
  const [tailToken, tailEntry, isTailNew] = [new Int32Array(rows), new Int32Array(rows), new Int32Array(rows)];
  const tailSlot = new Int32Array(rows).fill(-1);
  places.forEach((place, i) => {
    let at = place;
    for (let back = 0; back < tails; back++) {
      const entry = i * tails + back;
      tailSlot[entry] = to[i]! * tails + back;
      if (isOld(place, back)) tailEntry[entry] = oldEntry(place, back);
      else {
        // Before the first token of a text is nothing that anybody reads.
        tailToken[entry] = at;
        isTailNew[entry] = 1;
        at = Math.max(parent[at]!, 0);
      }
    }
  });
  const backs = Array.from({ length: tails }, (_, i): [string, Int32Array] => [
    STEP_STATES.tailBack(i + 1),
    Int32Array.from(fresh, (_n, at) => (isOld(at, i + 1) ? oldEntry(at, i + 1) : 0)),
  ]);
  const { fresh: freshName, tailToken: token, tailEntry: entry, isTailNew: isNew, tailSlot: slot } = STEP_STATES;
  return {
    [freshName]: fresh,
    ...Object.fromEntries(backs),
    ...{ [token]: tailToken, [entry]: tailEntry, [isNew]: isTailNew, [slot]: tailSlot },
  };
}
