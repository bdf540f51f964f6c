/** How a race in a kernel is searched for, and kernels with a barrier less, which must be reported. */
import { expect } from 'vitest';
import { cannotWatch, takeRaces, watchRaces } from '../support/cudaWarp/compile.js';

/** Why kernels cannot be watched here; undefined if they are, from the import of this file on. */
export const reason = cannotWatch();
if (reason === undefined) watchRaces();
else console.warn(`SKIPPED: ${reason}, so no kernel was searched for races.`);

/** What is replaced in a kernel's text, and by what. */
export type Change = readonly [text: string, by: string];

/** Makes changes, each of which must find its text. */
export const changed = (source: string, changes: readonly Change[]): string =>
  changes.reduce((text, [from, to]) => {
    expect(text).toContain(from);
    return text.replace(from, to);
  }, source);

/** Races of a broken kernel, which may also wait for ever and give wrong values. */
export function racesOfBroken(changes: readonly Change[], run: (mutate: (text: string) => string) => unknown): string {
  try {
    run((source) => changed(source, changes));
  } catch (error) {
    if (!/threads.* wait for each other/.test(String(error))) throw error;
  }
  return takeRaces().join('\n');
}
