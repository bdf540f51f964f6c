/** A search of one problem, by the method that is asked for. */
import type { Problem } from './path.js';
import type { PathJudge, StepWriter } from './ports.js';
import type { SearchOptions } from './options.js';
import type { ProblemResult } from './result.js';

export interface Searching {
  readonly writer: StepWriter;
  /** Absent: of `majority` alone. */
  readonly judge?: PathJudge | undefined;
  readonly options: SearchOptions;
  /** Ends the search; it then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

export type SearchProblem = (problem: Problem, searching: Searching) => Promise<ProblemResult>;
