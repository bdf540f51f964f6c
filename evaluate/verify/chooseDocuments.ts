/** Which documents are computed again: drawn from all alike, none twice. */
import { PythonRandom } from '../../python/random.js';

export interface Sampling {
  /** At most so many; Infinity for all. */
  readonly documents: number;
  /** The same seed draws the same of the same documents. */
  readonly seed: number;
}

/** Some of the documents of each task. */
export function chooseDocuments(
  documents: ReadonlyMap<string, readonly number[]>,
  { documents: wanted, seed }: Sampling,
): ReadonlyMap<string, ReadonlySet<number>> {
  const all = [...documents].flatMap(([task, own]) => [...own].sort((a, b) => a - b).map((doc) => ({ task, doc })));
  const drawn = wanted >= all.length ? all : new PythonRandom(seed).sample(all, wanted);
  const chosen = new Map([...documents.keys()].map((task) => [task, new Set<number>()]));
  for (const { task, doc } of drawn) chosen.get(task)?.add(doc);
  return chosen;
}
