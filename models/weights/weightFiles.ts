/** The weight files of a checkpoint folder: one file, or shards that an index names. */
import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { UserError } from '../../errors.js';
import { isRecord, quote } from '../../system/json.js';
import { fileSize, isFolder, readJsonObject } from '../../system/read.js';
import { findGguf } from '../gguf/file.js';
import type { WeightFile } from '../model/tensors.js';
import { countParts, FIRST_PART, partName } from './meta.js';
import { findDuplicateKey, readSafetensorsHeader } from './safetensors.js';
import { readTorchFile } from './stateDict.js';

/** How a checkpoint may store its weights. */
interface WeightLayout {
  /** Name of the file if there is but one. */
  readonly single: string;
  readonly suffix: string;
  readonly read: (file: string) => WeightFile;
}

/** A layout that may have shards. */
interface ShardedLayout extends WeightLayout {
  /** Name of the file that says which tensor is in which shard. */
  readonly index: string;
  /** Names of shards. They contain no path, so none points outside the folder. */
  readonly shard: RegExp;
}

/** In the order in which a folder is searched: a repository may hold a model twice. */
const LAYOUTS: readonly (WeightLayout | ShardedLayout)[] = [
  {
    single: 'model.safetensors',
    index: 'model.safetensors.index.json',
    shard: /^(?!\.)[\w.-]{1,200}\.safetensors$/,
    suffix: '.safetensors',
    read: readSafetensorsHeader,
  },
  {
    single: 'pytorch_model.bin',
    index: 'pytorch_model.bin.index.json',
    shard: /^(?!\.)[\w.-]{1,200}\.bin$/,
    suffix: '.bin',
    read: readTorchFile,
  },
  { single: FIRST_PART, suffix: '.pth', read: readTorchFile },
];

const isSharded = (layout: WeightLayout): layout is ShardedLayout => 'index' in layout;

/** Names of index files. */
export const INDEXES: readonly string[] = LAYOUTS.filter(isSharded).map(({ index }) => index);
/** True for files that no index names. */
export const isSingleFile = (path: string): boolean => LAYOUTS.some(({ single }) => single === basename(path));

const INDEX_BYTES = 32 << 20;
const MAX_TENSORS = 1 << 18;
const MAX_SHARDS = 4096;
const SHOWN = 4;
const DOWNLOAD =
  'download it again: hf download <repository> --include "*.safetensors" "*.json" "tokenizer.model" ' +
  '--local-dir <folder>';

/** The error for a folder without weights; it names weight files of another kind. */
function noWeights(dir: string): UserError {
  let names: string[];
  try {
    names = readdirSync(dir);
  } catch {
    return new UserError(
      `${dir}: the folder does not exist or is not readable`,
      'give the folder of a Hugging Face checkpoint: config.json and *.safetensors',
    );
  }
  const other = names.find((name) => /\.(bin|pth|pt|safetensors)$/.test(name));
  const wanted = LAYOUTS.map((layout) =>
    isSharded(layout) ? `${layout.single} (or ${layout.index} and its shards)` : layout.single,
  )
    .concat('a GGUF file')
    .join(', ');
  return new UserError(
    `${dir}: found no weights: ${wanted}${other === undefined ? '' : `; ${quote(other)} cannot be read`}`,
    other !== undefined && !/\.(safetensors|bin|pth)$/.test(other)
      ? 'use a safetensors copy of the model (most repositories hold one)'
      : DOWNLOAD,
  );
}

/** weight_map of an index file: tensor → shard. */
function readIndex(path: string, { shard: pattern, suffix }: ShardedLayout): ReadonlyMap<string, string> {
  const { value, text } = readJsonObject(path, INDEX_BYTES, DOWNLOAD);
  const map = value['weight_map'];
  if (!isRecord(map)) throw new UserError(`${path}: weight_map: expected an object, got ${quote(map)}`, DOWNLOAD);
  const duplicate = findDuplicateKey(text);
  if (duplicate !== undefined) throw new UserError(`${path}: the key ${quote(duplicate, 120)} occurs twice`, DOWNLOAD);
  const entries = Object.entries(map);
  if (entries.length > MAX_TENSORS)
    throw new UserError(`${path}: names ${entries.length} tensors, more than the limit of ${MAX_TENSORS}`, DOWNLOAD);
  const shards = new Map<string, string>();
  for (const [tensor, shard] of entries) {
    if (typeof shard !== 'string' || !pattern.test(shard)) {
      throw new UserError(
        `${path}: tensor ${quote(tensor, 120)}: ${quote(shard)} is not the name of a ${suffix} file in this folder`,
        DOWNLOAD,
      );
    }
    shards.set(tensor, shard);
  }
  const count = new Set(shards.values()).size;
  if (count === 0 || count > MAX_SHARDS)
    throw new UserError(`${path}: names ${count} files; expected 1 to ${MAX_SHARDS}`, DOWNLOAD);
  return shards;
}

/** Headers of all shards. Each tensor must be in the file that the index names, and in no other. */
function readShards(dir: string, layout: ShardedLayout): WeightFile[] {
  const index = readIndex(join(dir, layout.index), layout);
  const counts = new Map<string, number>();
  for (const shard of index.values()) counts.set(shard, (counts.get(shard) ?? 0) + 1);
  const shards = [...counts.keys()].sort();
  const missing = shards.filter((shard) => fileSize(join(dir, shard)) === undefined);
  if (missing.length > 0) {
    const tensors = missing.reduce((sum, shard) => sum + (counts.get(shard) ?? 0), 0);
    throw new UserError(
      `${dir}: ${missing.length} of the ${shards.length} files that ${layout.index} names ` +
        `${missing.length === 1 ? 'is' : 'are'} missing: ` +
        `${missing.slice(0, SHOWN).join(', ')}${missing.length > SHOWN ? ', …' : ''} (${tensors} tensors)`,
      DOWNLOAD,
    );
  }
  return shards.map((shard) => {
    const header = layout.read(join(dir, shard));
    for (const { name } of header.entries) {
      const home = index.get(name);
      if (home !== shard && !name.endsWith('rotary_emb.inv_freq')) {
        throw new UserError(
          `${header.file}: holds tensor ${quote(name, 120)}, which ${layout.index} ` +
            `${home === undefined ? 'does not name' : `places in ${home}`}`,
          DOWNLOAD,
        );
      }
    }
    const held = new Set(header.entries.map((entry) => entry.name));
    for (const [name, home] of index) {
      if (home === shard && !held.has(name)) {
        throw new UserError(
          `${header.file}: tensor ${quote(name, 120)}, which ${layout.index} places there, is not in it`,
          DOWNLOAD,
        );
      }
    }
    return header;
  });
}

/** Weight files that the index does not name. They are mentioned when tensors are missing. */
function strayShards(dir: string, { index, suffix }: ShardedLayout, headers: readonly WeightFile[]): string {
  const read = new Set(headers.map((header) => header.file));
  const stray = readdirSync(dir).filter(
    (name) => /^(model|pytorch_model)-/.test(name) && name.endsWith(suffix) && !read.has(join(dir, name)),
  );
  const shown = stray.slice(0, SHOWN).map((name) => quote(name));
  return stray.length === 0
    ? ''
    : `\n  in the folder, but not named by ${index}: ${shown.join(', ')}${stray.length > SHOWN ? ', …' : ''}`;
}

/** How the weights in `dir` are stored; undefined if there are none. */
function layoutIn(dir: string): WeightLayout | ShardedLayout | undefined {
  const exists = (name: string): boolean => fileSize(join(dir, name)) !== undefined;
  return LAYOUTS.find((each) => exists(each.single) || (isSharded(each) && exists(each.index)));
}

/**
 * The first GGUF file of the model at `path`: the path of such a file, or a folder with one model of them and no other
 * weights. Undefined for other folders. Throws UserError for a folder with several.
 */
export function findGgufModel(path: string): string | undefined {
  return isFolder(path) && layoutIn(path) !== undefined ? undefined : findGguf(path);
}

export interface WeightFiles {
  readonly headers: readonly WeightFile[];
  /** What to say of files in the folder that nothing names; a line break first, if there are any. */
  readonly strays: () => string;
  /** True if every file has a part of every matrix, as Meta publishes large models. */
  readonly isInParts: boolean;
}

/**
 * Reads the headers of the weight files in `dir`: safetensors, else those of torch.save. Throws UserError, one line.
 */
export function readWeightFiles(dir: string): WeightFiles {
  const layout = layoutIn(dir);
  if (layout === undefined) throw noWeights(dir);
  if (isSharded(layout) && fileSize(join(dir, layout.single)) === undefined) {
    const headers = readShards(dir, layout);
    return { headers, strays: () => strayShards(dir, layout, headers), isInParts: false };
  }
  const parts = layout.single === FIRST_PART ? countParts(dir) : 1;
  const files = parts > 1 ? Array.from({ length: parts }, (_, part) => partName(part)) : [layout.single];
  return { headers: files.map((name) => layout.read(join(dir, name))), strays: () => '', isInParts: parts > 1 };
}
