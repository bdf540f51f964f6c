/** The cache holds machine code, so only the user and root may be able to change it. */
import { chmodSync, chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { CubinCache } from '../../runtime/cuda/cubinCache.js';
import { readSettings } from '../../settings.js';
import { settingsIn, temporaryFolder, type CachedSettings } from './kernels.js';

/** The error code with which the system refuses to make a file or folder; undefined: it refuses nothing. */
let refusal: string | undefined;
vi.mock(import('node:fs/promises'), async (importOriginal) => {
  const real = await importOriginal();
  const refuse = (): void => {
    if (refusal !== undefined) throw Object.assign(new Error(`${refusal}: injected`), { code: refusal });
  };
  const mkdtemp = (prefix: string): Promise<string> => {
    refuse();
    return real.mkdtemp(prefix);
  };
  const open: typeof real.open = (path, flags, mode) => {
    if (flags === 'wx') refuse();
    return real.open(path, flags, mode);
  };
  return { ...real, mkdtemp: mkdtemp as typeof real.mkdtemp, open };
});
afterEach(() => {
  refusal = undefined;
});

const isRoot = process.getuid?.() === 0;
const root = temporaryFolder();
let counter = 0;
const fresh = (): CachedSettings => {
  const cacheDir = join(root, `cache${counter++}`);
  mkdirSync(cacheDir, { mode: 0o700 });
  return settingsIn(cacheDir);
};
const SOURCE = [{ name: 'one.c', text: 'int tw_one(void) { return 1; }\n' }];
const compile = (settings: CachedSettings): ReturnType<typeof compileShared> =>
  compileShared(SOURCE, { isa: 'portable', settings });
const CUBIN = Buffer.alloc(64);
Buffer.from('7f454c460201', 'hex').copy(CUBIN);
CUBIN.writeUInt16LE(190, 18);

describe('a cache folder', () => {
  it('that others may write to is refused, with the command that removes the permission', async () => {
    for (const folder of ['', 'kernels']) {
      const settings = fresh();
      const path = join(settings.cacheDir, folder);
      mkdirSync(path, { recursive: true });
      chmodSync(path, 0o777);
      await expect(compile(settings)).rejects.toMatchObject({
        message: expect.stringContaining('others may write to it') as unknown,
        hint: expect.stringContaining(`chmod go-w ${path}`) as unknown,
      });
    }
    const settings = fresh();
    chmodSync(settings.cacheDir, 0o770);
    await expect(new CubinCache(settings).prepare()).rejects.toThrow('others may write to it');
  });

  it.skipIf(!isRoot)('that belongs to somebody else is refused', async () => {
    const settings = fresh();
    chownSync(settings.cacheDir, 12_345, 12_345);
    await expect(compile(settings)).rejects.toThrow('it belongs to user 12345');
    await expect(new CubinCache(settings).prepare()).rejects.toThrow('it belongs to user 12345');
  });
});

describe('a cache folder that the system refuses', () => {
  const LINE = /^Compiled kernels are kept in the cache folder \/\S+, which cannot be used: [^\n]+$/;
  const ELSEWHERE = 'a folder on a disk that can be written: export TILEWRIGHT_CACHE=/path';

  it.each([
    ['EROFS', 'the file system is read-only', `Choose ${ELSEWHERE}`],
    ['EACCES', 'permission denied', `Take the right to write there, or choose ${ELSEWHERE}`],
    ['ENOSPC', 'the disk is full', `Free space there, or choose ${ELSEWHERE}`],
    ['EDQUOT', 'the disk quota is used up', `Free space there, or choose ${ELSEWHERE}`],
    ['ENOENT', 'a part of its path is missing and cannot be made', `Choose ${ELSEWHERE}`],
    ['ENOTDIR', 'part of the path is a file, not a folder', `Choose ${ELSEWHERE}`],
  ])('with %s is one line with the next command, for C and for cubins', async (code, reason, hint) => {
    const settings = fresh();
    const cubins = new CubinCache(settings);
    await cubins.prepare();
    refusal = code;
    const refused = { message: expect.stringMatching(LINE) as unknown, hint };
    const said = expect.stringContaining(`: ${reason}`) as unknown;
    const attempts: readonly (() => Promise<unknown>)[] = [
      () => compile(settings),
      () => cubins.write('c'.repeat(64), { cubin: CUBIN, resources: undefined }),
    ];
    for (const attempt of attempts) {
      const error: unknown = await attempt().then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(error).toMatchObject(refused);
      expect(error).toMatchObject({ message: said });
    }
  });

  it.each([
    ['below a file', () => join(fileIn(), 'cache'), 'part of the path is a file, not a folder'],
    ['where a file is in its place', () => fileIn('kernels'), 'a file of that name already exists'],
    ['where no folder can be made', () => '/proc/tilewright', 'a part of its path is missing and cannot be made'],
  ])('%s is one line as well', async (_where, place, reason) => {
    await expect(compile(settingsIn(place()))).rejects.toMatchObject({
      message: expect.stringMatching(LINE) as unknown,
      hint: `Choose ${ELSEWHERE}`,
    });
    await expect(compile(settingsIn(place()))).rejects.toThrow(reason);
  });
});

/** A file, or a folder that holds a file of this name. */
function fileIn(name?: string): string {
  const { cacheDir } = fresh();
  const path = join(cacheDir, name ?? 'file');
  writeFileSync(path, '');
  return name === undefined ? path : cacheDir;
}

describe('an entry', () => {
  it('that others may write to is rebuilt', async () => {
    const settings = fresh();
    const { path } = await compile(settings);
    expect((await compile(settings)).cached).toBe(true);
    chmodSync(path, 0o722);
    expect((await compile(settings)).cached).toBe(false);
    chmodSync(join(path, '..'), 0o777);
    expect((await compile(settings)).cached).toBe(false);
  });

  it('of cubins that others may write to is not read', async () => {
    const settings = fresh();
    const cache = new CubinCache(settings);
    const key = 'b'.repeat(64);
    await cache.prepare();
    await cache.write(key, { cubin: CUBIN, resources: undefined });
    expect(await cache.read(key)).toBeDefined();
    chmodSync(join(settings.cacheDir, 'cubins', `${key}.twc`), 0o666);
    expect(await cache.read(key)).toBeUndefined();
  });
});

describe('the place of the cache', () => {
  const place = (environment: Record<string, string>): string | undefined => readSettings(environment).cacheDir;

  it('is never below the current folder by accident', () => {
    expect(place({ TILEWRIGHT_CACHE: '/c', HOME: '/h' })).toBe('/c');
    expect(place({ XDG_CACHE_HOME: '/x', HOME: '/h' })).toBe('/x/tilewright');
    expect(place({ XDG_CACHE_HOME: 'relative', HOME: '/h' })).toBe('/h/.cache/tilewright');
    const fallback = place({});
    expect(place({ HOME: '' })).toBe(fallback);
    expect(place({ HOME: 'relative' })).toBe(fallback);
    if (fallback !== undefined) expect(fallback.startsWith('/')).toBe(true);
  });

  it('must be set if there is none', async () => {
    const settings = { ...readSettings(), cacheDir: undefined };
    await expect(compileShared(SOURCE, { isa: 'portable', settings })).rejects.toMatchObject({
      hint: 'Name one: export TILEWRIGHT_CACHE=/path',
    });
  });
});
