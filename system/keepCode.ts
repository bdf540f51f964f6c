/** Writes the archive of V8's code (codeArchive.ts) when a process ends that compiled what was not in it. */
import { chmodSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { CodeArchive, packArchive } from './codeArchive.js';
import { intruder } from './read.js';
import { makeFolder, writeAtomically } from './write.js';

/** More commands and processes than there are: an archive that names more was not made by this program. */
const MAX_USES = 64;

export interface CodeToKeep {
  /** A command or process, whose code is all of `chunks`. */
  readonly use: string;
  readonly chunks: ReadonlyMap<string, Uint8Array>;
}

/**
 * Writes what this process compiled, and what was in the archive besides, to `path` in a folder of the cache. A folder
 * that is missing is made, for this user alone; where it cannot be, or others may write to it, nothing is kept.
 */
export function keepCode(path: string, { use, chunks }: CodeToKeep): void {
  try {
    const folder = dirname(path);
    makeFolder(folder, 0o700);
    if ([folder, dirname(folder)].some((each) => intruder(statSync(each)) !== undefined)) return;
    const archive = CodeArchive.open(path);
    const all = new Map(chunks);
    for (const name of archive?.names ?? []) {
      const code = all.has(name) ? undefined : archive?.codeOf(name);
      if (code !== undefined) all.set(name, code);
    }
    const uses = [...new Set([...(archive?.uses ?? []), use])];
    archive?.close();
    const parts = packArchive(uses.length > MAX_USES ? [use] : uses, all);
    if (parts === undefined) return;
    writeAtomically(path, parts);
    // The umask may let the group write, and what others may write to is not read.
    chmodSync(path, 0o600);
  } catch {
    // A cache that cannot be written costs the next start a few hundredths of a second, and nothing else.
  }
}
