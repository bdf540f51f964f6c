/** Every fuzzer, for a moment. `npm run fuzz` runs them for any length of time. */
import { describe, it } from 'vitest';
import { randomOf } from './mutate.js';
import { FUZZERS } from './registry.js';

describe.each(Object.entries(FUZZERS))('the fuzzer %s', (_, { round, rounds }) => {
  it(`finds nothing in ${rounds} rounds`, async () => {
    for (let seed = 1; seed <= rounds; seed++) {
      try {
        await round(randomOf(seed));
      } catch (error) {
        throw new Error(`round of seed ${seed}: ${String(error)}`, { cause: error });
      }
    }
  });
});
