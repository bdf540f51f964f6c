/** The parts of tuning that all targets share, besides the search. */
import type { TuneRow } from '../../autotune/search.js';
import { deadline, unlessStopped } from '../../autotune/until.js';

/** The rows of measured (kernel, bucket) pairs. A short budget reaches only some of them. */
export const measuredRows = <S>(rows: readonly TuneRow<S>[]): readonly TuneRow<S>[] =>
  rows.filter((row) => row.bestSeconds !== undefined);

/** Seconds to wait for outstanding device work after tuning has stopped. */
const LEAVE_SECONDS = 1;

/** Whether all work of the measurer has ended, or ends soon. Only then can the measurer be released. */
export async function isIdleSoon(measurer: { idle(): Promise<void> }): Promise<boolean> {
  const patience = deadline(LEAVE_SECONDS, undefined);
  const isIdle = await unlessStopped(
    measurer.idle().then(() => true),
    patience.signal,
  );
  patience.end();
  return isIdle === true;
}
