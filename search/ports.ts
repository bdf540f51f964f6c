/** What a search asks of its two models. search/models answers by requests to an engine; tests have made-up ones. */
import type { Path, Step } from './path.js';

export interface StepAsk {
  readonly path: Path;
  /** Greedy steps behind the path that are no part of it. */
  readonly ahead: readonly Step[];
  /** The step's number, from 0. */
  readonly iteration: number;
  /** Names the draw within the iteration of the problem: see draws.ts. Known before scores are. */
  readonly candidate: number;
  /** What it is drawn with: 53 bits of (seed, problem, iteration, candidate). Undefined: most likely tokens. */
  readonly seed: number | undefined;
  /** Goes on to the end of the text, past separators and numbers of tokens. */
  readonly toEnd: boolean;
  /** Nobody knows yet whether it is needed: other work comes first. */
  readonly isSpeculative: boolean;
  /** Aborted where the step is not needed any more. */
  readonly signal: AbortSignal;
}

/** A path cannot go on or be scored: a prompt beyond the context, a number that is not finite. Others go on. */
export class PathFailed extends Error {}

/** Steps of a generator. Asks of a problem's iteration come in the order of their places, speculative ones earlier. */
export interface StepWriter {
  /** Rejects with PathFailed; with the signal's reason where that was aborted. */
  write(ask: StepAsk): Promise<Step>;
  /**
   * Nothing will be drawn behind a path. Told of each once, those that go on from it before. `siblings`: those behind
   * which something will be, perhaps none.
   */
  drop?(path: Path, siblings: readonly Path[]): void;
}

export interface PathJudge {
  /** `process`: a score for each step. `outcome`: one for a whole answer, which guides no search. */
  readonly kind: 'process' | 'outcome';
  /**
   * Scores of the path's steps, then of those ahead; of an outcome model one. A step that was drawn to the end
   * (`toEnd`) is scored as the steps that its separators make of it. What was scored before is not computed again.
   * Rejects with PathFailed; with the signal's reason where that was aborted.
   */
  score(path: Path, ahead: readonly Step[], signal: AbortSignal): Promise<readonly number[]>;
  /** Paths that go on from this one will be scored: what they begin alike with may be computed now. */
  prepare?(path: Path): void;
  /** Nothing behind a path will be scored. */
  drop?(path: Path, siblings: readonly Path[]): void;
}
