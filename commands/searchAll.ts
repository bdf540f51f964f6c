/** Problems side by side: each is searched by itself, and told of when it ends. */
import { UserError } from '../errors.js';
import { GenerateError } from '../engine/request.js';
import type { Problem } from '../search/path.js';
import type { PathJudge, StepWriter } from '../search/ports.js';
import type { ProblemResult } from '../search/result.js';
import type { SearchOptions } from '../search/options.js';
import type { ProblemSchedule } from '../search/schedule.js';
import type { SearchProblem } from '../search/methods/searchProblem.js';
import type { SearchedProblem } from './searchRequest.js';

export interface SearchingAll {
  readonly search: SearchProblem;
  readonly schedule: ProblemSchedule;
  readonly writer: StepWriter;
  readonly judge: PathJudge | undefined;
  readonly options: SearchOptions;
  /** Problems that are searched already, by their places: they are told of first. */
  readonly done: ReadonlyMap<number, ProblemResult>;
  /** Ends what is being searched. What is not finished then is left out. */
  readonly signal: AbortSignal;
}

/**
 * `onSearched` is told of each problem, in the order in which they end. Rejects with what is no fault of a problem; the
 * other searches are ended then. An abort is no error.
 */
export async function searchAll(
  problems: readonly Problem[],
  { search, schedule, writer, judge, options, done, signal }: SearchingAll,
  onSearched: (searched: SearchedProblem) => void,
): Promise<void> {
  const over = new AbortController();
  const stop = AbortSignal.any([over.signal, signal]);
  const left = [...problems.keys()].filter((index) => !done.has(index));
  for (const [index, result] of done) {
    const problem = problems[index];
    if (problem !== undefined) onSearched({ index, problem, result });
  }
  const watched = schedule.watch(writer);
  try {
    await schedule.run(
      left.map((index) => problems[index]!),
      async (problem) => {
        try {
          const hasSpareTime = (): boolean => schedule.hasSpareTime;
          return await search(problem, { writer: watched, judge, options, signal: stop, hasSpareTime }).then(
            (result) => ({ result }),
            (error: unknown) => ({ error: problemError(error, stop) }),
          );
        } catch (error) {
          over.abort(error);
          throw error;
        }
      },
      (found, place) => {
        const index = left[place]!;
        const problem = problems[index]!;
        try {
          if ('result' in found) onSearched({ index, problem, result: found.result });
          else if (found.error !== undefined) onSearched({ index, problem, error: found.error });
        } catch (error) {
          over.abort(error);
          throw error;
        }
      },
      stop,
    );
  } catch (error) {
    if (!signal.aborted || error !== signal.reason) throw error;
  }
}

/** What is wrong with a problem; undefined for one that was ended. Throws what is no fault of the problem. */
function problemError(error: unknown, stop: AbortSignal): string | undefined {
  if (stop.aborted) return undefined;
  if (error instanceof UserError || error instanceof GenerateError) return error.message;
  throw error;
}
