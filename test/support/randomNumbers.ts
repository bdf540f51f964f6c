/** Numbers of a seed, the same on every machine (Park–Miller). */

/** Whole numbers from 1 to 2³¹ − 2. */
function wholeNumbers(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 48271) % 2147483647);
}

/** Small numbers, within ±0.5. */
export function randomNumbers(seed: number): () => number {
  const next = wholeNumbers(seed);
  return () => next() / 2147483647 - 0.5;
}

/** Token ids below 500. */
export function randomTokens(seed: number, length: number): number[] {
  const next = wholeNumbers(seed);
  return Array.from({ length }, () => next() % 500);
}
