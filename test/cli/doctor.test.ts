import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { examineMachine, folderBytes, type Check, type Probes } from '../../driver/doctor.js';
import { probeDriver, probeNvrtc } from '../../driver/gpuProbe.js';
import { UserError } from '../../errors.js';
import { makeFolder } from '../../eval/output.js';
import { runCli } from './fakeIo.js';

let folder = '';
beforeAll(() => { folder = mkdtempSync(join(tmpdir(), 'tilewright-doctor-')); });
afterAll(() => { rmSync(folder, { recursive: true, force: true }); });

const fail = (message: string, hint: string) => (): never => {
  throw new UserError(message, hint);
};

/** A machine on which all is well. */
const healthy = (): Probes => ({
  nodeVersion: '20.17.0', platform: 'linux-x64',
  machine: () => ({
    cpu: { vendor: 'V', model: 'A CPU', cores: 4, isas: { avx2: true, avx512: true, amx: true }, l1dBytes: 48 << 10, l2Bytes: 2 << 20, l3Bytes: 0 },
    isas: ['portable', 'avx2', 'avx512', 'amx'],
  }),
  hasProgram: () => true,
  compiler: () => Promise.resolve({ path: '/usr/bin/cc', version: 'cc 12' }),
  cacheDir: join(folder, 'cache'), memory: () => ({ totalBytes: 8 * 2 ** 30, freeBytes: 2 ** 30 }),
  driver: () => undefined, nvrtc: () => ({ library: 'libnvrtc.so.12', version: '12.4' }),
});

const find = (checks: readonly Check[], name: string): Check => {
  const check = checks.find((each) => each.name === name);
  if (check === undefined) throw new Error(`no check ${name}`);
  return check;
};

describe('doctor', () => {
  it('finds nothing missing on a healthy machine', async () => {
    const checks = await examineMachine(healthy());
    expect(checks.filter(({ status }) => status === 'missing')).toEqual([]);
    expect(find(checks, 'micro-kernels')).toEqual({ name: 'micro-kernels', status: 'ok', detail: 'portable, avx2, avx512, amx (amx is used; bf16 inputs in matrix units)' });
    expect(find(checks, 'caches').detail).toBe('L1 48 KiB, L2 2 MiB, L3 unknown');
    expect(find(checks, 'memory').detail).toBe('8.0 GiB, 1.0 GiB free');
    expect(find(checks, 'cache folder').detail).toContain('writable, 0.0 MiB in 0 files');
    expect(readdirSync(join(folder, 'cache'))).toEqual([]);
    expect(find(checks, 'GPU driver')).toMatchObject({ status: 'note', detail: 'not found; the CUDA target is not part of this version' });
    expect(find(checks, 'NVRTC').detail).toContain('libnvrtc.so.12, version 12.4;');
  });

  it.each([['20.16.9', false], ['18.20.0', false], ['20.17.0', true], ['22.0.0', true]])('Node %s', async (nodeVersion, isFine) => {
    const check = find(await examineMachine({ ...healthy(), nodeVersion }), 'Node');
    expect(check.status).toBe(isFine ? 'ok' : 'missing');
    expect(check.fix === undefined).toBe(isFine);
  });

  it('names what is missing and how to get it', async () => {
    const file = join(folder, 'file');
    writeFileSync(file, '');
    const checks = await examineMachine({
      ...healthy(), machine: fail('not built', 'Run: npm run build:native'), compiler: fail('no compiler', 'apt install gcc'), hasProgram: (name) => name === 'g++',
      cacheDir: join(file, 'cache'),
    });
    expect(checks.filter(({ status }) => status === 'missing').map(({ name, fix }) => [name, fix])).toEqual([
      ['native addon', 'Run: npm run build:native'], ['cmake', expect.stringContaining('apt install cmake')], ['C compiler', 'apt install gcc'],
      ['cache folder', expect.stringContaining('TILEWRIGHT_CACHE')],
    ]);
  });

  it('says that a machine without AMX computes in f32', async () => {
    const { cpu } = healthy().machine();
    const checks = await examineMachine({ ...healthy(), machine: () => ({ cpu, isas: ['portable', 'avx2'] }) });
    expect(find(checks, 'micro-kernels')).toMatchObject({ status: 'note', detail: 'portable, avx2 (avx2 is used; no AMX: --precision auto computes in f32)' });
  });

  it('exits with 1 only where something that is needed is missing', async () => {
    const checks: Check[] = [{ name: 'Node', status: 'ok', detail: '20' }, { name: 'GPU driver', status: 'note', detail: 'not found' }];
    const fine = await runCli(['doctor'], { doctor: () => Promise.resolve(checks) });
    expect(fine).toEqual({ status: 0, stderr: '', stdout: 'ok    Node        20\nnote  GPU driver  not found\n\nEverything that is needed is here.\n' });
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
  it('makes what is missing, and takes what is there', () => {
    const deep = join(folder, 'x', 'y', 'z');
    makeFolder(deep);
    makeFolder(deep);
    expect(existsSync(deep)).toBe(true);
  });

  it('throws where a file is in the way', () => {
    writeFileSync(join(folder, 'plain'), '');
    expect(() => { makeFolder(join(folder, 'plain')); }).toThrow('EEXIST');
    expect(() => { makeFolder(join(folder, 'plain', 'x')); }).toThrow('ENOTDIR');
  });

  it.runIf(existsSync('/proc/self'))('returns with an error from where no folder can be made', () => {
    expect(() => { makeFolder('/proc/tilewright/x'); }).toThrow('ENOENT');
  });
});

const hasCompiler = spawnSync('cc', ['--version'], { stdio: 'ignore' }).status === 0;

describe('GPU libraries', () => {
  it('that are not there are not found', () => {
    expect(probeDriver(['libtilewright-none.so.1'])).toBeUndefined();
    expect(probeNvrtc(['libtilewright-none.so.1', 'libtilewright-nor.so'])).toBeUndefined();
  });

  it.runIf(hasCompiler)('tell their versions, or that they do not', () => {
    const build = (name: string, source: string): string => {
      const [c, so] = [join(folder, `${name}.c`), join(folder, `${name}.so`)];
      writeFileSync(c, source);
      expect(spawnSync('cc', ['-shared', '-fPIC', '-o', so, c]).status).toBe(0);
      return so;
    };
    const cuda = build('cuda', 'int cuDriverGetVersion(int *v) { *v = 12040; return 0; }');
    const broken = build('broken', 'int cuDriverGetVersion(int *v) { *v = 12040; return 999; }\nint nvrtcVersion(int *a, int *b) { return 1; }');
    const nvrtc = build('nvrtc', 'int nvrtcVersion(int *a, int *b) { *a = 13; *b = 1; return 0; }');
    expect(probeDriver(['libtilewright-none.so.1', cuda])).toEqual({ library: cuda, version: '12.4' });
    expect(probeDriver([broken])).toEqual({ library: broken, version: undefined });
    expect(probeDriver([nvrtc])).toEqual({ library: nvrtc, version: undefined });
    expect(probeNvrtc([nvrtc])).toEqual({ library: nvrtc, version: '13.1' });
    expect(probeNvrtc([broken])).toEqual({ library: broken, version: undefined });
  });
});
