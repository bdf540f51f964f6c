/** The files of a GGUF model: one, or several that are called NAME-00001-of-0000N.gguf. */
import { readdirSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { fileSize, isFolder } from '../../system/read.js';
import { readGgufHeader, type GgufHeader } from './header.js';

const SUFFIX = '.gguf';
const PART = /^(.+)-(\d{5})-of-(\d{5})\.gguf$/;
/** Files of a model's encoder of pictures, by the name that converters give them. */
const BESIDE = /^mmproj/i;
const MAX_PARTS = 4096;
const AGAIN = 'download all files of the model again from one revision';

/** Names of the models among files of a folder: of one in several files, its first. */
const modelsAmong = (names: readonly string[]): readonly string[] =>
  names.filter((name) => !BESIDE.test(name) && (PART.exec(name)?.[2] ?? '00001') === '00001');

/**
 * The first file of the GGUF model at `path`, a file or a folder with exactly one model; undefined if it is neither.
 * Throws UserError for a folder with several.
 */
export function findGguf(path: string): string | undefined {
  const full = resolve(path);
  if (!isFolder(full)) return full.endsWith(SUFFIX) ? firstFile(full) : undefined;
  const names = readdirSync(full).filter((name) => name.endsWith(SUFFIX) && !isFolder(join(full, name)));
  const models = modelsAmong(names.sort());
  if (models.length > 1)
    throw new UserError(
      `${path}: has ${models.length} GGUF models: ${models.slice(0, 4).join(', ')}${models.length > 4 ? ', …' : ''}`,
      'give the path of one of these files',
    );
  return models[0] === undefined ? undefined : join(full, models[0]);
}

function firstFile(path: string): string {
  const part = PART.exec(basename(path));
  return part === null ? path : join(dirname(path), `${part[1]}-00001-of-${part[3]}.gguf`);
}

/** The paths of all files of the model whose first one is `first`. Throws UserError where one is missing. */
function ggufFiles(first: string): readonly string[] {
  const part = PART.exec(basename(first));
  if (part === null) return [first];
  const [, name, , count] = part;
  if (Number(count) < 1 || Number(count) > MAX_PARTS)
    throw new UserError(`${first}: ${Number(count)} files; expected 1 to ${MAX_PARTS}`, AGAIN);
  return Array.from({ length: Number(count) }, (_, i) => {
    const path = join(dirname(first), `${name}-${String(i + 1).padStart(5, '0')}-of-${count}.gguf`);
    if (fileSize(path) === undefined)
      throw new UserError(`${first}: the model is in ${Number(count)} files, and ${basename(path)} is missing`, AGAIN);
    return path;
  });
}

/** Headers of all files. Each says which one it is, and how many there are. Throws UserError. */
export function readGgufFiles(first: string): readonly [GgufHeader, ...GgufHeader[]] {
  const headers = ggufFiles(first).map(readGgufHeader);
  const names = new Map<string, string>();
  headers.forEach(({ file, metadata, entries }, i) => {
    const number = metadata.whole('split.no', 0, MAX_PARTS) ?? 0;
    const count = metadata.whole('split.count', 0, MAX_PARTS) ?? 0;
    // A model in one file says nothing, 0 or 1.
    if (number !== i || Math.max(1, count) !== headers.length)
      throw new UserError(
        `${file}: says that it is file ${number + 1} of ${Math.max(1, count)}, ` +
          `and is file ${i + 1} of ${headers.length}`,
        'give files of a model in several their names back: NAME-00001-of-0000N.gguf',
      );
    for (const { name } of entries) {
      const other = names.get(name);
      if (other !== undefined)
        throw new UserError(`${file}: has tensor ${quote(name, 80)}, which ${other} has too`, AGAIN);
      names.set(name, file);
    }
  });
  const [head, ...others] = headers;
  const stated = head!.metadata.whole('split.tensors.count', 0, 2 ** 31);
  if (stated !== undefined && stated !== names.size)
    throw new UserError(`${first}: says that the model has ${stated} tensors, and its files have ${names.size}`, AGAIN);
  return [head!, ...others];
}
