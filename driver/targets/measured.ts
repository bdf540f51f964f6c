/** What tuning on every target has in common around its search. */
import type { TuneRow } from '../../autotune/search.js';
import { deadline, unlessStopped } from '../../autotune/until.js';

/** A short budget reaches few of the (kernel, bucket) pairs: the table is about those. */
export const measuredRows = <S>(rows: readonly TuneRow<S>[]): readonly TuneRow<S>[] =>
  rows.filter((row) => row.bestSeconds !== undefined);

/** Seconds that what was asked of a device may take to end, once nobody waits for it. */
const LEAVE_SECONDS = 1;

/** Whether nothing is under way there any more, or soon: only then can it be released. */
export async function isIdleSoon(measurer: { idle(): Promise<void> }): Promise<boolean> {
  const patience = deadline(LEAVE_SECONDS, undefined);
  const isIdle = await unlessStopped(
    measurer.idle().then(() => true),
    patience.signal,
  );
  patience.end();
  return isIdle === true;
}
