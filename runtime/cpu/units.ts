/** Compiles the units of a library, in parallel, or finds their objects in the cache. */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isHeaderName, unitDigest } from '../../ir/unit.js';
import type { Settings } from '../../settings.js';
import { codeOf } from '../../system/process.js';
import { compileError, runProcess, type SourceText } from '../compilers.js';
import { isTrusted, markUsed, trustedFolder } from '../kernelCache.js';
import type { SystemCompiler } from './systemCompiler.js';

export async function writeSynced(path: string, data: string | Uint8Array): Promise<void> {
  const file = await open(path, 'w');
  try {
    await file.writeFile(data);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** The common parts of one compilation of several units. */
export interface UnitBuild {
  readonly compiler: SystemCompiler;
  /** Of every unit, besides those that concern messages. */
  readonly flags: readonly string[];
  /** Everything besides the text that an object depends on. */
  readonly identity: Readonly<Record<string, unknown>>;
  readonly objects: ObjectCache;
  readonly signal: AbortSignal | undefined;
  /** Nobody waits for it. */
  readonly isBackground: boolean;
  readonly onUnit: ((unit: SourceText) => void) | undefined;
}

const objectOf = ({ name }: SourceText): string => `${name}.o`;
const keyOf = ({ text, headers = [] }: SourceText, { identity }: UnitBuild): string =>
  createHash('sha256')
    .update(JSON.stringify({ ...identity, unit: unitDigest(text, headers) }))
    .digest('hex');

/** Writes the headers of units, each once. Throws for a name outside the folder, or of two texts. */
async function writeHeaders(sources: readonly SourceText[], folder: string): Promise<void> {
  const texts = new Map<string, string>();
  for (const { name, text } of sources.flatMap(({ headers = [] }) => headers)) {
    if (!isHeaderName(name) || (texts.get(name) ?? text) !== text)
      throw new Error(`Bad or repeated header name ${JSON.stringify(name)}.`);
    texts.set(name, text);
  }
  for (const name of new Set([...texts.keys()].map((each) => dirname(each))))
    await mkdir(join(folder, name), { recursive: true, mode: 0o700 });
  await allOf([...texts].map(([name, text]) => writeSynced(join(folder, name), text)));
}

/** Writes a unit to the folder, and its object where that is in the cache. */
async function isCompiled(source: SourceText, folder: string, build: UnitBuild): Promise<boolean> {
  await writeSynced(join(folder, source.name), source.text);
  return build.objects.copyTo(keyOf(source, build), join(folder, objectOf(source)));
}

/** Compiles one unit to `{name}.o`. */
async function compileUnit(source: SourceText, folder: string, build: UnitBuild): Promise<void> {
  const { compiler, flags, objects, signal, isBackground } = build;
  const object = objectOf(source);
  const shown = ['-pipe', '-fno-diagnostics-show-caret', '-fdiagnostics-color=never'];
  const argv = [...flags, ...shown, '-I.', '-c', source.name, '-o', object];
  const result = await runProcess(compiler.path, argv, folder, signal, isBackground);
  signal?.throwIfAborted();
  if (result.status !== 0) throw compileError(compiler.path, source, result.stderr);
  await objects.keep(keyOf(source, build), join(folder, object));
}

/** All results, once all have ended: none may still write to a folder that is removed when one throws. */
async function allOf<T>(jobs: readonly Promise<T>[]): Promise<readonly T[]> {
  const ended = await Promise.allSettled(jobs);
  return ended.map((each) => {
    if (each.status === 'rejected') throw each.reason;
    return each.value;
  });
}

/** Compiles units in parallel, or finds them in the cache. Returns the names of their objects in the folder. */
export async function compileUnits(
  sources: readonly SourceText[],
  folder: string,
  build: UnitBuild,
): Promise<readonly string[]> {
  await writeHeaders(sources, folder);
  const found = await allOf(sources.map((source) => isCompiled(source, folder, build)));
  await allOf(
    sources.map(async (source, i) => {
      if (!found[i]!) await compileUnit(source, folder, build);
      build.onUnit?.(source);
    }),
  );
  return sources.map(objectOf);
}

// Compiled translation units on disk, one file each, shared between processes: a library that has a unit of another
// one only links it. A file is the digest of the object code and then the code; it appears whole by rename.

const DIGEST_BYTES = 32;
const digestOf = (data: Uint8Array): Buffer => createHash('sha256').update(data).digest();

export class ObjectCache {
  private readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Throws UserError if others could put code there. */
  static async open(settings: Pick<Settings, 'cacheDir'>): Promise<ObjectCache> {
    return new ObjectCache(await trustedFolder(settings, 'objects'));
  }

  private pathOf(key: string): string {
    if (!/^[0-9a-f]{64}$/.test(key)) throw new Error(`${JSON.stringify(key)} is no cache key.`);
    return join(this.folder, `${key}.two`);
  }

  /** Copies the object of a key to `path`. False where there is none, or it is damaged. */
  async copyTo(key: string, path: string): Promise<boolean> {
    let data: Buffer;
    try {
      if (!(await isTrusted(this.pathOf(key)))) return false;
      data = await readFile(this.pathOf(key));
    } catch (error) {
      if (['ENOENT', 'ENOTDIR', 'EISDIR'].includes(codeOf(error))) return false;
      throw error;
    }
    const code = data.subarray(DIGEST_BYTES);
    if (!digestOf(code).equals(data.subarray(0, DIGEST_BYTES))) return false;
    await writeFile(path, code);
    await markUsed(this.pathOf(key));
    return true;
  }

  /** Keeps the object at `path` under a key. */
  async keep(key: string, path: string): Promise<void> {
    const code = await readFile(path);
    const temporary = join(this.folder, `.tmp-${randomUUID()}`);
    try {
      const file = await open(temporary, 'wx', 0o600);
      try {
        await file.writeFile(Buffer.concat([digestOf(code), code]));
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(temporary, this.pathOf(key));
      await markUsed(this.pathOf(key));
    } finally {
      await rm(temporary, { force: true });
    }
  }
}
