/** What a search of one problem gives: plain data, which is written beside the answers and which pages show. */
import type { StepEnd } from './path.js';

/**
 * `pruned`: others were better. `duplicate`: an equal text came before. `survives`: it was extended. `completed`: its
 * text ended. `unfinished`: its steps or tokens were used up. `failed`: see `error`.
 */
export type Fate = 'pruned' | 'duplicate' | 'survives' | 'completed' | 'unfinished' | 'failed';

/** A step that was drawn, in the order of iterations and of places in them. */
export interface TreeStep {
  /** Index of the step before; null at first. */
  readonly parent: number | null;
  readonly iteration: number;
  /** Which subtree it belongs to, of methods that have several. */
  readonly subtree?: number;
  readonly text: string;
  readonly tokens: number;
  readonly end: StepEnd;
  /** Greedy steps that its score looked at. */
  readonly ahead?: string;
  /** How many scores its path has, the last of them, and their aggregate; absent where it was not scored. */
  readonly scores?: number;
  readonly last?: number;
  readonly aggregate?: number;
  readonly fate: Fate;
  readonly error?: string;
}

/** A text that may be the answer. */
export interface Candidate {
  readonly text: string;
  /** Index in the tree of its last step. */
  readonly step: number;
  readonly isCompleted: boolean;
  readonly scores: readonly number[];
  readonly aggregate: number;
  /** Tokens that were drawn for it, its stem included. */
  readonly tokens: number;
}

export interface ProblemResult {
  readonly tree: readonly TreeStep[];
  /** In the order that votes over the first N of them use. */
  readonly candidates: readonly Candidate[];
  /** The index of the one that is picked; null where there is none. */
  readonly picked: number | null;
  /** Tokens that results are made of, and drawn steps; the same however the work was scheduled. */
  readonly drawnSteps: number;
  readonly drawnTokens: number;
  /** One line where something did not go as asked: no path completed, a problem that is too long. */
  readonly notes: readonly string[];
}
