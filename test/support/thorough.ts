/** Cases that CI has no time for: `npm run test:slow` runs files that use this once more, with all of theirs. */
import { inject, test, type TestAPI } from 'vitest';

/** What vitest.config.ts provides: true in the slow project only. */
export const isThorough = inject('isThorough' as never) as boolean;

/** A test that varies what others of its file prove in CI; test:slow runs it. */
export const thorough: ReturnType<TestAPI['runIf']> = test.runIf(isThorough);

/** All of `cases` in test:slow; in CI those at `places`, which differ from each other the most. */
export function casesHere<T>(cases: readonly T[], ...places: readonly number[]): T[] {
  if (isThorough) return [...cases];
  return places.map((place) => {
    const each = cases[place];
    if (each === undefined) throw new Error(`there is no case ${place} of ${cases.length}`);
    return each;
  });
}
