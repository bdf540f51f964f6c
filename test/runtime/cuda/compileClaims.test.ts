/** Processes that lack the same kernels compile each of them once. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { compileCubins, type CudaUnit } from '../../../runtime/cuda/compiler.js';
import { CompileClaims } from '../../../runtime/cuda/cubinCache.js';
import { temporaryFolder } from '../kernels.js';
import { hasCc, isolated, makeNvrtc } from './fakeCompilers.js';

const root = temporaryFolder();
let counter = 0;
const fresh = (): string => {
  const folder = join(root, `${counter++}`);
  mkdirSync(folder);
  return folder;
};
const KEY = 'a'.repeat(64);

/** The id of a process that has ended. */
const endedProcess = (): number => spawnSync('true').pid;

describe('claims', () => {
  it('are held by one caller until they are released', async () => {
    const folder = fresh();
    const [first, second] = [new CompileClaims(folder), new CompileClaims(folder)];
    expect(await first.acquire(KEY)).toBe(true);
    expect(await second.acquire(KEY)).toBe(false);
    await second.release(KEY);
    expect(await second.acquire(KEY)).toBe(false);
    await first.release(KEY);
    expect(await second.acquire(KEY)).toBe(true);
  });

  it('are taken over if their process has ended', async () => {
    const folder = fresh();
    writeFileSync(join(folder, `.claim-${KEY}`), `${hostname()} ${endedProcess()}`);
    expect(await new CompileClaims(folder).acquire(KEY)).toBe(true);
  });

  it('of another host are respected until they are old', async () => {
    const folder = fresh();
    const path = join(folder, `.claim-${KEY}`);
    writeFileSync(path, `elsewhere ${endedProcess()}`);
    expect(await new CompileClaims(folder).acquire(KEY)).toBe(false);
    const old = Date.now() / 1000 - 600;
    utimesSync(path, old, old);
    expect(await new CompileClaims(folder).acquire(KEY)).toBe(true);
  });

  it('are skipped if the folder cannot be written', async () => {
    const folder = fresh();
    writeFileSync(join(folder, 'file'), '');
    expect(await new CompileClaims(join(folder, 'file')).acquire(KEY)).toBe(true);
  });
});

describe.skipIf(!hasCc)('compiling in several processes', () => {
  const library = hasCc ? makeNvrtc(join(root, 'lib', 'libnvrtc.so.13')) : '';

  it('compiles each kernel once for all', async () => {
    const settings = isolated(fresh(), { nvrtc: library });
    const compiled = fresh();
    const units = Array.from({ length: 6 }, (_, i): CudaUnit => ({
      symbol: `k_${i}`,
      source: `// ${i} COUNT ${compiled}\n`,
    }));
    const results = await Promise.all(
      Array.from({ length: 4 }, () => compileCubins(units, { arch: 'sm_90a', settings })),
    );
    for (const { cubins } of results) expect(cubins.size).toBe(6);
    expect(readdirSync(compiled)).toHaveLength(6);
    expect(readdirSync(join(settings.cacheDir, 'cubins')).filter((name) => name.startsWith('.'))).toEqual([]);
  });

  it('compiles here what another process abandoned', async () => {
    const settings = isolated(fresh(), { nvrtc: library });
    const fails = { symbol: 'k_bad', source: 'FAIL' };
    const options = { arch: 'sm_90a', settings, keepsGoing: true } as const;
    const results = await Promise.all([compileCubins([fails], options), compileCubins([fails], options)]);
    for (const { failures } of results) expect([...failures.keys()]).toEqual(['k_bad']);
  });
});
