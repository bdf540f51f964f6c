/** Who won a final. */
import type { Final, Known } from './records.js';

/** The fastest entry of a final, or the default if it was not beaten clearly. Undefined if there are no entries. */
export function winnerOf<S>(
  { entries, marginSeconds }: Final<S>,
  isDefault: (schedule: S) => boolean,
): Known<S> | undefined {
  const first = entries.reduce<Known<S> | undefined>(
    (top, each) => (top === undefined || each.seconds < top.seconds ? each : top),
    undefined,
  );
  const start = entries.find(({ schedule }) => isDefault(schedule));
  return first !== undefined && start !== undefined && first.seconds >= start.seconds - marginSeconds ? start : first;
}
