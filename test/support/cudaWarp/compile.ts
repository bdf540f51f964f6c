/** Compiles generated CUDA as C++ over fibres (warp.h): the header once in a run, each text once in a test file. */
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';
import type { LibraryHandle } from 'koffi';
import { runFolder } from '../runFolder.js';

const koffi = loadKoffi();

const inThisFolder = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
/** Headers of kernels: those of lib/ that are instructions are replaced by what they do. */
const INCLUDES = ['-I', inThisFolder('.'), '-I', fileURLToPath(new URL('../../../codegen/cuda', import.meta.url))];
const FLAGS = [
  ...INCLUDES,
  '-std=c++20',
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
const compile = (args: readonly string[], stderr: 'inherit' | 'ignore' = 'inherit'): void => {
  execFileSync('c++', [...FLAGS, ...args], { stdio: ['ignore', 'pipe', stderr] });
};

/** Flags that a header is compiled with by itself, behind warp.h. */
export const fibreFlags = (): readonly string[] => [...FLAGS, '-include', inThisFolder('warp.h'), '-w'];

/** How kernels are compiled: which flags, and what they are linked with. */
interface Mode {
  readonly name: string;
  readonly flags: readonly string[];
  readonly objects: () => readonly string[];
}
const PLAIN: Mode = { name: 'plain', flags: [], objects: () => [] };
/** The compiler tells races.cc every access of a kernel's text; calls of memcpy stay calls, which it does not tell. */
const WATCHED: Mode = {
  name: 'watched',
  // Static memory of a template would else be that of the first library which has it.
  flags: ['-DTW_RACES', '-fsanitize=thread', '-fno-builtin-memcpy', '-fno-gnu-unique', '-g1', '-Wno-tsan'],
  objects: () => [racesObject(), `-Wl,-T,${inThisFolder('statics.ld')}`],
};
let mode = PLAIN;

/** Makes `file` in the folder of this run unless another test file has: `make` writes it to a path of its own. */
function once(file: string, make: (path: string, folder: string) => void): string {
  if (existsSync(file)) return file;
  const folder = temporaryFolder();
  const path = join(folder, basename(file));
  make(path, folder);
  mkdirSync(dirname(file), { recursive: true });
  renameSync(path, file);
  rmSync(folder, { recursive: true });
  return file;
}

const racesObject = (): string =>
  once(join(runFolder(), 'races.o'), (path) => {
    compile(['-O2', '-c', '-o', path, inThisFolder('races.cc')]);
  });

/**
 * warp.h with its precompiled form beside it: otherwise half of the compile time of a kernel would go into that header.
 */
function precompiledHeader({ name, flags }: Mode): string {
  const folder = join(runFolder(), name);
  const header = join(folder, 'warp.h');
  for (const file of ['races.h', 'warp.h'])
    once(join(folder, file), (path) => {
      copyFileSync(inThisFolder(file), path);
    });
  once(`${header}.gch`, (path) => {
    // -w: the header declares two functions that the following text defines.
    compile([...flags, '-w', '-x', 'c++-header', '-o', path, header]);
  });
  return header;
}

function temporaryFolder(): string {
  mkdirSync(runFolder(), { recursive: true });
  return mkdtempSync(join(runFolder(), 'warp-'));
}

const libraries = new Map<string, LibraryHandle>();

/** Compiles `text`, which follows warp.h, to a shared library in `folder`. Throws where it does not compile. */
export function compileOverFibres(text: string, folder: string): string {
  const [source, unit, object] = [join(folder, 'kernels.cc'), join(folder, 'kernels.o'), join(folder, 'kernels.so')];
  writeFileSync(source, text);
  compile([...mode.flags, '-Winvalid-pch', '-include', precompiledHeader(mode), '-c', '-o', unit, source]);
  compile(['-shared', '-Wl,--no-undefined', '-o', object, unit, ...mode.objects()]);
  return object;
}

/** Loads `text`, which follows warp.h, as a shared library. Throws where it does not compile. */
export function loadOverFibres(text: string): LibraryHandle {
  const key = `${mode.name}\n${text}`;
  const known = libraries.get(key);
  if (known !== undefined) return known;
  const folder = temporaryFolder();
  const object = compileOverFibres(text, folder);
  const library = koffi.load(object);
  // A report of races quotes the source.
  if (mode === WATCHED) watched.push({ object, report: library.func('const char *tw_race_report()') as () => string });
  else rmSync(folder, { recursive: true });
  libraries.set(key, library);
  return library;
}

const watched: { readonly object: string; readonly report: () => string }[] = [];

/** Why this machine's compiler cannot tell accesses, if it cannot. */
export function cannotWatch(): string | undefined {
  const folder = temporaryFolder();
  const source = join(folder, 'empty.cc');
  writeFileSync(source, 'int tw_x; int tw_f() { return tw_x; }\n');
  try {
    compile([...WATCHED.flags, '-c', '-o', join(folder, 'empty.o'), source], 'ignore');
    return undefined;
  } catch {
    return 'c++ does not compile with -fsanitize=thread';
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** From now on, kernels that this test file compiles tell races in shared memory. */
export function watchRaces(): void {
  mode = WATCHED;
}

/** Races found since the last call, each with the source of both accesses. */
export function takeRaces(): readonly string[] {
  return watched.flatMap(({ object, report }) =>
    report()
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => line.replaceAll(/\+([0-9a-f]+)/g, (_, at: string) => sourceOf(object, at))),
  );
}

/** The kernel's line at `offset` of a library: the place of a call, and what the return address follows. */
function sourceOf(object: string, offset: string): string {
  const before = (parseInt(offset, 16) - 1).toString(16);
  const lines = execFileSync('addr2line', ['-i', '-e', object, `0x${before}`], { encoding: 'utf8' }).split('\n');
  const at = lines.find((line) => line.includes('kernels.cc:')) ?? lines[0]!;
  const [, file, line] = /^(.*):(\d+)/.exec(at) ?? [];
  if (file === undefined || !existsSync(file)) return at;
  const text = readFileSync(file, 'utf8').split('\n')[Number(line) - 1] ?? '';
  return `\`${text.trim()}\` (${basename(file)}:${line})`;
}
