/** Memory, mapped files, the pool, the processor and its peak rates. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { loadAddon, loadAddonFrom, tooOldSystem } from '../../runtime/addon.js';
import { ABI_TEXT, temporaryFolder } from './kernels.js';

const folder = temporaryFolder();
const addon = loadAddon();
const { Memory, Pool } = addon;

describe('memory', () => {
  it('is zero, aligned and writable, small or large', () => {
    for (const bytes of [1, 4096, (4 << 20) + 5, 33 << 20]) {
      const memory = new Memory(bytes);
      expect(memory.sizeBytes).toBe(bytes);
      expect(memory.isWritable).toBe(true);
      expect(memory.address % (bytes >= 4 << 20 ? 2n << 20n : 64n)).toBe(0n);
      expect(new Uint8Array(memory.read(0, bytes)).every((byte) => byte === 0)).toBe(true);
      memory.write(bytes - 1, new Uint8Array([7]));
      expect(new Uint8Array(memory.read(bytes - 1, 1))[0]).toBe(7);
      memory.release();
    }
  });

  it('writes the part of a buffer that a typed array shows', () => {
    const memory = new Memory(64);
    memory.write(4, new Int32Array([1, 2, 3, 4]).subarray(1, 3));
    expect([...new Int32Array(memory.read(0, 16))]).toEqual([0, 2, 3, 0]);
  });

  it('refuses ranges outside it, impossible sizes and use after release', () => {
    const memory = new Memory(64);
    expect(() => memory.read(60, 5)).toThrow(/outside a memory of 64 bytes/);
    expect(() => memory.read(-1, 1)).toThrow(/integer/);
    expect(() => memory.read(Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)).toThrow(/outside/);
    expect(() => memory.write(63, new Uint8Array(2))).toThrow(/outside/);
    expect(() => memory.advise('dontneed')).toThrow(/lose its contents/);
    for (const bytes of [0, -1, NaN, 1.5, 2 ** 52]) expect(() => new Memory(bytes)).toThrow();
    memory.release();
    expect(() => memory.sizeBytes).toThrow(/released/);
    expect(() => memory.read(0, 1)).toThrow(/released/);
    memory.release();
  });

  it('maps a file for reading', () => {
    const path = join(folder, 'data.bin');
    const content = Uint8Array.from({ length: 10000 }, (_, i) => i % 251);
    writeFileSync(path, content);
    const memory = new Memory(path);
    expect(memory.isWritable).toBe(false);
    expect(new Uint8Array(memory.read(0, 10000))).toEqual(content);
    memory.advise('willneed');
    memory.advise('dontneed', 100, 9000);
    expect(new Uint8Array(memory.read(5000, 10))).toEqual(content.slice(5000, 5010));
    expect(() => memory.advise('dontneed', 0, 10001)).toThrow(/outside/);
  });

  it('says what is wrong with a file', () => {
    writeFileSync(join(folder, 'empty'), '');
    mkdirSync(join(folder, 'directory'));
    expect(() => new Memory(join(folder, 'missing'))).toThrow(/Cannot open .*missing: No such file/);
    expect(() => new Memory(join(folder, 'empty'))).toThrow(/is empty/);
    expect(() => new Memory(join(folder, 'directory'))).toThrow(/not a regular file/);
    expect(() => new Memory('a\0b')).toThrow(/zero byte/);
  });

  it('returns dropped pages of a file', () => {
    // RssFile counts pages of files on a disk, RssShmem those of files in memory.
    const resident = (): number =>
      [...readFileSync('/proc/self/status', 'utf8').matchAll(/^Rss(?:File|Shmem):\s+(\d+)/gm)].reduce(
        (sum, [, size]) => sum + Number(size) / 1024,
        0,
      );
    const path = join(folder, 'big.bin');
    writeFileSync(path, new Uint8Array(64 << 20).fill(1));
    const memory = new Memory(path);
    const before = resident();
    memory.advise('willneed');
    const copy = new Memory(64);
    for (let offset = 0; offset < memory.sizeBytes; offset += 4096)
      copy.write(0, new Uint8Array(memory.read(offset, 1)));
    const touched = resident();
    memory.advise('dontneed');
    const after = resident();
    expect(touched - before).toBeGreaterThan(50);
    expect(touched - after).toBeGreaterThan(50);
  });
});

interface PoolThread {
  readonly task: string;
  readonly state: string;
  /** The time that it was given. */
  readonly ticks: number;
}

/** The threads of all pools in this process. */
const poolThreads = (): readonly PoolThread[] =>
  readdirSync('/proc/self/task').flatMap((task) => {
    const [, name, rest] = /^\d+ \((.*)\) (.*)$/s.exec(readFileSync(`/proc/self/task/${task}/stat`, 'utf8')) ?? [];
    if (name !== 'tilewright') return [];
    const fields = rest!.split(' ');
    return [{ task, state: fields[0]!, ticks: Number(fields[11]) + Number(fields[12]) }];
  });

describe('the pool', () => {
  it('has the requested threads, and refuses impossible numbers', () => {
    expect(new Pool(3).threads).toBe(3);
    expect(new Pool(1, true).threads).toBe(1);
    for (const threads of [0, -1, 1.5, 1e9, NaN]) expect(() => new Pool(threads)).toThrow(/threads/);
  });

  it('uses no processor time while it waits', async () => {
    const pool = new Pool(4);
    await addon.peak(pool, 'portable', 0);
    // Whatever else the machine does: threads that sleep are given no time, to the tick.
    await expect.poll(() => poolThreads().map(({ state }) => state)).not.toContain('R');
    const before = new Map(poolThreads().map(({ task, ticks }) => [task, ticks]));
    await new Promise((resolve) => setTimeout(resolve, 300));
    // A pool of a test before may end meanwhile.
    const after = poolThreads();
    expect(after.length).toBeGreaterThanOrEqual(pool.threads - 1);
    expect(after.filter(({ task, ticks }) => ticks !== before.get(task))).toEqual([]);
  });

  it('leaves time to the main thread while all processors work', async () => {
    const pool = new Pool(availableParallelism());
    let turns = 0;
    let isWorking = true;
    const working = addon.peak(pool, 'portable', 0.5).finally(() => {
      isWorking = false;
    });
    for (; isWorking; turns++) await nextTurn();
    await working;
    // Those of the event loop before and after it are two.
    expect(turns).toBeGreaterThan(5);
  });
});

describe('the processor', () => {
  it('agrees with what the kernel reports', () => {
    const info = addon.cpuInfo();
    const flags = new Set(/^flags\s*: (.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1]?.split(' '));
    expect(info.isas.avx2).toBe(flags.has('avx2') && flags.has('fma') && flags.has('f16c'));
    expect(info.isas.avx512).toBe(['avx512f', 'avx512bw', 'avx512dq', 'avx512vl'].every((flag) => flags.has(flag)));
    // AMX tiles also need the kernel's permission, so only one direction is certain.
    if (info.isas.amx) expect(flags.has('amx_bf16') && flags.has('amx_tile')).toBe(true);
    expect(info.cores).toBeGreaterThanOrEqual(1);
    expect(info.cores).toBeLessThanOrEqual(availableParallelism());
    expect(info.l1dBytes).toBeGreaterThanOrEqual(8 << 10);
    expect(info.l2Bytes).toBeGreaterThanOrEqual(128 << 10);
    expect(info.vendor).not.toBe('');
  });

  it('counts only the processors it may run on', () => {
    const path = join(process.cwd(), 'build', 'Release', 'tilewright.node');
    const script = `console.log(require(${JSON.stringify(path)}).cpuInfo().cores)`;
    expect(execFileSync('taskset', ['-c', '0', process.execPath, '-e', script], { encoding: 'utf8' }).trim()).toBe('1');
  });

  it('measures plausible rates, and refuses instruction sets that the processor lacks', async () => {
    const pool = new Pool(1);
    const { isas } = addon.cpuInfo();
    for (const kind of ['portable', 'read'] as const) expect(await addon.peak(pool, kind, 0.02)).toBeGreaterThan(1e8);
    for (const kind of ['avx2', 'avx512', 'amx'] as const) {
      if (isas[kind]) expect(await addon.peak(pool, kind, 0.02)).toBeGreaterThan(1e9);
      else expect(() => addon.peak(pool, kind, 0.02)).toThrow(/has no/);
    }
  });

  it('was built with the ABI of this tree', () => {
    expect(addon.abi).toBe(Number(/#define TW_ABI (\d+)/.exec(ABI_TEXT)![1]));
  });
});

describe('loading the addon', () => {
  const failure = (root: string): UserError => {
    try {
      loadAddonFrom(root);
    } catch (error) {
      if (error instanceof UserError) return error;
    }
    throw new Error('loaded, or failed otherwise');
  };

  it('says how to build it if it is missing or was built for another system', () => {
    const root = join(folder, 'package');
    expect(failure(root).message).toContain(join(root, 'build', 'Release', 'tilewright.node'));
    expect(failure(root).hint).toContain('npm run build:native');
    mkdirSync(join(root, 'build', 'Release'), { recursive: true });
    writeFileSync(join(root, 'build', 'Release', 'tilewright.node'), 'not a shared object');
    expect(failure(root).message).toContain('cannot be loaded');
    expect(failure(root).hint).toContain('npm run build:native');
  });

  it('names the installed and the required version if it was built on a newer system', () => {
    const reason =
      "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.99' not found (required by " +
      '/opt/tilewright/build/Release/tilewright.node)';
    expect(tooOldSystem(reason, '2.31')?.message).toBe(
      'This system is too old for the native addon, which needs glibc 2.99 or later; here is glibc 2.31.',
    );
    expect(tooOldSystem(reason.replace('GLIBC', 'GLIBCXX'))?.message).toContain(
      'needs the C++ library GLIBCXX 2.99 or later',
    );
    expect(tooOldSystem('file too short')).toBeUndefined();
    // The loader's message for an addon that requires a version that no system has.
    const root = join(folder, 'newer');
    mkdirSync(join(root, 'build', 'Release'), { recursive: true });
    const addonBytes = readFileSync(join(process.cwd(), 'build', 'Release', 'tilewright.node'));
    const at = addonBytes.toString('latin1').search(/(?<=\0)GLIBC_2\.\d\d\0/);
    expect(at, 'the addon asks for no glibc').toBeGreaterThan(0);
    addonBytes.write('GLIBC_9.99', at, 'latin1');
    writeFileSync(join(root, 'build', 'Release', 'tilewright.node'), addonBytes);
    expect(failure(root).message).toMatch(/needs glibc 9\.99 or later; here is glibc 2\.\d+\.$/);
    expect(failure(root).hint).toContain('npm run build:native');
  });
});
