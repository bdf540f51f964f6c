/** The caches of compiled kernels stay within their limit, and entries that may soon be loaded stay. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { CubinCache } from '../../runtime/cuda/cubinCache.js';
import { cacheLimitBytes, markUsed, pruneCaches } from '../../runtime/kernelCache.js';
import { settingsIn, temporaryFolder, type CachedSettings } from './kernels.js';

const BUILT = new URL('../../dist/runtime/kernelCache.js', import.meta.url);
if (!existsSync(BUILT))
  console.warn('SKIPPED: several processes that prune one cache: dist/ is missing; run npm run build');

const KIB = 2 ** 10;
let counter = 0;
const root = temporaryFolder();
const within = (cacheLimit: string): CachedSettings => ({ ...settingsIn(join(root, `cache${counter++}`)), cacheLimit });
const keyOf = (text: string): string => createHash('sha256').update(text).digest('hex');

/** An entry of `kib` KiB that was last used `hours` ago. */
function library({ cacheDir }: CachedSettings, text: string, kib: number, hours: number): string {
  const entry = join(cacheDir, 'kernels', keyOf(text));
  mkdirSync(entry, { recursive: true });
  writeFileSync(join(entry, 'kernels.so'), Buffer.alloc(kib * KIB));
  return age(entry, hours);
}
function cubin({ cacheDir }: CachedSettings, text: string, kib: number, hours: number): string {
  mkdirSync(join(cacheDir, 'cubins'), { recursive: true });
  const path = join(cacheDir, 'cubins', `${keyOf(text)}.twc`);
  writeFileSync(path, Buffer.alloc(kib * KIB));
  return age(path, hours);
}
/** A time after which an entry was used in these tests; clocks of file systems are coarse. */
const began = Date.now() - 60_000;
function age(path: string, hours: number): string {
  const then = new Date(Date.now() - hours * 3600_000);
  utimesSync(path, then, then);
  return path;
}

describe('the limit of the caches', () => {
  it.each([
    [undefined, 2 ** 31],
    ['2GiB', 2 ** 31],
    ['1.5 MiB', 1.5 * 2 ** 20],
    ['0KiB', 0],
    ['3TiB', 3 * 2 ** 40],
    ['none', Infinity],
  ])('%s is %d bytes', (cacheLimit, bytes) => {
    expect(cacheLimitBytes({ cacheLimit })).toBe(bytes);
  });

  it.each(['2', 'GiB', '2GB', '-1GiB', '1e9GiB', '2gib', '9999999999GiB'])('%s is refused', async (cacheLimit) => {
    expect(() => cacheLimitBytes({ cacheLimit })).toThrow(UserError);
    // This happens before anything is compiled.
    const settings = within(cacheLimit);
    await expect(compileShared([{ name: 'a.c', text: 'int a;' }], { isa: 'portable', settings })).rejects.toThrow(
      'TILEWRIGHT_CACHE_LIMIT',
    );
    expect(existsSync(settings.cacheDir)).toBe(false);
  });
});

describe('pruning', () => {
  it('removes what was unused longest, from both caches together, until the rest fits', async () => {
    const settings = within('100KiB');
    const [newest, oldest, middle, old] = [
      library(settings, 'a', 40, 1),
      library(settings, 'b', 40, 9),
      cubin(settings, 'c', 40, 2),
      cubin(settings, 'd', 40, 5),
    ];
    await pruneCaches(settings);
    expect([newest, oldest, middle, old].map((path) => existsSync(path))).toEqual([true, false, true, false]);
    // Nothing is left of entries that were moved away.
    for (const kind of ['kernels', 'cubins']) expect(readdirSync(join(settings.cacheDir, kind))).toHaveLength(1);
  });

  it('removes nothing below the limit, or without a limit', async () => {
    for (const limit of ['200KiB', 'none']) {
      const settings = within(limit);
      const all = [library(settings, 'a', 90, 1000), cubin(settings, 'b', 90, 2000)];
      await pruneCaches(settings);
      expect(all.every((path) => existsSync(path))).toBe(true);
    }
  });

  it('keeps recently used entries, and those this process has been given', async () => {
    const settings = within('0KiB');
    const [recent, ours, others] = [
      library(settings, 'a', 8, 0.1),
      library(settings, 'ours', 8, 50),
      library(settings, 'b', 8, 40),
    ];
    await markUsed(ours);
    expect(statSync(ours).mtimeMs).toBeGreaterThan(began);
    age(ours, 50);
    await pruneCaches(settings);
    expect([recent, ours, others].map((path) => existsSync(path))).toEqual([true, true, false]);
  });

  it('leaves other files alone', async () => {
    const settings = within('0KiB');
    library(settings, 'a', 8, 40);
    const folder = join(settings.cacheDir, 'kernels');
    mkdirSync(join(folder, 'mine'));
    writeFileSync(join(settings.cacheDir, 'tuning.jsonl'), '{}\n');
    writeFileSync(join(root, 'precious'), 'x');
    mkdirSync(join(root, 'treasure'), { recursive: true });
    writeFileSync(join(root, 'treasure', 'kernels.so'), 'x');
    // A link in the place of an entry is removed; its target stays.
    symlinkSync(join(root, 'treasure'), join(folder, keyOf('link')));
    age(join(folder, 'mine'), 100);
    await pruneCaches(settings);
    expect(existsSync(join(folder, 'mine'))).toBe(true);
    expect(existsSync(join(folder, keyOf('a')))).toBe(false);
    expect(existsSync(join(settings.cacheDir, 'tuning.jsonl'))).toBe(true);
    expect(existsSync(join(root, 'treasure', 'kernels.so'))).toBe(true);
  });

  it('checks once a minute', async () => {
    const settings = within('0KiB');
    await pruneCaches(settings);
    const late = library(settings, 'a', 8, 40);
    await pruneCaches(settings);
    expect(existsSync(late)).toBe(true);
  });

  it.skipIf(!existsSync(BUILT))('is safe if several processes do it at once', async () => {
    const settings = within('75KiB');
    for (let i = 0; i < 40; i++) library(settings, `entry ${i}`, 20, 100 - i);
    const script =
      `const { pruneCaches } = await import(${JSON.stringify(BUILT.href)}); await pruneCaches(` +
      `${JSON.stringify(settings)});`;
    const ends = await Promise.all(
      [1, 2, 3].map(
        () =>
          new Promise<{ code: number | null; stderr: string }>((resolve) => {
            const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
              stdio: ['ignore', 'ignore', 'pipe'],
            });
            let stderr = '';
            child.stderr.on('data', (text) => {
              stderr += String(text);
            });
            child.on('close', (code) => {
              resolve({ code, stderr });
            });
          }),
      ),
    );
    expect(ends).toEqual([1, 2, 3].map(() => ({ code: 0, stderr: '' })));
    // The three newest fit, each with its folder. Processes do not remove more entries because others remove some.
    expect(readdirSync(join(settings.cacheDir, 'kernels')).sort()).toEqual(
      [37, 38, 39].map((i) => keyOf(`entry ${i}`)).sort(),
    );
  });
});

describe('compiling', () => {
  const text = 'int tw_one(void) { return 1; }\n';

  it('prunes after compiling, counts a hit as use, and keeps what it made', async () => {
    const settings = within('1KiB');
    const [old, other] = [library(settings, 'old', 8, 40), cubin(settings, 'other', 8, 30)];
    const { path } = await compileShared([{ name: 'one.c', text }], { isa: 'portable', settings });
    expect([old, other].map((each) => existsSync(each))).toEqual([false, false]);
    expect(existsSync(path)).toBe(true);
    age(join(path, '..'), 20);
    expect((await compileShared([{ name: 'one.c', text }], { isa: 'portable', settings })).cached).toBe(true);
    expect(statSync(join(path, '..')).mtimeMs).toBeGreaterThan(began);
  });

  it('counts a cubin hit as use', async () => {
    const settings = within('1KiB');
    const cache = new CubinCache(settings);
    await cache.prepare();
    const header = Buffer.from('7f454c460201', 'hex');
    const code = Buffer.alloc(64);
    header.copy(code);
    code.writeUInt16LE(190, 18);
    await cache.write(keyOf('cubin'), { cubin: code, resources: undefined });
    const path = age(join(settings.cacheDir, 'cubins', `${keyOf('cubin')}.twc`), 20);
    expect((await cache.read(keyOf('cubin')))?.cubin).toHaveLength(64);
    expect(statSync(path).mtimeMs).toBeGreaterThan(began);
  });
});
