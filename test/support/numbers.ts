/**
 * Pearson's χ² of counts against what is expected, as a number of standard deviations above its mean: below 3.5 in all
 * but about 1 of 1,000 cases. Where nothing is expected, nothing may be found: Infinity. Cells with fewer than 5
 * expected are counted together.
 */
export function chiSquare(found: readonly number[], expected: readonly number[]): number {
  const cells: { found: number; expected: number }[] = [];
  const rest = { found: 0, expected: 0 };
  for (const [i, wanted] of expected.entries()) {
    if (wanted === 0 && found[i]! > 0) return Infinity;
    if (wanted >= 5) cells.push({ found: found[i]!, expected: wanted });
    else {
      rest.found += found[i]!;
      rest.expected += wanted;
    }
  }
  if (rest.expected >= 1) cells.push(rest);
  const degrees = Math.max(1, cells.length - 1);
  const sum = cells.reduce((total, cell) => total + (cell.found - cell.expected) ** 2 / cell.expected, 0);
  return (sum - degrees) / Math.sqrt(2 * degrees);
}

// Numbers of a seed, the same on every machine (Park–Miller).

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

// Compares long results to the bit, except that any NaN equals any other. Comparing them with toEqual takes longer
// than computing them.

/** Throws if the lengths differ, or at the first value that does. */
export function expectSame(got: Float64Array | undefined, want: Float64Array | undefined, about = 'the result'): void {
  if (got === undefined || want === undefined) throw new Error(`${about} is missing`);
  if (got.length !== want.length) throw new Error(`${about} has ${got.length} values, not ${want.length}`);
  for (let i = 0; i < want.length; i++) {
    if (!Object.is(got[i], want[i])) throw new Error(`${about}[${i}] is ${got[i]}, not ${want[i]}`);
  }
}
