/** A burst of launches of a candidate or of the vendor's library: enough for a median, few enough to try hundreds. */
import { median } from '../median.js';
import type { Contender } from './interleave.js';

const FIRST_SAMPLES = 3;
const MIN_SAMPLES = 7;
const MAX_SAMPLES = 60;
const SAMPLE_SECONDS = 0.03;
/** Seconds of launches before counting starts: clocks settle and the queue fills. */
const WARM_SECONDS = 0.01;
const MAX_WARM = 64;
/** Shorter launches are grouped into one sample of this many seconds: events resolve half a microsecond. */
const SHORTEST_SAMPLE = 1e-4;
const MAX_PER_SAMPLE = 32;
/** After the first samples, a candidate is abandoned if it is this many times slower than the best. */
const HOPELESS = 1.3;

export const wasGivenUp = (seconds: readonly number[]): boolean => seconds.length === FIRST_SAMPLES;

/** Seconds per launch, one value per sample. Takes few samples if a launch takes far more than `best` seconds. */
export async function sample(time: Contender['time'], best: number): Promise<readonly number[]> {
  const first = await time({ warmup: 1, repeats: FIRST_SAMPLES, perSample: 1 });
  const estimate = median(first);
  if (estimate > HOPELESS * best) return first;
  const perSample = Math.max(1, Math.min(MAX_PER_SAMPLE, Math.ceil(SHORTEST_SAMPLE / estimate)));
  const repeats = Math.max(MIN_SAMPLES, Math.min(MAX_SAMPLES, Math.ceil(SAMPLE_SECONDS / (estimate * perSample))));
  return time({ warmup: Math.min(MAX_WARM, Math.ceil(WARM_SECONDS / (estimate * perSample))), repeats, perSample });
}
