/** Times a program for as long as that says anything new. */
import type { NativeProgram } from '../../runtime/nativeProgram.js';
import { median } from '../median.js';

/** Enough for a stable median, and long enough for clocks to settle. */
const MIN_SAMPLES = 5;
const MAX_SAMPLES = 60;
const SAMPLE_SECONDS = 0.03;
/** After this many samples, a candidate is abandoned if it is this many times slower than the best. */
const EARLY_SAMPLES = 3;
const HOPELESS = 1.3;

/**
 * Seconds of each launch, over all copies in turn. The checked run has already warmed the caches. `best`: the median of
 * the best candidate so far. Fewer samples are taken where `signal` is aborted.
 */
export async function sample(
  program: NativeProgram,
  extents: readonly number[],
  best: number,
  signal: AbortSignal | undefined,
): Promise<number[]> {
  const seconds: number[] = [];
  let total = 0;
  while (seconds.length < MAX_SAMPLES && (seconds.length < MIN_SAMPLES || total < SAMPLE_SECONDS)) {
    const { launchNs } = await program.run({ extents, inputs: [], isTimed: true });
    for (const ns of launchNs ?? []) {
      // If the clock did not advance, the sample still counts, with a small positive time.
      seconds.push(Math.max(ns, 1) * 1e-9);
      total += ns * 1e-9;
    }
    if (signal?.aborted === true) break;
    if (seconds.length >= EARLY_SAMPLES && median(seconds) > HOPELESS * best) break;
    if (launchNs === undefined || launchNs.length === 0) throw new Error('The runtime timed no launch.');
  }
  return seconds;
}
