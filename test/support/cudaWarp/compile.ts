/** Compiles generated CUDA as C++ over fibres (warp.h): the header once in a run, each text once in a test file. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import koffi from 'koffi';
import type { LibraryHandle } from 'koffi';
import { runFolder } from '../runFolder.js';

const WARP = fileURLToPath(new URL('warp.h', import.meta.url));
const FLAGS = [
  '-std=c++17',
  '-O1',
  '-fPIC',
  '-ffp-contract=off',
  '-fno-strict-aliasing',
  '-march=native',
  '-fno-stack-protector',
  '-Wall',
  '-Wno-unknown-pragmas',
  '-Wno-unused-function',
  '-Wno-maybe-uninitialized',
];
const compile = (args: readonly string[]): void => {
  execFileSync('c++', [...FLAGS, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
};

/**
 * warp.h with its precompiled form beside it: otherwise half of the compile time of a kernel would go into that header.
 */
function precompiledHeader(): string {
  const header = join(runFolder(), 'warp.h');
  const precompiled = `${header}.gch`;
  if (existsSync(precompiled)) return header;
  const folder = temporaryFolder();
  copyFileSync(WARP, join(folder, 'warp.h'));
  // -w: the header declares two functions that the following text defines.
  compile(['-w', '-x', 'c++-header', '-o', join(folder, 'warp.h.gch'), join(folder, 'warp.h')]);
  renameSync(join(folder, 'warp.h'), header);
  renameSync(join(folder, 'warp.h.gch'), precompiled);
  rmSync(folder, { recursive: true });
  return header;
}

function temporaryFolder(): string {
  mkdirSync(runFolder(), { recursive: true });
  return mkdtempSync(join(runFolder(), 'warp-'));
}

const libraries = new Map<string, LibraryHandle>();

/** Compiles `text`, which follows warp.h, to a shared library in `folder`. Throws where it does not compile. */
export function compileOverFibres(text: string, folder: string): string {
  const [source, object] = [join(folder, 'kernels.cc'), join(folder, 'kernels.so')];
  writeFileSync(source, text);
  compile(['-Winvalid-pch', '-include', precompiledHeader(), '-shared', '-o', object, source]);
  return object;
}

/** Loads `text`, which follows warp.h, as a shared library. Throws where it does not compile. */
export function loadOverFibres(text: string): LibraryHandle {
  const known = libraries.get(text);
  if (known !== undefined) return known;
  const folder = temporaryFolder();
  const library = koffi.load(compileOverFibres(text, folder));
  rmSync(folder, { recursive: true });
  libraries.set(text, library);
  return library;
}
