/**
 * This program: its version, and the identity of the code that plans and prints. A plan or a kernel that other code
 * made is not this program's. The identity is the digest of the code's own files, so that an edited pass is another
 * program even where no version changed.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

function readVersion(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); folder !== dirname(folder); folder = dirname(folder)) {
    try {
      const json: unknown = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
      if (typeof json === 'object' && json !== null && 'version' in json) return String(json.version);
    } catch {
      // Not here; try the parent folder.
    }
  }
  return 'unknown';
}

export const VERSION = readVersion();

/** What a build writes beside its code, so that a process need not read all of it. */
export const STAMP = 'program.sha256';
const DIGEST = /^[0-9a-f]{64}$/;

/** Rooms whose code neither plans nor prints kernels; data and other people's code. */
const OTHERS = new Set(['bench', 'build', 'dist', 'docs', 'examples', 'node_modules', 'report', 'scripts', 'test']);
const ownPath = fileURLToPath(import.meta.url);
/** Code, templates of kernels in either form, headers of kernels, and the kernel ABI. */
const CODE = ownPath.endsWith('.ts') ? /\.(?:ts|hbs|cuh|h)$/ : /\.(?:js|cjs|hbs|cuh|h)$/;

/** The program's folder: the one that holds a stamp, else the one in which this file is `driver/program`. */
function programFolder(): string {
  for (let folder = dirname(ownPath); folder !== dirname(folder); folder = dirname(folder))
    if (existsSync(join(folder, STAMP))) return folder;
  return dirname(dirname(ownPath));
}

/** SHA-256 of the names and contents of all code below a program's folder, hexadecimal. */
export function hashProgram(folder: string): string {
  const hash = createHash('sha256');
  const rooms = readdirSync(folder, { withFileTypes: true });
  const names = rooms.flatMap((entry): string[] => {
    if (entry.isFile()) return [entry.name];
    if (!entry.isDirectory() || OTHERS.has(entry.name) || entry.name.startsWith('.')) return [];
    return readdirSync(join(folder, entry.name), { recursive: true, encoding: 'utf8' }).map((name) =>
      join(entry.name, name),
    );
  });
  for (const name of names.filter((each) => CODE.test(each)).sort()) {
    const content = readFileSync(join(folder, name));
    hash.update(`${name.split(sep).join('/')}\n${content.length}\n`).update(content);
  }
  return hash.digest('hex');
}

/** The digest that the build wrote; undefined where there is none, or where this code is newer than it. */
function stampOf(folder: string): string | undefined {
  const path = join(folder, STAMP);
  const stamp = statSync(path, { throwIfNoEntry: false });
  if (stamp === undefined || stamp.size > 100 || stamp.mtimeMs < statSync(ownPath).mtimeMs) return undefined;
  const text = readFileSync(path, 'utf8').trim();
  return DIGEST.test(text) ? text : undefined;
}

let code: string | undefined;

/** SHA-256 of this program's code, hexadecimal. */
export function codeId(): string {
  if (code === undefined) {
    const folder = programFolder();
    code = stampOf(folder) ?? hashProgram(folder);
  }
  return code;
}

/**
 * SHA-256, hexadecimal, of this program's code and of what it runs on: other versions of Node round sines, cosines and
 * powers in other ways, which plans hold.
 */
export function programId(): string {
  const { v8 = '', node = '' } = process.versions;
  return createHash('sha256')
    .update(JSON.stringify([codeId(), node, v8, process.arch]))
    .digest('hex');
}
