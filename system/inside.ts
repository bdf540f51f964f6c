/** Names of files inside a folder that somebody else made: none may lead out of it. */
import { realpathSync } from 'node:fs';
import { join, sep } from 'node:path';
import { UserError } from '../errors.js';
import { codeOf, reasonOf } from './errno.js';
import { quote } from './json.js';

/** Plain names, below each other: no `..`, nothing hidden, nothing absolute. */
const NAME = /^(?!\.)[\w.-]{1,200}(\/(?!\.)[\w.-]{1,200}){0,3}$/;

/**
 * Path of `name` in `folder`. Throws UserError where the name, or a symbolic link, leads out of the folder. A file that
 * is missing is left to whoever opens it.
 */
export function pathInside(folder: string, name: string, hint?: string): string {
  if (!NAME.test(name)) throw new UserError(`${folder}: ${quote(name)} is no name of a file in it`, hint);
  const path = join(folder, name);
  try {
    if (!realpathSync(path).startsWith(`${realpathSync(folder)}${sep}`))
      throw new UserError(`${path}: a symbolic link leads out of the folder`, hint);
  } catch (error) {
    if (error instanceof UserError) throw error;
    if (codeOf(error) !== 'ENOENT')
      throw new UserError(`${path}: cannot be read: ${reasonOf(error)}`, hint, { cause: error });
  }
  return path;
}
