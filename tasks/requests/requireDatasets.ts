/** Whether the data of tasks are there, before anything is computed. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { isFolder } from '../../system/read.js';
import type { Settings } from '../definition/settings.js';
import { isDict, isList, type Value } from '../../python/value.js';
import { Keys } from './keys.js';
import { datasetFolder, type DataRoots } from '../data/folders.js';
import { BUILDERS, isPathOfData } from '../data/splits.js';

/**
 * Throws one UserError that names every data set, folder and file that is missing, with the commands that download
 * them. Configurations, splits and what files hold are looked at when a task begins.
 */
export function requireDatasets(tasks: readonly Settings[], roots: DataRoots): void {
  const problems = new Map<string, UserError>();
  for (const task of tasks)
    for (const problem of problemsOf(new Keys(task), roots))
      if (!problems.has(problem.message)) problems.set(problem.message, problem);
  const [first, ...more] = problems.values();
  if (first === undefined) return;
  if (more.length === 0) throw first;
  const hints = [...new Set([...problems.values()].flatMap(({ hint }) => hint ?? []))];
  const isCommand = (hint: string): boolean => hint.startsWith('hf ');
  const commands = hints.filter(isCommand).join(' && ');
  throw new UserError(
    `data of these tasks are missing:\n${[...problems.keys()].map((line) => `  ${line}`).join('\n')}`,
    [...hints.filter((hint) => !isCommand(hint)), ...(commands === '' ? [] : [commands])].join('; '),
  );
}

function problemsOf(keys: Keys, roots: DataRoots): readonly UserError[] {
  const dataset = keys.text('dataset_path');
  if (dataset === undefined) return [];
  const options = keys.dict('dataset_kwargs');
  if (BUILDERS.has(dataset)) {
    const given = options.get('data_files') ?? null;
    // Files of splits that are not scored may be missing.
    const scored = keys.text('test_split') ?? keys.text('validation_split') ?? '';
    const absent = ownPaths(isDict(given) ? (given.get(scored) ?? null) : given).filter((path) => !existsSync(path));
    return absent.map(
      (path) => new UserError(`${keys.where('dataset_kwargs')}: ${path}: no such file`, 'check data_files there'),
    );
  }
  if (isPathOfData(dataset)) {
    const folder = resolve(dataset);
    return isFolder(folder) ? [] : [new UserError(`${keys.where('dataset_path')}: ${folder}: no folder of data`)];
  }
  const revision = options.get('revision');
  try {
    datasetFolder(dataset, roots, typeof revision === 'string' ? revision : undefined);
    return [];
  } catch (error) {
    if (error instanceof UserError) return [error];
    throw error;
  }
}

const ownPaths = (given: Value): readonly string[] =>
  (isList(given) ? given : [given]).filter((path) => typeof path === 'string').map((path) => resolve(path));
