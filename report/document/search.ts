/** The section of searches: figures by number of candidates, and the tree of each problem, in blocks. */
import type { Likelihood } from './questions.js';

/** As in search/result.ts, which says what they mean. */
export const FATES = ['survives', 'completed', 'pruned', 'duplicate', 'unfinished', 'failed'] as const;
export type ShownFate = (typeof FATES)[number];

export interface CurvePoint {
  /** Candidates that are looked at. */
  readonly n: number;
  readonly value: number;
  /** The standard error in the file; null where there is none. */
  readonly error: number | null;
}

/** A share of right answers by the number of candidates: `naive`, `weighted`, `maj`, `pass`. */
export interface SearchCurve {
  readonly name: string;
  /** In the order of n. */
  readonly points: readonly CurvePoint[];
}

/** A problem in the list. */
export interface SearchedProblem {
  readonly docId: number;
  /** Its beginning, on one line. */
  readonly text: string;
  /** Whether the answer that was picked is right; null where the files do not say. */
  readonly isRight: boolean | null;
  readonly steps: number;
  readonly candidates: number;
  /** Which block of trees it is in, and where; block -1: the page had no room for it, or it failed. */
  readonly block: number;
  readonly place: number;
}

/** A task that was searched in a run. */
export interface SearchedTask {
  /** A short name that no other run of the page has. */
  readonly run: string;
  readonly task: string;
  /** What was asked, as pairs of name and value. */
  readonly asked: readonly (readonly [string, string])[];
  readonly curves: readonly SearchCurve[];
  /** In the order of the file. */
  readonly problems: readonly SearchedProblem[];
}

export interface SearchDocument {
  readonly tasks: readonly SearchedTask[];
}

/** A step that was drawn. */
export interface ShownStep {
  /** Index of the step before, which is less than its own; null at first. */
  readonly parent: number | null;
  readonly iteration: number;
  readonly subtree?: number;
  readonly text: string;
  readonly tokens: number;
  /** Why it ended. */
  readonly end: string;
  /** Greedy steps that its score looked at. */
  readonly ahead?: string;
  readonly last?: Likelihood;
  readonly aggregate?: Likelihood;
  readonly fate: ShownFate;
  readonly error?: string;
}

export interface ShownCandidate {
  /** Index of its last step. */
  readonly step: number;
  readonly isCompleted: boolean;
  readonly aggregate: Likelihood;
  readonly tokens: number;
  /** What was read from it, and whether that is right, where the files say. */
  readonly answer?: string;
  readonly isRight?: boolean;
}

/** A problem with its tree; the content of a block is a list of these. */
export interface ShownTree {
  readonly problem: string;
  /** What is right; empty where the files do not say. */
  readonly target: string;
  readonly steps: readonly ShownStep[];
  /** Steps of the files that are not on this page. */
  readonly left: number;
  readonly candidates: readonly ShownCandidate[];
  /** Index in `candidates`; null where nothing is picked, or it is not on this page. */
  readonly picked: number | null;
  readonly notes: readonly string[];
  /** Characters that were too many for the page. */
  readonly cut: number;
}

export const treesBlock = (block: number): string => `search.trees.${block}`;

/** Steps from the first to the one at `step`, as indexes. */
export function pathTo(steps: readonly Pick<ShownStep, 'parent'>[], step: number): readonly number[] {
  const path: number[] = [];
  for (let at: number | null = step; at !== null && at >= 0 && at < steps.length; at = steps[at]!.parent) {
    path.push(at);
    // A file may say that a step follows itself.
    if (path.length > steps.length) break;
  }
  return path.reverse();
}

/** Where steps lie in a drawing: a column for each iteration, from the left. */
export interface TreePlaces {
  readonly columns: readonly number[];
  readonly rows: readonly number[];
  readonly width: number;
  readonly height: number;
}

/** Children lie in the order of their parents, so that few lines cross; subtrees stay apart. */
export function placeSteps(steps: readonly Pick<ShownStep, 'parent' | 'iteration' | 'subtree'>[]): TreePlaces {
  const iterations = [...new Set(steps.map(({ iteration }) => iteration))].sort((a, b) => a - b);
  const columnOf = new Map(iterations.map((iteration, column) => [iteration, column]));
  const columns = steps.map(({ iteration }) => columnOf.get(iteration)!);
  const rows = new Array<number>(steps.length).fill(0);
  const members: number[][] = iterations.map(() => []);
  columns.forEach((column, i) => members[column]!.push(i));
  const rowOf = (i: number): number => {
    const { parent } = steps[i]!;
    return parent === null ? -1 : (rows[parent] ?? -1);
  };
  for (const column of members) {
    column.sort((a, b) => (steps[a]!.subtree ?? 0) - (steps[b]!.subtree ?? 0) || rowOf(a) - rowOf(b) || a - b);
    column.forEach((i, row) => (rows[i] = row));
  }
  return { columns, rows, width: iterations.length, height: Math.max(0, ...members.map(({ length }) => length)) };
}
