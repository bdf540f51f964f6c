/**
 * How work grows with its input. Processor time at two sizes is compared, by a wide factor: a slow or busy machine
 * comes to the same verdict as a fast one, which a limit of seconds does not.
 */
import { expect } from 'vitest';

const TIMES = 8;
/** A linear function takes 8 times as long, and some more where its data leaves a cache; a quadratic one takes 64. */
const MAX_RATIO = 40;
const TRIES = 3;
/** Less processor time than this is not told apart from noise. */
const MIN_MS = 2;

/** Least processor time of some calls, in milliseconds. All threads of this process count. */
function minCpuMs(work: () => unknown): number {
  let least = Infinity;
  for (let i = 0; i < TRIES; i++) {
    const before = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, (user + system) / 1000);
  }
  return least;
}

/**
 * Expects that work takes time in proportion to its size. `prepare` makes an input of a size and returns the work on
 * it, which is called several times. At `size` it should take some milliseconds.
 */
export function expectLinear(prepare: (size: number) => () => unknown, size: number): void {
  const small = prepare(size);
  const large = prepare(TIMES * size);
  small();
  let ratio = Infinity;
  for (let i = 0; i < TRIES && ratio > MAX_RATIO; i++) ratio = minCpuMs(large) / Math.max(MIN_MS, minCpuMs(small));
  expect(ratio, `processor time of ${TIMES} times the input, beside the input`).toBeLessThan(MAX_RATIO);
}
