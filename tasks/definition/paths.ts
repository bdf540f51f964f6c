/** Task files that are named by their path, where a name is expected. */
import { readdirSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { matching } from '../../system/glob.js';
import { isFolder, kindAt } from '../../system/read.js';

const IS_FILE = /\.ya?ml$/;
const IS_PATTERN = /[*?[]/;

export const isPattern = (name: string): boolean => IS_PATTERN.test(name);

const filesIn = (folder: string, pattern: string): string[] =>
  matching([pattern], readdirSync(folder).sort()).map((name) => join(folder, name));

/**
 * The files that a name stands for if it is a path: one `.yaml` file, those that a pattern in its last part matches, or
 * all of a folder. Undefined for a name that is no path. Throws UserError if there is no such file or folder.
 */
export function filesNamed(name: string): readonly string[] | undefined {
  const path = resolve(name);
  const isPath = IS_FILE.test(name);
  if (/[/\\]$/.test(name) && !isFolder(path))
    throw new UserError(
      `${path}: there is no such folder`,
      'Give a folder of task files, or a name of `tilewright tasks`',
    );
  if (!isPath && !isFolder(path)) return undefined;
  // Any folder may have the name of a task.
  if (!isPath && !/[/\\]/.test(name) && filesIn(path, '*.yaml').length === 0) return undefined;
  const folder = isPath ? dirname(path) : path;
  const pattern = isPath ? basename(path) : '*.yaml';
  const found = !isPath || isPattern(pattern) ? (isFolder(folder) ? filesIn(folder, pattern) : []) : [path];
  if (found.length === 0 || !found.every((each) => kindAt(each) === 'file'))
    throw new UserError(
      `${name}: there is no such task file`,
      'Give the path of a .yaml file, or a name of `tilewright tasks`',
    );
  return found;
}
