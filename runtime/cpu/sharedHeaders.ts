/**
 * The headers that all units of a build include, compiled once for that build. `immintrin.h` alone takes a third of the
 * time of a usual unit. Nothing is kept between builds, so that no header can be out of date. Object code is the same.
 */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SourceText } from './compileError.js';
import { runProcess } from './processes.js';
import type { SystemCompiler } from './systemCompiler.js';

/** Fewer units are compiled in the time that their headers take. */
export const LEAST_UNITS = 24;

const HEADER = 'headers.h';
const PRECOMPILED = `${HEADER}.gch`;

/** Other compilers take the flags of GCC, and are not known to fall back on the text. */
const ONLY_GCC = '#if defined(__clang__) || !defined(__GNUC__)\n#error only GCC\n#endif\n';

const headersIn = ({ text }: SourceText): readonly string[] =>
  [...text.matchAll(/^#include <([\w./]+)>$/gm)].map(([, name = '']) => name);

/** The system's headers that every unit includes, in the order of the first unit. */
export function commonHeaders([first, ...others]: readonly SourceText[]): readonly string[] {
  if (first === undefined) return [];
  const sets = others.map((each) => new Set(headersIn(each)));
  return [...new Set(headersIn(first))].filter((name) => sets.every((set) => set.has(name)));
}

export interface HeaderBuild {
  readonly compiler: SystemCompiler;
  /** All flags that decide what a header means. */
  readonly flags: readonly string[];
  /** Folder in which the units are compiled. */
  readonly folder: string;
  readonly signal?: AbortSignal | undefined;
}

/** Flags with which a unit takes the headers; none where each unit reads them as text. */
export type HeaderFlags = readonly string[];

/** Headers for `sources`. A compiler that refuses is not asked why: units then read the text. */
export async function precompileHeaders(
  sources: readonly SourceText[],
  { compiler, flags, folder, signal }: HeaderBuild,
): Promise<HeaderFlags> {
  if (sources.length < LEAST_UNITS) return [];
  const lines = commonHeaders(sources).map((name) => `#include <${name}>\n`);
  await writeFile(join(folder, HEADER), ONLY_GCC + lines.join(''));
  const asked = ['-include', HEADER];
  // GCC reads the text in silence if it cannot use what it has compiled, unless it is told to mind.
  const steps = [
    ['-x', 'c-header', HEADER, '-o', PRECOMPILED],
    [...asked, '-Winvalid-pch', '-Werror', '-fsyntax-only', '-x', 'c', '/dev/null'],
  ];
  for (const step of steps) {
    const { status } = await runProcess(compiler.path, [...flags, ...step], folder, signal);
    signal?.throwIfAborted();
    if (status === 0) continue;
    await removeHeaders(folder);
    return [];
  }
  return asked;
}

export async function removeHeaders(folder: string): Promise<void> {
  for (const name of [HEADER, PRECOMPILED]) await rm(join(folder, name), { force: true });
}
