/** Errors of a request that end one path; others are of the engine, and end the search. */
import { GenerateError } from '../../engine/request.js';
import { PathFailed } from '../ports.js';

/** Errors of device processes and of servers have lost their class. */
const OF_ONE_REQUEST: readonly string[] = ['NonFiniteError'];

/** What cannot be computed of one request, as PathFailed; any other error as it is. */
export function asPathFailure(error: unknown): unknown {
  if (error instanceof PathFailed || !(error instanceof Error)) return error;
  const isOfOne = error instanceof GenerateError || OF_ONE_REQUEST.includes(error.name);
  return isOfOne ? new PathFailed(error.message, { cause: error }) : error;
}
