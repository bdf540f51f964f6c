/**
 * The speed of a device, whose clocks drift: times are scaled to its speed when the default was first measured. The
 * default runs beside what is timed, and its times before and after give the current speed.
 */
import { cudaScheduling } from '../../codegen/cuda/scheduling.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { MeasureRequest } from '../measurement.js';
import { median } from '../median.js';
import { wasGivenUp } from './sample.js';

/** Seconds of a burst of the default; undefined if it did not compile. */
type DefaultNow = () => Promise<number | undefined>;

/**
 * Scales the seconds of one candidate after another. The default runs again after each of them. Seconds are unscaled if
 * the default fails or the candidate was abandoned.
 */
export function paceOf(
  request: MeasureRequest<CudaSchedule>,
  defaultNow: DefaultNow,
): (schedule: CudaSchedule, seconds: readonly number[]) => Promise<readonly number[]> {
  const own = cudaScheduling.key(request.reference);
  let nominal = request.referenceSeconds;
  let before: number | undefined;
  return async (schedule, seconds) => {
    const taken = median(seconds);
    if (cudaScheduling.key(schedule) === own) {
      nominal ??= taken;
      before = taken;
      return seconds;
    }
    if (nominal === undefined || wasGivenUp(seconds)) return seconds;
    const after = await defaultNow();
    if (after === undefined) return seconds;
    const factor = (2 * nominal) / ((before ?? after) + after);
    before = after;
    return seconds.map((each) => each * factor);
  };
}

/** Seconds from `time`, scaled by the default's before and after it. `nominal`: the default's when it was measured. */
export async function timedBetween(
  nominal: number,
  defaultNow: DefaultNow,
  time: () => Promise<readonly number[]>,
): Promise<readonly number[]> {
  const before = await defaultNow();
  const seconds = await time();
  const after = await defaultNow();
  return before === undefined || after === undefined
    ? seconds
    : seconds.map((each) => (each * 2 * nominal) / (before + after));
}
