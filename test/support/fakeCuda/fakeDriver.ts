/** Builds the fake CUDA driver and controls it: what to fail, what was called, what is still held. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';
import { afterAll, describe, it } from 'vitest';
import { loadCudaAddon, type CudaAddon } from '../../../runtime/cuda/addon.js';
import { copyOfMade } from '../runFolder.js';

const koffi = loadKoffi();

const SOURCE = fileURLToPath(new URL('fakeCuda.c', import.meta.url));
const COMPILER = ['cc', 'gcc', 'clang'].find(
  (name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0,
);

export const hasCompiler = COMPILER !== undefined;

/** Results of the driver API. */
export const CODES = { outOfMemory: 2, invalidValue: 1, illegalAddress: 700 } as const;

/** Compiles C text or a file into a shared library of the folder. */
export function compileLibrary(
  folder: string,
  name: string,
  source: { readonly file: string } | { readonly text: string },
): string {
  const path = join(folder, `${name}.so`);
  const input = 'file' in source ? [source.file] : ['-x', 'c', '-'];
  copyOfMade(JSON.stringify(source), path, (to) => {
    const { status, stderr } = spawnSync(
      COMPILER ?? 'cc',
      ['-std=gnu11', '-Wall', '-Wextra', '-Werror', '-O1', '-shared', '-fPIC', ...input, '-o', to, '-pthread'],
      {
        encoding: 'utf8',
        ...('text' in source ? { input: source.text } : {}),
      },
    );
    if (status !== 0) throw new Error(`The fake driver does not compile:\n${stderr}`);
  });
  return path;
}

export class FakeDriver {
  readonly path: string;
  readonly addon: CudaAddon;
  private readonly failCall: (call: string, result: number, after: number) => void;
  private readonly setValue: (what: string, value: number) => void;
  private readonly resetAll: () => void;
  private readonly logText: () => string;
  private readonly liveCount: () => number;
  private readonly addHost: (path: string) => boolean;

  private constructor(path: string, addon: CudaAddon) {
    this.path = path;
    this.addon = addon;
    const library = koffi.load(path);
    const failCall = library.func('void fakeCudaFail(const char *, int, int)');
    const setValue = library.func('void fakeCudaSet(const char *, long)');
    const resetAll = library.func('void fakeCudaReset(void)');
    const logText = library.func('const char *fakeCudaLog(void)');
    const liveCount = library.func('int fakeCudaLive(void)');
    const addHost = library.func('int fakeCudaHost(const char *)');
    this.failCall = (call, result, after) => void failCall(call, result, after);
    this.setValue = (what, value) => void setValue(what, value);
    this.resetAll = () => void resetAll();
    this.logText = () => String(logText());
    this.liveCount = () => Number(liveCount());
    this.addHost = (path) => Number(addHost(path)) === 1;
  }

  /** Builds the driver in a folder of its own, removed after the tests of the file, and loads it into the addon. */
  static load(): FakeDriver {
    const folder = mkdtempSync(join(tmpdir(), 'tilewright-fake-cuda-'));
    afterAll(() => rmSync(folder, { recursive: true, force: true }));
    const path = compileLibrary(folder, 'libcuda', { file: SOURCE });
    const addon = loadCudaAddon();
    const available = addon.load(path);
    if (!available.ok) throw new Error(available.reason);
    return new FakeDriver(path, addon);
  }

  /** Makes the `after`-th call of an entry point from now, and later ones, return this result. */
  fail(call: string, result: number, after = 1): void {
    this.failCall(call, result, after);
  }

  set(what: 'totalBytes' | 'held' | 'devices' | 'peers' | 'mapsMemory' | 'order' | 'failDevice', value: number): void {
    this.setValue(what, value);
  }

  /** Kernels computed on the host. See hostKernels.h for what the library exports. */
  host(library: string): void {
    if (!this.addHost(library)) throw new Error(`${library} cannot be loaded.`);
  }

  /** Forgets failures and the log, and revives the context. */
  reset(): void {
    this.resetAll();
  }

  /** Logged calls since the last reset that begin with a word. */
  log(word = ''): string[] {
    return this.logText()
      .split('\n')
      .filter((line) => line !== '' && line.startsWith(word));
  }

  /** The number of contexts, allocations, ranges of addresses, streams, events and modules that were not released. */
  live(): number {
    return this.liveCount();
  }
}

/**
 * A group of tests on the fake driver. It is skipped, by name, if the driver cannot be built; test/globalSetup.ts says
 * so loudly.
 */
export function describeFake(name: string, body: (fake: FakeDriver) => void): void {
  if (COMPILER === undefined) describe.skip(`${name}: no C compiler`, () => it('needs a fake driver', () => undefined));
  else describe(name, () => body(FakeDriver.load()));
}
