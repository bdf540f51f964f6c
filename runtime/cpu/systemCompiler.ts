/** Finds the system's C compiler and checks that it works. */
import { constants } from 'node:fs';
import { access, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';
import { MissingCompiler } from '../../errors.js';
import { readSettings, type Settings } from '../../settings.js';
import { runProcess } from './processes.js';

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

/**
 * The compiler to use: TILEWRIGHT_CC where set, otherwise the first of cc, gcc and clang on PATH that compiles.
 * Remembered for the process. Throws UserError naming what to install.
 */
export function findCompiler(settings: Settings = readSettings()): Promise<SystemCompiler> {
  const key = JSON.stringify([settings.cc, settings.path]);
  let found = known.get(key);
  if (found === undefined) {
    found = find(settings);
    known.set(key, found);
    // A failure is not remembered: the user may install a compiler meanwhile.
    found.catch(() => known.delete(key));
  }
  return found;
}
