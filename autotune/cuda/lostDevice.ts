/** Failures of measurements: those of a candidate, and those after which the device answers no more. */
import { cudaScheduling } from '../../codegen/cuda/scheduling.js';
import { UserError } from '../../errors.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { Kernel } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import { isCudaError } from '../../runtime/cuda/addon.js';
import type { MeasureRequest } from '../measurement.js';
import { Hung } from './patience.js';

/** Whether the device cannot be used any more after `error`. */
export const endsDevice = (error: unknown): boolean =>
  error instanceof Hung || (isCudaError(error) && error.isContextDead);

const reasonOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));

/** The error for a candidate that ended the device. */
export const lostToCandidate = (
  request: MeasureRequest<CudaSchedule>,
  schedule: CudaSchedule,
  cause: unknown,
): UserError =>
  new UserError(
    `${request.kernel.path} with ${cudaScheduling.key(schedule)} made the device unusable: ${reasonOf(cause)}`,
    'run the same tune command again: it continues without that schedule',
    { cause },
  );

/** The error for a final that ended the device. */
export const lostInFinal = (kernels: readonly Kernel[], bucket: Bucket, cause: unknown): UserError =>
  new UserError(
    `A final of ${kernels.length} kernels at ${tokensIn(bucket)} tokens made the device unusable: ${reasonOf(cause)}`,
    'run the same tune command again: measurements so far are kept',
    { cause },
  );

/** The text's start, short enough for a record. */
export const shorten = (text: string): string => text.trim().slice(0, 400) || 'it failed without a message';
