/** Finds the system's C compiler and checks that it works, or remembers that it did. */
import { createHash, randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdtemp, open, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, delimiter, isAbsolute, join } from 'node:path';
import { MissingCompiler } from '../../errors.js';
import { readSettings, type Settings } from '../../settings.js';
import { runProcess } from '../compilers.js';
import { isTrusted, markUsed, trustedFolder } from '../kernelCache.js';

export interface SystemCompiler {
  readonly path: string;
  /** First line of `--version`; part of every cache key. */
  readonly version: string;
}

const NAMES = ['cc', 'gcc', 'clang'] as const;
const INSTALL =
  'Install one: apt install gcc libc6-dev (Debian, Ubuntu), dnf install gcc (Fedora), apk add gcc musl-dev (Alpine). ' +
  'Or name one: TILEWRIGHT_CC=/path/to/cc';

/**
 * Uses the headers that generated kernels use, because a compiler without its C library is a common incomplete
 * installation.
 */
const TRIAL =
  '#include <stdint.h>\n#include <math.h>\n' +
  'float tw_trial(const float *x, int64_t n) { return n > 0 ? sqrtf(x[0]) : 0; }\n';

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function locate(name: string, searchPath: string): Promise<string | undefined> {
  if (name.includes('/')) return (await isExecutable(name)) ? name : undefined;
  for (const folder of searchPath.split(delimiter)) {
    if (!isAbsolute(folder)) continue;
    const path = join(folder, name);
    if (await isExecutable(path)) return path;
  }
  return undefined;
}

/** The compiler at `path`, or the reason why it cannot be used. */
async function probe(path: string): Promise<SystemCompiler | string> {
  const version = await runProcess(path, ['--version']);
  if (version.status !== 0) return `--version fails: ${firstLine(version.stderr)}`;
  const folder = await mkdtemp(join(tmpdir(), 'tilewright-cc-'));
  try {
    await writeFile(join(folder, 'trial.c'), TRIAL);
    const trial = await runProcess(path, ['-O1', '-shared', '-fPIC', '-o', 'trial.so', 'trial.c', '-lm'], folder);
    if (trial.status !== 0) return `it cannot compile three lines of C: ${firstLine(trial.stderr)}`;
    return { path, version: firstLine(version.stdout) };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const firstLine = (text: string): string => text.trim().split('\n')[0] ?? '';

/** The first compiler that is there, before the question whether it works. */
async function firstOf(settings: Settings): Promise<string | undefined> {
  for (const name of settings.cc === undefined ? NAMES : [settings.cc]) {
    const path = await locate(name, settings.path);
    if (path !== undefined) return path;
  }
  return undefined;
}

/** Names of programs that are compilers themselves. Scripts and caches start others, which change behind them. */
const COMPILER = /^(?:[A-Za-z0-9_.]+-)*(?:gcc|clang|cc)(?:-[0-9.]+)?$/;
const ELF = Buffer.from('\x7fELF', 'latin1');

async function isProgram(path: string): Promise<boolean> {
  const file = await open(path, 'r');
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(ELF.length), 0, ELF.length, 0);
    return bytesRead === ELF.length && buffer.equals(ELF);
  } finally {
    await file.close();
  }
}

/** Where it is remembered that the compiler at `path` works; undefined for one of which too little is known. */
async function memoryOf(path: string, settings: Settings): Promise<string | undefined> {
  const real = await realpath(path);
  if (!COMPILER.test(basename(real)) || !(await isProgram(real))) return undefined;
  const { dev, ino, size, mtimeNs, ctimeNs } = await stat(real, { bigint: true });
  const identity = [path, real, dev, ino, size, mtimeNs, ctimeNs].map(String);
  const key = createHash('sha256').update(JSON.stringify(identity)).digest('hex');
  return join(await trustedFolder(settings, 'compilers'), `${key}.txt`);
}

const MAX_VERSION_BYTES = 1000;

async function remembered(path: string, settings: Settings): Promise<SystemCompiler | undefined> {
  try {
    const memory = await memoryOf(path, settings);
    if (memory === undefined || !(await isTrusted(memory))) return undefined;
    if ((await stat(memory)).size > MAX_VERSION_BYTES) return undefined;
    const version = await readFile(memory, 'utf8');
    if (version === '' || version !== firstLine(version)) return undefined;
    await markUsed(memory);
    return { path, version };
  } catch {
    // The caller that needs the compiler or the cache gets the error.
    return undefined;
  }
}

async function remember({ path, version }: SystemCompiler, settings: Settings): Promise<void> {
  try {
    const memory = await memoryOf(path, settings);
    if (memory === undefined) return;
    const temporary = join(memory, '..', `.tmp-${randomUUID()}`);
    try {
      await writeFile(temporary, version, { mode: 0o600, flag: 'wx' });
      await rename(temporary, memory);
      await markUsed(memory);
    } finally {
      await rm(temporary, { force: true });
    }
  } catch {
    // It is only slower next time.
  }
}

async function find(settings: Settings): Promise<SystemCompiler> {
  const problems: string[] = [];
  for (const name of settings.cc === undefined ? NAMES : [settings.cc]) {
    const path = await locate(name, settings.path);
    const found = path === undefined ? 'not found' : await probe(path);
    if (typeof found !== 'string') return found;
    problems.push(`${path ?? name}: ${found}`);
  }
  throw new MissingCompiler(
    `No working C compiler for the kernels of the CPU target (${problems.join('; ')}).`,
    INSTALL,
  );
}

const known = new Map<string, Promise<SystemCompiler>>();
/** Compilers that this process has remembered in caches. */
const kept = new Set<string>();
const keyOf = ({ cc, path }: Settings): string => JSON.stringify([cc, path]);

/**
 * The compiler to use: TILEWRIGHT_CC where set, otherwise the first of cc, gcc and clang on PATH that compiles.
 * Remembered for the process, and in the cache for expectedCompiler. Throws UserError naming what to install.
 */
export async function findCompiler(settings: Settings = readSettings()): Promise<SystemCompiler> {
  const key = keyOf(settings);
  let found = known.get(key);
  if (found === undefined) {
    found = find(settings);
    known.set(key, found);
    // A failure is not remembered: the user may install a compiler meanwhile.
    found.catch(() => known.delete(key));
  }
  const compiler = await found;
  const place = JSON.stringify([key, settings.cacheDir]);
  if (settings.cacheDir !== undefined && !kept.has(place)) {
    kept.add(place);
    await remember(compiler, settings);
  }
  return compiler;
}

/**
 * The compiler that findCompiler would find, without starting it where it worked before and has not changed since: its
 * file is the same. That its headers are still there is not known. Throws as findCompiler.
 */
export async function expectedCompiler(settings: Settings = readSettings()): Promise<SystemCompiler> {
  if (known.has(keyOf(settings)) || settings.cacheDir === undefined) return findCompiler(settings);
  const path = await firstOf(settings);
  return (path === undefined ? undefined : await remembered(path, settings)) ?? findCompiler(settings);
}
