/** A burst of launches of one candidate: enough for a median, few enough to try hundreds. */
import type { Bucket } from '../../ir/plan.js';
import type { CudaProgram } from '../../runtime/cuda/addon.js';
import { median } from '../database.js';
import { secondsOfLaunch } from './interleave.js';

const FIRST_SAMPLES = 3;
const MIN_SAMPLES = 7;
const MAX_SAMPLES = 60;
const SAMPLE_SECONDS = 0.03;
/** Launches before the counted ones: clocks settle, the queue fills. */
const WARM_SECONDS = 0.01;
const MAX_WARM = 64;
/** Samples shorter than this are several launches: events tell half a microsecond. */
const SHORTEST_SAMPLE = 1e-4;
const MAX_PER_SAMPLE = 32;
/** After the first samples, a candidate this much slower than the best is given up. */
const HOPELESS = 1.3;

export const wasGivenUp = (seconds: readonly number[]): boolean => seconds.length === FIRST_SAMPLES;

/** Seconds of a launch, once a sample, all copies in turn; few samples where it takes far more than `best` seconds. */
export async function sample(program: CudaProgram, launches: readonly number[], { tokens, rows }: Bucket, best: number): Promise<number[]> {
  const time = async (warmup: number, repeats: number, perSample: number): Promise<number[]> =>
    secondsOfLaunch(await program.time({ tokens, rows, launches, warmup, repeats, perSample }), perSample);
  const first = await time(1, FIRST_SAMPLES, 1);
  const estimate = median(first);
  if (estimate > HOPELESS * best) return first;
  const perSample = Math.max(1, Math.min(MAX_PER_SAMPLE, Math.ceil(SHORTEST_SAMPLE / estimate)));
  const repeats = Math.max(MIN_SAMPLES, Math.min(MAX_SAMPLES, Math.ceil(SAMPLE_SECONDS / (estimate * perSample))));
  return time(Math.min(MAX_WARM, Math.ceil(WARM_SECONDS / (estimate * perSample))), repeats, perSample);
}
