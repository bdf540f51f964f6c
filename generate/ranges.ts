/** Numbers in a range, for schemas: what is refused is told the range. */
import { z } from 'zod';

/** A number from `least` to `most`. */
export function from(least: number, most: number): z.ZodNumber {
  const error = `expected a number from ${least} to ${most}`;
  return z.number({ error }).min(least, { error }).max(most, { error });
}

/** A number above `least`, at most `most`. */
export function above(least: number, most: number): z.ZodNumber {
  const error = `expected a number above ${least}, at most ${most}`;
  return z.number({ error }).gt(least, { error }).max(most, { error });
}

/** A whole number from `least` to `most`. */
export function wholeFrom(least: number, most: number): z.ZodNumber {
  const error = `expected a whole number from ${least} to ${most}`;
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
}
