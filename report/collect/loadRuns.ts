/** Runs as a page needs them: their files and short names. */
import { basename, resolve } from 'node:path';
import { UsageError } from '../../errors.js';
import { findRun, type RunFiles } from '../../eval/compare/findRuns.js';

const MOST_RUNS = 20;

export interface LoadedRun {
  /** A short name that no other run of the page has. */
  readonly name: string;
  readonly files: RunFiles;
}

/** Model and arithmetic, the folder where these are the same, and numbers where these are. */
function namesOf(runs: readonly RunFiles[]): string[] {
  const models = runs.map(({ model, arithmetic }) => (arithmetic === undefined ? model : `${model}, ${arithmetic}`));
  const isUnique = (names: readonly string[], name: string): boolean =>
    names.filter((each) => each === name).length < 2;
  const folders = runs.map(({ path }) => basename(resolve(path)));
  const named = models.map((name, i) => (isUnique(models, name) ? name : `${folders[i]!} (${name})`));
  return named.map((name, i) => (isUnique(named, name) ? name : `${i + 1}: ${name}`));
}

/** Each a folder of results, a results_*.json or a samples_*.jsonl. Throws UserError. */
export function loadRuns(paths: readonly string[]): LoadedRun[] {
  if (paths.length > MOST_RUNS)
    throw new UsageError(`${paths.length} runs are more than a page can show`, `give at most ${MOST_RUNS}`);
  const files = paths.map(findRun);
  const names = namesOf(files);
  return files.map((each, i) => ({ files: each, name: names[i]! }));
}
