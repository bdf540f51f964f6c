/**
 * Equality of long results, to the bit but for what kind of NaN it is: comparing them with toEqual takes longer than
 * computing them.
 */

/** Throws where lengths differ, or at the first value that does. */
export function expectSame(got: Float64Array | undefined, want: Float64Array | undefined, about = 'the result'): void {
  if (got === undefined || want === undefined) throw new Error(`${about} is missing`);
  if (got.length !== want.length) throw new Error(`${about} has ${got.length} values, not ${want.length}`);
  for (let i = 0; i < want.length; i++) {
    if (!Object.is(got[i], want[i])) throw new Error(`${about}[${i}] is ${got[i]}, not ${want[i]}`);
  }
}
