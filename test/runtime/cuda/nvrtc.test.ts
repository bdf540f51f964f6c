/** Finding NVRTC, checking its version and calling it, with a stand-in library that needs no CUDA. */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { parsePtxasLog } from '../../../runtime/cuda/cubinCache.js';
import { findNvrtc, nvrtcFolders } from '../../../runtime/cuda/findNvrtc.js';
import { type LaneRequest, openNvrtc, versionProblem } from '../../../runtime/cuda/nvrtc.js';
import { temporaryFolder } from '../kernels.js';
import { hasCc, isolated, makeNvrtc } from './fakeCompilers.js';
import { thorough } from '../../support/thorough.js';

if (!hasCc)
  console.warn('SKIPPED most of test/runtime/cuda/nvrtc.test.ts: no C compiler to build the stand-in library with');

const root = temporaryFolder();
let counter = 0;
const fresh = (): string => {
  const folder = join(root, `${counter++}`);
  mkdirSync(folder);
  return folder;
};

describe('versions', () => {
  it('are usable, too old for the architecture, or too new for the driver', () => {
    expect(versionProblem({ major: 12, minor: 0 }, 'sm_90a', undefined)).toBeUndefined();
    expect(versionProblem({ major: 11, minor: 8 }, 'sm_90a', 13000)).toBe(
      'version 11.8 is too old for sm_90a, which needs 12.0 or later',
    );
    expect(versionProblem({ major: 12, minor: 0 }, 'sm_80', 12040)).toBeUndefined();
    expect(versionProblem({ major: 11, minor: 8 }, 'sm_80', 12040)).toContain('needs 12.0 or later');
    expect(versionProblem({ major: 13, minor: 0 }, 'sm_80', 12080)).toMatch(
      /^version 13\.0 is too new for the GPU driver, which supports CUDA 12\.8:/,
    );
  });

  it('of one major number are compatible, whatever the minor', () => {
    expect(versionProblem({ major: 12, minor: 9 }, 'sm_90a', 12010)).toBeUndefined();
    expect(versionProblem({ major: 12, minor: 9 }, 'sm_90a', 13000)).toBeUndefined();
  });
});

describe("the assembler's report", () => {
  const log = `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k_other' for 'sm_90a'
ptxas info    : Function properties for k_other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 4096 bytes smem
ptxas info    : Compiling entry function 'k_mine' for 'sm_90a'
ptxas info    : Function properties for helper
    99 bytes stack frame, 98 bytes spill stores, 97 bytes spill loads
ptxas info    : Function properties for k_mine
    40 bytes stack frame, 36 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 40 bytes cumulative stack size, 1040 bytes smem, 544 bytes cmem[0]
ptxas info    : Compile time = 20.595 ms`;

  it('is read for the requested kernel', () => {
    expect(parsePtxasLog(log, 'k_mine')).toEqual({
      registers: 168,
      sharedBytes: 1040,
      stackBytes: 40,
      spillStoreBytes: 36,
      spillLoadBytes: 32,
    });
    expect(parsePtxasLog(log, 'k_other')).toEqual({
      registers: 14,
      sharedBytes: 4096,
      stackBytes: 0,
      spillStoreBytes: 0,
      spillLoadBytes: 0,
    });
    expect(parsePtxasLog(log, 'k_absent')).toBeUndefined();
    expect(parsePtxasLog('', 'k_mine')).toBeUndefined();
  });
});

describe.skipIf(!hasCc)('finding NVRTC', () => {
  const found = async (settings: Parameters<typeof findNvrtc>[2], driver?: number): Promise<unknown> => {
    const result = await findNvrtc('sm_90a', driver, settings);
    return 'path' in result ? result.path : result;
  };

  it('looks in LD_LIBRARY_PATH, toolkits and wheels, in that order', async () => {
    const folder = fresh();
    const python = join(folder, 'env', 'bin');
    const wheel = makeNvrtc(
      join(folder, 'env', 'lib', 'python3.12', 'site-packages', 'nvidia', 'cu13', 'lib', 'libnvrtc.so.13'),
    );
    mkdirSync(python, { recursive: true });
    writeFileSync(join(python, 'python3'), '');
    const oldWheel = makeNvrtc(
      join(folder, 'prefix', 'lib', 'python3.9', 'site-packages', 'nvidia', 'cuda_nvrtc', 'lib', 'libnvrtc.so.12'),
      [12, 8],
    );
    const toolkit = makeNvrtc(join(folder, 'cuda-12.10', 'lib64', 'libnvrtc.so.12'), [12, 10]);
    makeNvrtc(join(folder, 'cuda-12.9', 'lib64', 'libnvrtc.so.12'), [12, 9]);
    const listed = makeNvrtc(join(folder, 'listed', 'libnvrtc.so.13.0.88'));
    const all = isolated(folder, {
      libraryPath: `relative::${join(folder, 'absent')}:${dirname(listed)}`,
      cudaToolkits: [join(folder, 'cuda-*')],
      path: python,
      pythonPrefixes: [join(folder, 'prefix')],
    });
    expect(await found(all)).toBe(listed);
    expect(await found({ ...all, libraryPath: '' })).toBe(toolkit);
    expect(await found({ ...all, libraryPath: '', cudaToolkits: [] })).toBe(wheel);
    expect(await found({ ...all, libraryPath: '', cudaToolkits: [], path: '' })).toBe(oldWheel);
    expect(await nvrtcFolders(all)).not.toContain('relative');
  });

  it('finds the wheel of a virtual environment that PATH reaches through links', async () => {
    const folder = fresh();
    const wheel = makeNvrtc(
      join(folder, 'venv', 'lib', 'python3.11', 'site-packages', 'nvidia', 'cu13', 'lib', 'libnvrtc.so.13'),
    );
    mkdirSync(join(folder, 'venv', 'bin'));
    mkdirSync(join(folder, 'shims'));
    symlinkSync(join('..', 'venv', 'bin', 'python3'), join(folder, 'shims', 'python3'));
    symlinkSync('/nonexistent/python3', join(folder, 'venv', 'bin', 'python3'));
    expect(await found(isolated(folder, { path: join(folder, 'shims') }))).toBe(wheel);
  });

  thorough('skips libraries that are too old, too new or broken, and says why', async () => {
    const folder = fresh();
    const old = makeNvrtc(join(folder, 'a', 'libnvrtc.so.11.2'), [11, 8]);
    const young = makeNvrtc(join(folder, 'b', 'libnvrtc.so.14'), [14, 0]);
    const broken = join(folder, 'c', 'libnvrtc.so.13');
    mkdirSync(dirname(broken));
    writeFileSync(broken, 'not a library');
    const silent = makeNvrtc(join(folder, 'd', 'libnvrtc.so.13'), [13, 0], ['-DVERSION_STATUS=11']);
    const good = makeNvrtc(join(folder, 'e', 'libnvrtc.so.12'), [12, 8]);
    const settings = isolated(folder, {
      libraryPath: [old, young, broken, silent, good].map((path) => dirname(path)).join(':'),
    });
    expect(await found(settings, 13000)).toBe(good);
    rmSync(good);
    const problems = (await found(settings, 13000)) as string[];
    expect(problems.slice(0, 4)).toEqual([
      `NVRTC ${old}: version 11.8 is too old for sm_90a, which needs 12.0 or later`,
      expect.stringMatching(/libnvrtc\.so\.14: version 14\.0 is too new for the GPU driver, which supports CUDA 13\.0/),
      expect.stringContaining(broken),
      expect.stringContaining('nvrtcVersion fails: NVRTC_ERROR_SCRIPTED (11)'),
    ]);
  });

  thorough('uses the library or folder that the setting names, or says what is wrong with it', async () => {
    const folder = fresh();
    const path = makeNvrtc(join(folder, 'mine', 'libnvrtc.so.12'), [12, 3]);
    const other = makeNvrtc(join(folder, 'other', 'libnvrtc.so.13'));
    const settings = isolated(folder, { libraryPath: dirname(other) });
    expect(await found({ ...settings, nvrtc: path })).toBe(path);
    expect(await found({ ...settings, nvrtc: dirname(path) })).toBe(path);
    const failure = async (nvrtc: string, driver: number): Promise<UserError> => {
      const error: unknown = await findNvrtc('sm_90a', driver, { ...settings, nvrtc }).catch(
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(UserError);
      return error as UserError;
    };
    expect((await failure(path, 11080)).message).toMatch(
      /^TILEWRIGHT_NVRTC cannot be used: .*too new for the GPU driver, which supports CUDA 11\.8/,
    );
    expect((await failure(join(folder, 'nothing.so'), 13000)).message).toContain(join(folder, 'nothing.so'));
    mkdirSync(join(folder, 'empty'));
    expect((await failure(join(folder, 'empty'), 13000)).message).toContain('there is no libnvrtc.so');
  });
});

describe.skipIf(!hasCc)('calling NVRTC', () => {
  const unit = (name: string, source: string, options: readonly string[] = []): LaneRequest => ({
    name,
    source,
    headers: [],
    options,
  });

  it('compiles with the given options, in another thread, with a stack large enough for a compiler', async () => {
    const nvrtc = openNvrtc(makeNvrtc(join(fresh(), 'libnvrtc.so.13'), [13, 1]));
    expect(nvrtc.version).toEqual({ major: 13, minor: 1 });
    const [place, alone] = [fresh(), fresh()];
    // None ends before another has started. This thread must continue, or the last would wait for it in vain.
    const all = await Promise.all(
      [1, 2, 3, 4].map((i) => nvrtc.compile(unit(`k${i}.cu`, `MEET ${place}\n// ${i}`, ['--a', `--b=${i}`]))),
    );
    const last = nvrtc.compile(unit('last.cu', `MEET ${alone}\n`));
    setTimeout(() => writeFileSync(join(alone, 'here'), ''), 20);
    expect((await last).isCompiled).toBe(true);
    all.forEach((each, i) => {
      if (!each.isCompiled) throw new Error(each.log);
      expect(new TextDecoder().decode(each.cubin.subarray(64))).toBe(`--a\n--b=${i + 1}\nMEET ${place}\n// ${i + 1}`);
      expect(each.log).toContain(`Compiling entry function 'k${i + 1}'`);
    });
  });

  it('hands over headers by the names that they are included by', async () => {
    const nvrtc = openNvrtc(makeNvrtc(join(fresh(), 'libnvrtc.so.13')));
    const headers = [
      { name: 'lib/a.cuh', text: 'first' },
      { name: 'lib/b.cuh', text: 'second' },
    ];
    const compiled = await nvrtc.compile({ ...unit('k.cu', '#include "lib/b.cuh"\n'), headers });
    if (!compiled.isCompiled) throw new Error(compiled.log);
    expect(new TextDecoder().decode(compiled.cubin.subarray(64))).toBe(
      '[lib/a.cuh]\nfirst\n[lib/b.cuh]\nsecond\n#include "lib/b.cuh"\n',
    );
  });

  it('returns the log of a text that does not compile, and the message of any other status', async () => {
    const nvrtc = openNvrtc(makeNvrtc(join(fresh(), 'libnvrtc.so.13')));
    expect(await nvrtc.compile(unit('k.cu', 'FAIL'))).toEqual({
      isCompiled: false,
      log: expect.stringContaining('k.cu(2): error: identifier'),
    });
    expect(await nvrtc.compile(unit('k.cu', 'REFUSE'))).toEqual({
      isCompiled: false,
      log: expect.stringContaining('NVRTC_ERROR_INVALID_OPTION (5)'),
    });
  });

  it('trusts no size', async () => {
    const nvrtc = openNvrtc(makeNvrtc(join(fresh(), 'libnvrtc.so.13')));
    await expect(nvrtc.compile(unit('k.cu', 'VAST'))).rejects.toThrow('nvrtcGetCUBINSize gives 1099511627776 bytes');
  });
});
