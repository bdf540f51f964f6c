/** Compiles the units of a library, in parallel, or finds their objects in the cache. */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { compileError, type SourceText } from './compileError.js';
import type { ObjectCache } from './objectCache.js';
import { runProcess } from './processes.js';
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
const keyOf = ({ text }: SourceText, { identity }: UnitBuild): string =>
  createHash('sha256')
    .update(JSON.stringify({ ...identity, text }))
    .digest('hex');

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
  const argv = [...flags, ...shown, '-c', source.name, '-o', object];
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
  const found = await allOf(sources.map((source) => isCompiled(source, folder, build)));
  await allOf(
    sources.map(async (source, i) => {
      if (!found[i]!) await compileUnit(source, folder, build);
      build.onUnit?.(source);
    }),
  );
  return sources.map(objectOf);
}
