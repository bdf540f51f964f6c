/** Reads a model's name as the user gives it, before any of its files is opened. */
import { existsSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UsageError } from '../errors.js';
import { RESERVED_ROWS } from '../ir/function.js';
import { isFolder } from '../system/read.js';

/** Where weights come from: the checkpoint, or a seed. */
export type WeightInit = { readonly kind: 'checkpoint' } | { readonly kind: 'random'; readonly seed: number };

/** Parses `random:SEED`. */
export function parseInit(text: string): WeightInit {
  const match = /^random:(\d{1,15})$/.exec(text);
  if (match === null)
    throw new UsageError(
      `--init ${JSON.stringify(text)}: expected random:SEED with a whole number`,
      'for example: --init random:1',
    );
  return { kind: 'random', seed: Number(match[1]) };
}

/** Describes an artifact. It is read before the artifact's other files. */
export const MANIFEST = 'manifest.json';

/** Whether a folder is an artifact: a checkpoint has no manifest. */
export const isArtifact = (path: string): boolean => existsSync(join(path, MANIFEST));

/** A short name for results: the folder that holds the checkpoint, or the artifact without its `.tw`. */
export function modelName(path: string): string {
  const full = resolve(path);
  const name = basename(full.endsWith('.json') && !isFolder(full) ? dirname(full) : full);
  return name.replace(/(?<=.)\.tw$/, '');
}

/** Most tokens whose keys and values can be kept. */
export const MAX_CACHE_TOKENS = RESERVED_ROWS;
