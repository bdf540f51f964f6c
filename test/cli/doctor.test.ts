import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Check, doctor, folderBytes, OLDEST_NODE, type Probes } from '../../commands/doctor.js';
import { UserError } from '../../errors.js';
import { makeFolder } from '../../system/write.js';
import { runCli } from './fakeIo.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-doctor-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const fail = (message: string, hint: string) => (): never => {
  throw new UserError(message, hint);
};

/** A machine on which everything is in order. */
const healthy = (): Probes => ({
  nodeVersion: '20.19.0',
  platform: 'linux-x64',
  glibcVersion: '2.36',
  machine: () => ({
    cpu: {
      vendor: 'V',
      model: 'A CPU',
      cores: 4,
      isas: { avx2: true, avx512: true, amx: true },
      l1dBytes: 48 << 10,
      l2Bytes: 2 << 20,
      l3Bytes: 0,
    },
    isas: ['portable', 'avx2', 'avx512', 'amx'],
  }),
  hasProgram: () => true,
  compiler: () => Promise.resolve({ path: '/usr/bin/cc', version: 'cc 12' }),
  cacheDir: join(folder, 'cache'),
  cacheLimit: () => 2 ** 31,
  memory: () => ({ totalBytes: 8 * 2 ** 30, freeBytes: 2 ** 30 }),
  gpu: () => ({ ok: false, reason: 'libcuda.so.1 was not found' }),
  cudaCompiler: () => Promise.resolve('NVRTC 13.0 (libnvrtc.so.13)'),
});

const find = (checks: readonly Check[], name: string): Check => {
  const check = checks.find((each) => each.name === name);
  if (check === undefined) throw new Error(`no check ${name}`);
  return check;
};

describe('doctor', () => {
  it('finds nothing missing on a healthy machine', async () => {
    const checks = await doctor(healthy());
    expect(checks.filter(({ status }) => status === 'missing')).toEqual([]);
    expect(find(checks, 'Node').detail).toBe('20.19.0 (linux-x64, glibc 2.36)');
    expect(find(checks, 'micro-kernels')).toEqual({
      name: 'micro-kernels',
      status: 'ok',
      detail: 'portable, avx2, avx512, amx (amx is used; bf16 inputs in matrix units)',
    });
    expect(find(checks, 'caches').detail).toBe('L1 48 KiB, L2 2 MiB, L3 unknown');
    expect(find(checks, 'memory').detail).toBe('8 GiB, 1 GiB free');
    expect(find(checks, 'cache folder').detail).toContain(
      'writable, 0 bytes in 0 files (safe to delete; compiled kernels: at most 2 GiB, TILEWRIGHT_CACHE_LIMIT)',
    );
    expect(readdirSync(join(folder, 'cache'))).toEqual([]);
    expect(find(checks, 'GPU')).toMatchObject({
      status: 'note',
      detail: 'libcuda.so.1 was not found; --target cuda:sm_90a compiles without one',
    });
    expect(find(checks, 'CUDA compiler')).toEqual({
      name: 'CUDA compiler',
      status: 'ok',
      detail: 'NVRTC 13.0 (libnvrtc.so.13)',
    });
  });

  it.each([
    ['20.18.9', false],
    ['18.20.0', false],
    ['20.19.0', true],
    ['22.0.0', true],
  ])('Node %s', async (nodeVersion, isFine) => {
    const check = find(await doctor({ ...healthy(), nodeVersion }), 'Node');
    expect(check.status).toBe(isFine ? 'ok' : 'missing');
    expect(check.fix === undefined).toBe(isFine);
  });

  it('asks for the Node that package.json asks for', () => {
    const { engines } = JSON.parse(readFileSync(join(import.meta.dirname, '..', '..', 'package.json'), 'utf8')) as {
      readonly engines: { readonly node: string };
    };
    expect(engines.node).toBe(`>=${OLDEST_NODE.join('.')}`);
  });

  it('names what is missing and how to get it', async () => {
    const file = join(folder, 'file');
    writeFileSync(file, '');
    const checks = await doctor({
      ...healthy(),
      machine: fail('not built', 'Run: npm run build:native'),
      compiler: fail('no compiler', 'apt install gcc'),
      hasProgram: (name) => name === 'g++',
      cacheDir: join(file, 'cache'),
    });
    expect(checks.filter(({ status }) => status === 'missing').map(({ name, fix }) => [name, fix])).toEqual([
      ['native addon', 'Run: npm run build:native'],
      ['cmake', expect.stringContaining('apt install cmake')],
      ['C compiler', 'apt install gcc'],
      ['cache folder', expect.stringContaining('TILEWRIGHT_CACHE')],
    ]);
  });

  it('says what is wrong with the limit of the cache', async () => {
    const checks = await doctor({
      ...healthy(),
      cacheLimit: fail('TILEWRIGHT_CACHE_LIMIT is "2", which is no size.', 'export TILEWRIGHT_CACHE_LIMIT=2GiB'),
    });
    expect(find(checks, 'cache folder')).toMatchObject({
      status: 'missing',
      fix: 'export TILEWRIGHT_CACHE_LIMIT=2GiB',
    });
  });

  it('says that a machine without AMX computes in f32', async () => {
    const { cpu } = healthy().machine();
    const checks = await doctor({ ...healthy(), machine: () => ({ cpu, isas: ['portable', 'avx2'] }) });
    expect(find(checks, 'micro-kernels')).toMatchObject({
      status: 'note',
      detail: 'portable, avx2 (avx2 is used; no AMX: --precision auto computes in f32)',
    });
  });

  it('exits with 1 only where something that is needed is missing', async () => {
    const checks: Check[] = [
      { name: 'Node', status: 'ok', detail: '20' },
      { name: 'GPU driver', status: 'note', detail: 'not found' },
    ];
    const fine = await runCli(['doctor'], { doctor: () => Promise.resolve(checks) });
    expect(fine).toEqual({
      status: 0,
      stderr: '',
      stdout: 'ok    Node        20\nnote  GPU driver  not found\n\nEverything that is needed is here.\n',
    });
    const ill: Check[] = [...checks, { name: 'C compiler', status: 'missing', detail: 'none', fix: 'apt install gcc' }];
    const bad = await runCli(['doctor'], { doctor: () => Promise.resolve(ill) });
    expect(bad.status).toBe(1);
    expect(bad.stdout).toContain('missing  C compiler  none\n         → apt install gcc\n');
    expect(bad.stdout).toContain('Missing: C compiler.');
    const json = await runCli(['doctor', '--json'], { doctor: () => Promise.resolve(ill) });
    expect(json.status).toBe(1);
    expect(JSON.parse(json.stdout)).toEqual({ isHealthy: false, checks: ill });
  });

  it('counts the cache without following links', () => {
    const cache = join(folder, 'counted');
    mkdirSync(join(cache, 'a', 'b'), { recursive: true });
    writeFileSync(join(cache, 'a', 'one'), 'x'.repeat(10));
    writeFileSync(join(cache, 'a', 'b', 'two'), 'x'.repeat(5));
    symlinkSync(cache, join(cache, 'loop'));
    expect(folderBytes(cache)).toEqual({ bytes: 15, files: 2 });
    expect(folderBytes(join(folder, 'absent'))).toEqual({ bytes: 0, files: 0 });
  });
});

describe('makeFolder', () => {
  it('makes what is missing, and accepts what exists', () => {
    const deep = join(folder, 'x', 'y', 'z');
    makeFolder(deep);
    makeFolder(deep);
    expect(existsSync(deep)).toBe(true);
  });

  it('throws where a file is in the way', () => {
    writeFileSync(join(folder, 'plain'), '');
    expect(() => {
      makeFolder(join(folder, 'plain'));
    }).toThrow('EEXIST');
    expect(() => {
      makeFolder(join(folder, 'plain', 'x'));
    }).toThrow('ENOTDIR');
  });

  it.runIf(existsSync('/proc/self'))('returns with an error if a folder cannot be made', () => {
    expect(() => {
      makeFolder('/proc/tilewright/x');
    }).toThrow('ENOENT');
  });
});

describe('a machine with GPUs', () => {
  const gpu = (capability: readonly [number, number]): ReturnType<Probes['gpu']> => ({
    ok: true,
    driverVersion: 12040,
    devices: [
      {
        ordinal: 0,
        name: 'A GPU',
        uuid: '0'.repeat(32),
        capability,
        multiprocessors: 132,
        totalBytes: 80 * 2 ** 30,
        l2Bytes: 50 << 20,
        sharedBytesPerBlock: 232_448,
        sharedBytesPerMultiprocessor: 233_472,
        clockKHz: 1_980_000,
      },
    ],
  });

  it('names them, and asks for the compiler of their architecture and driver', async () => {
    const asked: unknown[] = [];
    const checks = await doctor({
      ...healthy(),
      gpu: () => gpu([9, 0]),
      cudaCompiler: (...request) => {
        asked.push(request);
        return Promise.resolve('nvcc 12.4');
      },
    });
    expect(find(checks, 'GPU 0')).toEqual({
      name: 'GPU 0',
      status: 'ok',
      detail: 'A GPU, 80 GiB, 132 multiprocessors, sm_90a; driver for CUDA 12.4',
    });
    expect(asked).toEqual([['sm_90a', 12040]]);
  });

  it('can still compile for others if its own GPU is too old', async () => {
    const checks = await doctor({ ...healthy(), gpu: () => gpu([7, 0]) });
    expect(find(checks, 'GPU 0')).toMatchObject({
      status: 'note',
      detail: expect.stringContaining('compute capability 7.0: older than 8.0') as string,
    });
  });

  it('needs a CUDA compiler, while one without GPUs does not', async () => {
    const cudaCompiler = fail('no NVRTC', 'pip install nvidia-cuda-nvrtc');
    const [withGpu, without] = [
      await doctor({ ...healthy(), gpu: () => gpu([8, 6]), cudaCompiler }),
      await doctor({ ...healthy(), cudaCompiler }),
    ];
    expect(find(withGpu, 'CUDA compiler')).toEqual({
      name: 'CUDA compiler',
      status: 'missing',
      detail: 'no NVRTC',
      fix: 'pip install nvidia-cuda-nvrtc',
    });
    expect(find(without, 'CUDA compiler')).toEqual({ name: 'CUDA compiler', status: 'note', detail: 'no NVRTC' });
  });
});
