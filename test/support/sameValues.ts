/**
 * Compares long results to the bit, except that any NaN equals any other. Comparing them with toEqual takes longer than
 * computing them.
 */

/** Throws if the lengths differ, or at the first value that does. */
export function expectSame(got: Float64Array | undefined, want: Float64Array | undefined, about = 'the result'): void {
  if (got === undefined || want === undefined) throw new Error(`${about} is missing`);
  if (got.length !== want.length) throw new Error(`${about} has ${got.length} values, not ${want.length}`);
  for (let i = 0; i < want.length; i++) {
    if (!Object.is(got[i], want[i])) throw new Error(`${about}[${i}] is ${got[i]}, not ${want[i]}`);
  }
}
