/** What an iteration has drawn, and what a method says to it. */
import type { SearchPlan } from '../plan.js';
import type { Path, Step } from '../path.js';

/**
 * `open`: it may be extended. `completed`: its text has ended. `unfinished`: its tokens are used up. `failed`: it could
 * not be drawn or scored.
 */
export type PathState = 'open' | 'completed' | 'unfinished' | 'failed';

/** A path at its place in the list of an iteration, scored. */
export interface Drawn {
  readonly place: number;
  /** Of the first of its steps: it may have several since the last score. */
  readonly iteration: number;
  readonly parent: Drawn | undefined;
  readonly subtree: number | undefined;
  /** Where not one step could be drawn, its parent's. */
  readonly path: Path;
  readonly isStepDrawn: boolean;
  readonly ahead: readonly Step[];
  readonly scores: readonly number[];
  readonly aggregate: number;
  readonly state: PathState;
  readonly error?: string;
}

/** A path that is to be drawn. */
export interface Child {
  /** Undefined in the first iteration. */
  readonly parent: Drawn | undefined;
  /** Which of its parent's children it is, from 0. */
  readonly index: number;
  readonly subtree?: number | undefined;
}

export interface Choice {
  /** Those that go on, or would if this were not the last iteration. */
  readonly survivors: ReadonlySet<Drawn>;
  /** Those that are left out because their text came before. */
  readonly duplicates?: ReadonlySet<Drawn>;
  /** In the order of their places. Empty: the search is over. */
  readonly children: readonly Child[];
}

/** A method that searches in iterations. Its functions depend on their arguments alone. */
export interface TreeRule {
  readonly first: readonly Child[];
  /**
   * @param drawn what is known of an iteration, in the order of places; all of it, or a part where it is a guess
   * @param completed paths that completed before it
   */
  choose(drawn: readonly Drawn[], completed: number): Choice;
  /** Texts that may be the answer, in the order that votes use; of all iterations. */
  candidates(rounds: readonly (readonly Drawn[])[]): readonly Drawn[];
}

export const rootChildren = (n: number): readonly Child[] =>
  Array.from({ length: n }, (_, index) => ({ parent: undefined, index }));

/** search-and-learn takes a step for the last one if its engine names no text or token that stopped it. */
export function stateAfter(step: Step, { isSal }: SearchPlan): PathState {
  if (isSal) return step.text === '' || (step.end !== 'step' && step.end !== 'other-eos') ? 'completed' : 'open';
  switch (step.end) {
    case 'step':
      return 'open';
    case 'eos':
    case 'other-eos':
      return 'completed';
    case 'length':
    case 'context':
      return 'unfinished';
    default:
      return step.end satisfies never;
  }
}

/** The best `count` by aggregate, in the order of their places. Of equal ones the lower place is better. */
export function bestOf(paths: readonly Drawn[], count: number): readonly Drawn[] {
  const ranked = paths.toSorted((a, b) => b.aggregate - a.aggregate || a.place - b.place);
  return ranked.slice(0, count).toSorted((a, b) => a.place - b.place);
}

/** `count` children of the parents in turn: one of each, then a second of each, and so on. */
export function inTurn(parents: readonly Drawn[], count: number): readonly Child[] {
  if (parents.length === 0) return [];
  return Array.from({ length: count }, (_, place) => ({
    parent: parents[place % parents.length]!,
    index: Math.floor(place / parents.length),
  }));
}

/** Those that may be extended; of equal texts the first alone, where that is asked for. */
export function withoutDuplicates(
  drawn: readonly Drawn[],
  { filterDuplicates }: SearchPlan,
): { kept: readonly Drawn[]; duplicates: NonNullable<Choice['duplicates']> } {
  const open = drawn.filter(({ state }) => state === 'open');
  if (!filterDuplicates) return { kept: open, duplicates: new Set() };
  const texts = new Set<string>();
  const kept = open.filter(({ path }) => !texts.has(path.text) && texts.add(path.text));
  const first = new Set(kept);
  return { kept, duplicates: new Set(open.filter((path) => !first.has(path))) };
}
