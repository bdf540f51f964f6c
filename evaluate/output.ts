/** Names of the files of a model in the folder given with --out. */
import { closeSync, openSync, readdirSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { isRecord } from '../system/json.js';
import { quoteForShell } from '../system/process.js';
import { fileSize, readBounded } from '../system/read.js';
import { prepareOutput, writeIfAbsent } from '../system/write.js';

/** A model's name as a folder name, by the public harness's rule; never '.', '..' or empty. */
export function sanitiseModelName(name: string): string {
  const cleaned = name.replace(/["<>:/|\\?*[\]]+/g, '__').replace(/[\0-\x1f]/g, '_');
  return /^\.*$/.test(cleaned) ? `__${cleaned}` : cleaned;
}

export const modelFolder = (out: string, modelName: string): string => join(out, sanitiseModelName(modelName));

const MAX_HEADER_BYTES = 1 << 16;
const MAX_RESULTS_BYTES = 1 << 24;

/** The first line of a journal, or the whole of a results file, if it is JSON; undefined otherwise. */
function readHead(path: string): unknown {
  try {
    if (path.endsWith('.json')) {
      const isSmall = (fileSize(path) ?? Infinity) <= MAX_RESULTS_BYTES;
      return isSmall ? JSON.parse(readBounded(path, MAX_RESULTS_BYTES).toString()) : undefined;
    }
    const fd = openSync(path, 'r');
    try {
      const bytes = Buffer.alloc(MAX_HEADER_BYTES);
      return JSON.parse(bytes.toString('utf8', 0, readSync(fd, bytes, 0, bytes.length, 0)).split('\n', 1)[0] ?? '');
    } finally {
      closeSync(fd);
    }
  } catch {
    return undefined; // Code that uses the file later reports what is wrong with it.
  }
}

/** The checkpoint whose answers a folder holds, according to its journals and results; undefined if none names one. */
function checkpointOf(folder: string): string | undefined {
  for (const { name } of readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isFile())) {
    if (!/^(journal_.*\.jsonl|results_.*\.json)$/.test(name)) continue;
    const head = readHead(join(folder, name));
    const run = isRecord(head) ? (head['run'] ?? head['provenance']) : undefined;
    const checkpoint = isRecord(run) ? run['checkpoint'] : undefined;
    if (typeof checkpoint === 'string') return checkpoint;
  }
  return undefined;
}

/** The checkpoint that took a folder before any answers were written. */
const CLAIM = '.checkpoint';
const MAX_CLAIM_BYTES = 1 << 10;

/** The checkpoint that a model's folder belongs to; taken for `checkpoint` where it belongs to none. */
function claim(folder: string, checkpoint: string): string {
  const shards = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name.startsWith('shard-'))
    .map(({ name }) => join(folder, name));
  for (const each of [folder, ...shards]) {
    const owner = checkpointOf(each);
    if (owner !== undefined) return owner;
  }
  const path = join(folder, CLAIM);
  if (writeIfAbsent(path, checkpoint)) return checkpoint;
  return readBounded(path, MAX_CLAIM_BYTES, `remove it: rm ${quoteForShell(path)}`).toString();
}

/**
 * Takes a name for a checkpoint's results and makes its folder: `wanted`, or, where that folder belongs to another
 * checkpoint, `wanted` and the first digits of this one's identity. Of two checkpoints that want one name at the same
 * time, one gets it. Throws UserError.
 */
export function claimModelName(out: string, wanted: string, checkpoint: string): string {
  prepareOutput(modelFolder(out, wanted));
  if (claim(modelFolder(out, wanted), checkpoint) === checkpoint) return wanted;
  const name = `${wanted}-${checkpoint.slice(0, 8)}`;
  prepareOutput(modelFolder(out, name));
  return name;
}
