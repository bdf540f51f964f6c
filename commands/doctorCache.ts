/** The check of the cache folder: whether it can be written and is the user's own, and how full it is. */
import { closeSync, lstatSync, mkdtempSync, openSync, readdirSync, rmSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { requireCacheDir } from '../runtime/kernelCache.js';
import { intruder } from '../system/read.js';
import { bytes, counted } from '../system/text.js';
import { makeFolder } from '../system/write.js';
import { type Check, missing, type Probes, reasonOf } from './doctorProbes.js';

const MAX_ENTRIES = 100_000;

/** Bytes of all files below a folder. Stops counting at MAX_ENTRIES. Links are not followed. */
export function folderBytes(folder: string): { bytes: number; files: number } {
  let total = 0,
    files = 0,
    seen = 0;
  const queue = [folder];
  for (let at = queue.pop(); at !== undefined && seen < MAX_ENTRIES; at = queue.pop()) {
    let entries;
    try {
      entries = readdirSync(at, { withFileTypes: true });
    } catch {
      continue; // It was removed meanwhile, or cannot be read.
    }
    for (const entry of entries) {
      seen++;
      const path = join(at, entry.name);
      if (entry.isDirectory()) queue.push(path);
      else if (entry.isFile()) {
        try {
          total += lstatSync(path).size;
          files++;
        } catch {
          // It was removed meanwhile.
        }
      }
    }
  }
  return { bytes: total, files };
}

/** Makes the cache folder where there is none, writes into it, and counts what it holds. */
export function checkCache({ cacheLimit, ...probes }: Probes): Check {
  let limit: number;
  let cacheDir: string;
  try {
    limit = cacheLimit();
    cacheDir = requireCacheDir(probes);
  } catch (error) {
    return missing('cache folder', error);
  }
  try {
    makeFolder(cacheDir, 0o700);
    const trial = mkdtempSync(join(cacheDir, '.doctor-'));
    try {
      const file = openSync(join(trial, 'probe'), 'wx');
      try {
        writeSync(file, 'probe');
      } finally {
        closeSync(file);
      }
    } finally {
      rmSync(trial, { recursive: true, force: true });
    }
  } catch (error) {
    return {
      name: 'cache folder',
      status: 'missing',
      detail: `${cacheDir}: ${reasonOf(error)}`,
      fix: 'make it writable, or choose another: export TILEWRIGHT_CACHE=/path',
    };
  }
  const problem = intruder(statSync(cacheDir));
  if (problem !== undefined)
    return {
      name: 'cache folder',
      status: 'missing',
      detail: `${cacheDir}: ${problem}, and what lies there is run`,
      fix: 'choose a folder of your own: export TILEWRIGHT_CACHE=/path',
    };
  const { bytes: used, files } = folderBytes(cacheDir);
  return {
    name: 'cache folder',
    status: 'ok',
    detail:
      `${cacheDir}: writable, ${bytes(used)} in ${counted(files, 'file')} (safe to delete; ` +
      `compiled kernels: ${limit === Infinity ? 'no limit' : `at most ${bytes(limit)}, TILEWRIGHT_CACHE_LIMIT`})`,
  };
}
