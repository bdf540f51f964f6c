/** Where the files of a model go in the folder given with --out. */
import { join } from 'node:path';

/** A model's name as a folder name, by the public harness's rule; never '.', '..' or empty. */
export function sanitiseModelName(name: string): string {
  const cleaned = name.replace(/["<>:/|\\?*[\]]+/g, '__').replace(/[\0-\x1f]/g, '_');
  return /^\.*$/.test(cleaned) ? `__${cleaned}` : cleaned;
}

export const modelFolder = (out: string, modelName: string): string => join(out, sanitiseModelName(modelName));
