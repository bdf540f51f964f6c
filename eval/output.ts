/** Where the files of a model go in the folder given with --out. */
import { closeSync, existsSync, openSync, readdirSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { isRecord } from '../system/json.js';
import { fileSize, readBounded } from '../system/read.js';

/** A model's name as a folder name, by the public harness's rule; never '.', '..' or empty. */
export function sanitiseModelName(name: string): string {
  const cleaned = name.replace(/["<>:/|\\?*[\]]+/g, '__').replace(/[\0-\x1f]/g, '_');
  return /^\.*$/.test(cleaned) ? `__${cleaned}` : cleaned;
}

export const modelFolder = (out: string, modelName: string): string => join(out, sanitiseModelName(modelName));

const MAX_HEADER_BYTES = 1 << 16;
const MAX_RESULTS_BYTES = 1 << 24;

/** The first line of a journal, or the whole of a results file, where it is JSON; undefined where it is not. */
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
    return undefined; // Whoever goes on with the file says what is wrong with it.
  }
}

/** The checkpoint whose answers a folder holds, as its journals and results say; undefined where none says. */
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

/**
 * The name under which a checkpoint's results are kept: `wanted`, or, where that folder holds answers of another
 * checkpoint, `wanted` and the first digits of this one's identity.
 */
export function distinctModelName(out: string, wanted: string, checkpoint: string): string {
  const folder = modelFolder(out, wanted);
  if (!existsSync(folder)) return wanted;
  const shards = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name.startsWith('shard-'))
    .map(({ name }) => join(folder, name));
  for (const each of [folder, ...shards]) {
    const owner = checkpointOf(each);
    if (owner !== undefined) return owner === checkpoint ? wanted : `${wanted}-${checkpoint.slice(0, 8)}`;
  }
  return wanted;
}
