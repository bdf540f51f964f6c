/**
 * Starts a program of the bundle that the build makes (scripts/buildDist.mjs): CommonJS chunks in one folder, of
 * which V8 need not compile what an earlier run has kept (codeArchive.ts). The build bundles this file by itself, and
 * the files that processes and threads are started by call it.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Script } from 'node:vm';
import { defined } from './defined.js';
import { readSettings } from '../settings.js';
import { archivePath, CodeArchive, markArchive } from './codeArchive.js';
import type { keepCode } from './keepCode.js';

type Chunk = { exports: unknown };
/** What a chunk, or a module of Node, exports. */
type Require = (id: string) => unknown;
/** Modules that are named by an expression are imported by this file: V8 does not allow it where code was kept. */
type ChunkRequire = Require & { import(name: string): Promise<unknown> };
type ModuleBody = (exports: unknown, require: ChunkRequire, module: Chunk, file: string, folder: string) => void;

/** Behind these the chunk stands on its first line, so that lines of a stack are those of the file. */
const [BEFORE, BEHIND] = ['(function (exports, require, module, __filename, __dirname) { ', '\n})'];

/** A program's chunks in `folder`; those that its archive knows are not compiled. */
class Loader {
  readonly #folder: string;
  readonly #require: Require;
  readonly #archive: CodeArchive | undefined;
  readonly #loaded = new Map<string, Chunk>();
  readonly #scripts = new Map<string, Script>();
  #isComplete: boolean;

  constructor(folder: string, archive: CodeArchive | undefined) {
    this.#folder = folder;
    this.#require = createRequire(join(folder, 'start.cjs'));
    this.#archive = archive;
    this.#isComplete = archive !== undefined;
  }

  /** What a chunk exports. Chunks name each other as `./name.cjs`; all else is Node's to find. */
  readonly require: ChunkRequire = Object.assign(
    (id: string): unknown => {
      const isOurs = id.startsWith('./') || (id.startsWith('/') && id.endsWith('.cjs'));
      return isOurs ? this.#load(id.startsWith('/') ? id : id.slice(2)) : this.#require(id);
    },
    { import: (name: string): Promise<unknown> => import(name) },
  );

  #load(name: string): unknown {
    const known = this.#loaded.get(name);
    if (known !== undefined) return known.exports;
    const chunk: Chunk = { exports: {} };
    this.#loaded.set(name, chunk);
    const file = name.startsWith('/') ? name : join(this.#folder, name);
    const body = this.#compile(name, file).runInThisContext() as ModuleBody;
    body(chunk.exports, this.require, chunk, file, this.#folder);
    return chunk.exports;
  }

  #compile(name: string, file: string): Script {
    const cachedData = this.#archive?.codeOf(name);
    const script = new Script(BEFORE + readFileSync(file, 'utf8') + BEHIND, {
      filename: file,
      ...defined({ cachedData }),
    });
    if (cachedData === undefined || script.cachedDataRejected === true) this.#isComplete = false;
    this.#scripts.set(name, script);
    return script;
  }

  /** Whether the archive has all that this use of the program loaded. */
  knows(use: string): boolean {
    return this.#isComplete && this.#archive?.uses.has(use) === true;
  }

  /** What V8 has compiled up to now. */
  compiled(): ReadonlyMap<string, Uint8Array> {
    return new Map(Array.from(this.#scripts, ([name, script]) => [name, script.createCachedData()]));
  }
}

const COMMAND_LINE = 'cli/main';
/** Programs that end in an orderly way. Threads and compilers are ended; what they load, these mostly load as well. */
const KEEPING: ReadonlySet<string> = new Set([COMMAND_LINE, 'driver/devices/child']);

/** The command of a command line, which decides what of a program is used; empty where only help is asked for. */
function commandOf([, , first = '', ...rest]: readonly string[]): string {
  return /^[a-z]{1,16}$/.test(first) && first !== 'help' && !rest.some((word) => /^(-h|--help)$/.test(word))
    ? first
    : '';
}

function open(folder: string, build: string, entry: string): Require {
  const { cacheDir, isDebug, nodeOptions } = readSettings();
  if (isDebug || process.execArgv.includes('--enable-source-maps')) {
    // Node's own loader reads source maps: stacks name the files and lines of the source.
    process.setSourceMapsEnabled(true);
    return createRequire(join(folder, 'start.cjs'));
  }
  if (cacheDir === undefined) return new Loader(folder, undefined).require;
  const path = archivePath(cacheDir, build, nodeOptions);
  const archive = CodeArchive.open(path);
  if (archive !== undefined) markArchive(path);
  const loader = new Loader(folder, archive);
  if (KEEPING.has(entry))
    process.on('exit', (status) => {
      const command = entry === COMMAND_LINE ? commandOf(process.argv) : entry;
      // Where a command line asks for nothing but help, nothing is written.
      if (status !== 0 || command === '' || loader.knows(command)) return;
      const keeper = loader.require('./system-keepCode.cjs') as { readonly keepCode: typeof keepCode };
      keeper.keepCode(path, { use: command, chunks: loader.compiled() });
    });
  return loader.require;
}

let require: Require | undefined;

/**
 * Runs the entry `a/b` of the bundle in `folder`, whose chunks are those of `build` (hexadecimal), and returns what it
 * exports. A thread that starts several gets them from one bundle.
 */
export function startProgram(folder: string, build: string, entry: string): unknown {
  require ??= open(folder, build, entry);
  return require(`./${entry.replaceAll('/', '-')}.cjs`);
}
