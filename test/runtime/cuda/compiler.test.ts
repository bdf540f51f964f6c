/** Compiling kernels to cubins: choosing a compiler, the cache, damage, errors with their lines. */
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import {
  compileCubins,
  CubinSession,
  findCudaCompiler,
  type CubinResult,
  type CudaUnit,
} from '../../../runtime/cuda/compiler.js';
import { sha256 } from '../../../runtime/cuda/cubinCache.js';
import { temporaryFolder, type CachedSettings } from '../kernels.js';
import { hasCc, hasSystemNvrtc, isolated, makeNvcc, makeNvrtc } from './fakeCompilers.js';
import { casesHere, thorough } from '../../support/thorough.js';

const BUILT = fileURLToPath(new URL('../../../dist/runtime/cuda/compiler.js', import.meta.url));
const BUILT_NVRTC = fileURLToPath(new URL('../../../dist/runtime/cuda/nvrtc.js', import.meta.url));
if (!hasCc)
  console.warn('SKIPPED most of test/runtime/cuda/compiler.test.ts: no C compiler to build the stand-in NVRTC with');
if (!existsSync(BUILT))
  console.warn('SKIPPED the processes of test/runtime/cuda/compiler.test.ts: dist/ is missing; run npm run build');

const root = temporaryFolder();
let counter = 0;
const fresh = (): string => {
  const folder = join(root, `${counter++}`);
  mkdirSync(folder);
  return folder;
};

async function failure(promise: Promise<unknown>): Promise<UserError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(UserError);
  return error as UserError;
}

const library = hasCc ? makeNvrtc(join(root, 'lib', 'libnvrtc.so.13')) : '';
const withNvrtc = (): CachedSettings => isolated(fresh(), { nvrtc: library });
const unit = (symbol: string, source = `extern "C" __global__ void ${symbol}() {}`): CudaUnit => ({ symbol, source });
const textOf = ({ cubins }: CubinResult, symbol: string): string =>
  new TextDecoder().decode(cubins.get(symbol)?.subarray(64));
const entries = ({ cacheDir }: CachedSettings): string[] =>
  readdirSync(join(cacheDir, 'cubins')).map((name) => join(cacheDir, 'cubins', name));

describe('choosing a compiler', () => {
  it.skipIf(hasSystemNvrtc())('names what to install if there is none', async () => {
    const error = await failure(compileCubins([unit('k_a')], { arch: 'sm_90a', settings: isolated(fresh()) }));
    expect(error.message).toBe('There is no CUDA compiler: neither NVRTC (libnvrtc.so) nor nvcc was found.');
    expect(error.hint).toMatch(/pip install nvidia-cuda-nvrtc.*TILEWRIGHT_NVRTC=.*TILEWRIGHT_NVCC=/);
  });

  it.skipIf(!hasCc || hasSystemNvrtc())('says in one line what is wrong with the installed ones', async () => {
    const folder = fresh();
    const settings = isolated(folder, {
      libraryPath: dirname(makeNvrtc(join(folder, 'libnvrtc.so.11'), [11, 8])),
      path: dirname(makeNvcc(join(folder, 'bin', 'nvcc'), '14.0')),
    });
    const error = await failure(findCudaCompiler('sm_90a', 13000, settings));
    expect(error.message).toMatch(
      new RegExp(
        '^No CUDA compiler can be used for sm_90a: ' +
          'NVRTC .*11\\.8 is too old for sm_90a, which needs 12\\.0 or later; ' +
          'nvcc .*14\\.0 is too new for the GPU driver, .*\\.$',
      ),
    );
    expect(error.message).not.toContain('\n');
  });

  it.skipIf(!hasCc)('prefers NVRTC to nvcc, unless nvcc is requested', async () => {
    const folder = fresh();
    const nvcc = makeNvcc(join(folder, 'bin', 'nvcc'), '12.4');
    const settings = isolated(folder, { libraryPath: dirname(library), path: dirname(nvcc) });
    expect(await findCudaCompiler('sm_90a', 13000, settings)).toMatchObject({
      kind: 'nvrtc',
      path: library,
      version: { major: 13, minor: 0 },
    });
    expect(await findCudaCompiler('sm_90a', 12020, settings)).toMatchObject({
      kind: 'nvcc',
      path: nvcc,
      version: { major: 12, minor: 4 },
    });
    expect(await findCudaCompiler('sm_90a', 13000, { ...settings, nvcc })).toMatchObject({ kind: 'nvcc', path: nvcc });
    expect(
      (await failure(findCudaCompiler('sm_90a', 13000, { ...settings, nvcc: join(folder, 'no') }))).message,
    ).toContain('no is not an executable program');
  });
});

describe.skipIf(!hasCc)('a library that was loaded before', () => {
  const kept = ({ cacheDir }: CachedSettings): string => join(cacheDir, 'nvrtc.json');
  /** As another process would find it: what this one remembers is by settings. */
  const find = (settings: CachedSettings) =>
    findCudaCompiler('sm_90a', undefined, { ...settings, cudaToolkits: [join(fresh(), 'none')] });

  it('is not loaded again, as long as it is the same file', async () => {
    const settings = isolated(fresh(), { nvrtc: makeNvrtc(join(fresh(), 'libnvrtc.so.13')) });
    mkdirSync(settings.cacheDir);
    expect(await find(settings)).toMatchObject({ version: { major: 13, minor: 0 } });
    const entries = JSON.parse(readFileSync(kept(settings), 'utf8')) as { major: number; minor: number }[];
    expect(entries).toMatchObject([{ path: settings.nvrtc, major: 13, minor: 0 }]);
    // Had it been loaded, it would be 13.0.
    writeFileSync(kept(settings), JSON.stringify(entries.map((entry) => ({ ...entry, minor: 7 }))));
    expect(await find(settings)).toMatchObject({ version: { major: 13, minor: 7 } });
    const later = new Date(Date.now() + 5000);
    utimesSync(settings.nvrtc!, later, later);
    expect(await find(settings)).toMatchObject({ version: { major: 13, minor: 0 } });
  });

  it.each([
    ['damaged', '[{"path":'],
    ['of another form', '{"__proto__":{"major":14}}'],
    ['longer than it can be', ' '.repeat(1 << 17)],
  ])('is loaded where what was kept is %s', async (_, text) => {
    const settings = isolated(fresh(), { nvrtc: library });
    mkdirSync(settings.cacheDir, { recursive: true });
    writeFileSync(kept(settings), text, { mode: 0o600 });
    expect(await find(settings)).toMatchObject({ version: { major: 13, minor: 0 } });
  });

  it('is loaded where others may write what was kept', async () => {
    const settings = isolated(fresh(), { nvrtc: library });
    mkdirSync(settings.cacheDir);
    await find(settings);
    const entries = readFileSync(kept(settings), 'utf8').replace('"minor":0', '"minor":7');
    writeFileSync(kept(settings), entries);
    chmodSync(kept(settings), 0o666);
    expect(await find(settings)).toMatchObject({ version: { major: 13, minor: 0 } });
  });
});

describe.skipIf(!hasCc)('kernels that somebody waits for', () => {
  thorough('are compiled in the order of their ranks, and what is preferred comes next', async () => {
    const settings = withNvrtc();
    const order: string[] = [];
    const names = Array.from({ length: 40 }, (_, i) => `k_${String(i).padStart(2, '0')}`);
    const session = await CubinSession.open(
      names.map((name) => unit(name)),
      {
        arch: 'sm_90a',
        settings,
        rankOf: (symbol) => (symbol === 'k_33' ? -1 : Number(symbol.slice(2))),
        onProgress: ({ symbol }) => order.push(symbol),
      },
    );
    session.prefer(['k_38', 'k_39']);
    // All of them: the lane of one that is not awaited may start its process while another compiles what is left.
    for (const symbol of ['k_39', 'k_33', 'k_38']) await session.get(symbol);
    // What nobody waits for is left until nobody waits any more.
    expect(session.compiled).toBeLessThanOrEqual(4);
    session.lower();
    await session.done;
    const place = (symbol: string): number => order.indexOf(symbol);
    for (const first of ['k_33', 'k_38', 'k_39']) expect(place(first)).toBeLessThan(place('k_37'));
    expect(session.compiled).toBe(40);
    expect(session.known('k_05')).toHaveLength(
      textOf(await compileCubins([unit('k_05')], { arch: 'sm_90a', settings }), 'k_05').length + 64,
    );
  });

  it('are there at once where they are cached, and absent ones are named', async () => {
    const settings = withNvrtc();
    const { cubins } = await compileCubins([unit('k_a')], { arch: 'sm_90a', settings });
    const session = await CubinSession.open([unit('k_a'), unit('k_b')], { arch: 'sm_90a', settings });
    expect(session.known('k_a')).toEqual(cubins.get('k_a'));
    expect(session.known('k_b')).toBeUndefined();
    await expect(session.get('k_c')).rejects.toThrow('no machine code of k_c');
    await session.get('k_b');
    await session.done;
    expect(session.compiled).toBe(1);
  });

  thorough('reject with the text of the one that does not compile, and so do those after it', async () => {
    const settings = withNvrtc();
    const bad = unit('k_bad', 'FAIL extern "C" __global__ void k_bad() {}');
    const session = await CubinSession.open([bad], { arch: 'sm_90a', settings });
    await expect(session.get('k_bad')).rejects.toThrow(/does not compile the generated k_bad/);
    await expect(session.done).rejects.toThrow(UserError);
  });

  it('reject when it is stopped, and leave no claim', async () => {
    const settings = withNvrtc();
    const units = Array.from({ length: 30 }, (_, i) => unit(`k_${i}`));
    const session = await CubinSession.open(units, { arch: 'sm_90a', settings });
    const refused = expect(Promise.all(units.map(({ symbol }) => session.get(symbol)))).rejects.toThrow('stopped');
    await session.stop();
    await refused;
    expect(readdirSync(join(settings.cacheDir, 'cubins')).filter((name) => name.startsWith('.'))).toEqual([]);
  });
});

describe.skipIf(!hasCc)('compiling with a stand-in NVRTC', () => {
  it('finds a kernel by the digest of its source, which it then does not read', async () => {
    const settings = withNvrtc();
    const { source } = unit('k_a');
    const first = await compileCubins([unit('k_a')], { arch: 'sm_90a', settings });
    const digest = sha256(source);
    const unread: CudaUnit = {
      symbol: 'k_a',
      digest,
      get source(): string {
        throw new Error('printed');
      },
    };
    const second = await compileCubins([unread], { arch: 'sm_90a', settings });
    expect(second).toMatchObject({ isCached: true, cubins: first.cubins });
    await expect(compileCubins([unread], { arch: 'sm_80', settings })).rejects.toThrow('printed');
  });

  it('passes the architecture and reads the resources of the kernel', async () => {
    const settings = withNvrtc();
    const progress: string[] = [];
    const result = await compileCubins([unit('k_a'), unit('k_b')], {
      arch: 'sm_90a',
      settings,
      onProgress: ({ done, total, symbol }) => progress.push(`${done}/${total} ${symbol}`),
    });
    expect(result).toMatchObject({ isCached: false, compiler: `NVRTC 13.0 (${library})` });
    expect(textOf(result, 'k_b').split('\n').slice(0, -1)).toEqual([
      '--gpu-architecture=sm_90a',
      '--device-as-default-execution-space',
      '--std=c++20',
      '--ptxas-options=-v',
    ]);
    expect(result.resources.get('k_a')).toEqual({
      registers: 168,
      sharedBytes: 2048,
      stackBytes: 16,
      spillStoreBytes: 8,
      spillLoadBytes: 4,
    });
    expect(progress.map((each) => each.slice(0, 3))).toEqual(['1/2', '2/2']);
  });

  it('compiles a kernel once, and again if anything that affects it differs', async () => {
    const settings = withNvrtc();
    const all = { arch: 'sm_90a', settings } as const;
    const first = await compileCubins([unit('k_a')], all);
    const again = await compileCubins([unit('k_a')], all);
    expect(again).toMatchObject({ isCached: true, cubins: first.cubins, resources: first.resources });
    // One kernel more: only that one.
    expect((await compileCubins([unit('k_a'), unit('k_b')], all)).isCached).toBe(false);
    expect(entries(settings)).toHaveLength(2);
    const other = makeNvrtc(join(fresh(), 'libnvrtc.so.13'), [13, 1]);
    for (const [units, options] of [
      [[unit('k_a', 'other text')], all],
      [[unit('k_a')], { ...all, arch: 'sm_80' }],
      [[unit('k_a')], { ...all, settings: { ...settings, nvrtc: other } }],
    ] as const)
      expect((await compileCubins(units, options)).isCached).toBe(false);
    expect(entries(settings)).toHaveLength(5);
  });

  thorough('compiles again if an entry is truncated, altered, incomplete or not a file', async () => {
    const flip = (path: string, at: number): void => {
      const data = readFileSync(path);
      data[at] = (data[at] ?? 0) ^ 1;
      writeFileSync(path, data);
    };
    const damage: ((path: string) => void)[] = [
      (path) => truncateSync(path, 150),
      (path) => truncateSync(path, 0),
      (path) => truncateSync(path, 30),
      (path) => flip(path, readFileSync(path).length - 1),
      (path) => flip(path, 20),
      (path) => writeFileSync(path, `{"sha256":"${'0'.repeat(64)}","resources":{"registers":-1}}\n`),
      (path) => {
        rmSync(path);
        mkdirSync(join(path, 'inside'), { recursive: true });
      },
    ];
    const settings = withNvrtc();
    const options = { arch: 'sm_90a', settings } as const;
    const good = await compileCubins([unit('k_a')], options);
    for (const spoil of casesHere(damage, 0, 3, 6)) {
      const [path = ''] = entries(settings);
      spoil(path);
      const result = await compileCubins([unit('k_a')], options);
      expect(result.isCached, spoil.toString()).toBe(false);
      expect(result.cubins).toEqual(good.cubins);
      expect((await compileCubins([unit('k_a')], options)).isCached).toBe(true);
      expect(entries(settings)).toHaveLength(1);
    }
  });

  thorough('tolerates other writers, removes only what is a day old, and says where it cannot write', async () => {
    const settings = withNvrtc();
    const results = await Promise.all([1, 2, 3].map(() => compileCubins([unit('k_a')], { arch: 'sm_90a', settings })));
    expect(new Set(results.map((result) => textOf(result, 'k_a'))).size).toBe(1);
    const [old, young] = ['.tmp-old', '.tmp-young'].map((name) => join(settings.cacheDir, 'cubins', name)) as [
      string,
      string,
    ];
    writeFileSync(old, '');
    writeFileSync(young, '');
    utimesSync(old, 1, 1);
    await compileCubins([unit('k_b')], { arch: 'sm_90a', settings });
    expect([existsSync(old), existsSync(young)]).toEqual([false, true]);
    const blocked = join(fresh(), 'file');
    writeFileSync(blocked, '');
    const error = await failure(
      compileCubins([unit('k_a')], { arch: 'sm_90a', settings: { ...settings, cacheDir: blocked } }),
    );
    expect(error.message).toContain('cannot be used');
    expect(error.hint).toContain('TILEWRIGHT_CACHE');
  });

  it('shows the generated lines that do not compile', async () => {
    const settings = withNvrtc();
    const error = await failure(
      compileCubins([unit('k_bad', 'first line\nsecond line, which has to FAIL\nthird line')], {
        arch: 'sm_90a',
        settings,
      }),
    );
    expect(error.message).toBe(
      `NVRTC 13.0 (${library}) does not compile the generated k_bad.cu:\n` +
        ('k_bad.cu:2: error: identifier "undeclared" is undefined\n      1 | first line\n>     2 | ' +
          'second line, which has to FAIL\n      3 | third line'),
    );
    expect((await failure(compileCubins([unit('k_bad', 'REFUSE')], { arch: 'sm_90a', settings }))).message).toContain(
      'NVRTC_ERROR_INVALID_OPTION',
    );
  });

  it('shows the lines of a header that do not compile', async () => {
    const bad = {
      ...unit('k_bad', '#include "lib/bad.cuh"\n'),
      headers: [
        { name: 'lib/good.cuh', text: '/* fine */\n' },
        { name: 'lib/bad.cuh', text: 'int x = WRONG;\nint y;\n' },
      ],
    };
    expect((await failure(compileCubins([bad], { arch: 'sm_90a', settings: withNvrtc() }))).message).toContain(
      'does not compile the generated k_bad.cu:\n' +
        'lib/bad.cuh:1: error: identifier "wrong" is undefined\n>     1 | int x = WRONG;\n      2 | int y;',
    );
  });

  thorough('compiles anew where only a header has changed', async () => {
    const settings = withNvrtc();
    const of = (text: string): CudaUnit => ({ ...unit('k_a'), headers: [{ name: 'lib/a.cuh', text }] });
    const compile = (each: CudaUnit) => compileCubins([each], { arch: 'sm_90a', settings });
    expect(textOf(await compile(of('first')), 'k_a')).toContain('[lib/a.cuh]\nfirst\n');
    expect((await compile(of('first'))).isCached).toBe(true);
    const changed = await compile(of('second'));
    expect(changed.isCached).toBe(false);
    expect(textOf(changed, 'k_a')).toContain('[lib/a.cuh]\nsecond\n');
  });

  thorough('continues past kernels that do not compile if keepsGoing is set', async () => {
    const settings = withNvrtc();
    const units = [unit('k_a'), unit('k_bad', 'FAIL'), unit('k_c')];
    const result = await compileCubins(units, { arch: 'sm_90a', settings, keepsGoing: true });
    expect([[...result.cubins.keys()].sort(), [...result.failures.keys()]]).toEqual([['k_a', 'k_c'], ['k_bad']]);
    expect(entries(settings)).toHaveLength(2);
  });

  it('stores nothing that is not machine code', async () => {
    const settings = withNvrtc();
    await expect(compileCubins([unit('k_a', 'JUNK')], { arch: 'sm_90a', settings })).rejects.toThrow(
      'that are no cubin',
    );
    expect(entries(settings)).toEqual([]);
  });

  it('refuses invalid symbols and duplicates', async () => {
    const settings = withNvrtc();
    for (const units of [[unit('../k')], [unit('k'), unit('k')], [unit('')]]) {
      await expect(compileCubins(units, { arch: 'sm_90a', settings })).rejects.toThrow('Bad or repeated');
    }
  });
});

describe.skipIf(!hasCc || !existsSync(BUILT))('the compiler processes of the built package', () => {
  /** Compiles in a Node of its own, from dist/: symbol to source in, what happened out. */
  const compile = (
    sources: Readonly<Record<string, string>>,
  ): { failures: Record<string, string>; cubins: string[] } => {
    const script = `
      const { compileCubins } = await import(${JSON.stringify(BUILT)});
      const units = Object.entries(${JSON.stringify(sources)}).map(([symbol, source]) => ({ symbol, source }));
      const options = { arch: 'sm_90a', driverVersion: 13000, keepsGoing: true };
      const { failures, cubins } = await compileCubins(units, options);
      const messages = Object.fromEntries([...failures].map(([symbol, { message }]) => [symbol, message]));
      console.log(JSON.stringify({ failures: messages, cubins: [...cubins.keys()].sort() }));`;
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
      env: { PATH: '/usr/bin:/bin', TILEWRIGHT_NVRTC: library, TILEWRIGHT_CACHE: fresh() },
    });
    expect(run.stderr).toBe('');
    return JSON.parse(run.stdout) as ReturnType<typeof compile>;
  };

  it.skipIf(availableParallelism() < 2)('work in parallel: two of them meet', () => {
    const place = fresh();
    const { cubins, failures } = compile({
      k_a: `MEET ${place}\n`,
      k_b: `MEET ${place}\n//`,
      k_c: 'plain',
      k_d: 'FAIL',
    });
    expect([cubins, Object.keys(failures)]).toEqual([['k_a', 'k_b', 'k_c'], ['k_d']]);
    expect(readdirSync(place)).toHaveLength(2);
  });

  thorough('are sent each header once, and again where it has another text', () => {
    const place = fresh();
    const script = `
      const { openLane } = await import(${JSON.stringify(BUILT_NVRTC)});
      const lane = openLane(${JSON.stringify(library)});
      const made = [];
      for (const [a, b] of [['1', '2'], ['1', '2'], ['3', '2']]) {
        const headers = [{ name: 'lib/a.cuh', text: a }, { name: 'lib/b.cuh', text: b }];
        const { cubin } = await lane.compile({ name: 'k.cu', source: 'text', headers, options: [] });
        made.push(Buffer.from(cubin.subarray(64)).toString());
      }
      lane.close();
      console.log(JSON.stringify(made));`;
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8', cwd: place });
    expect(run.stderr).toBe('');
    const text = (a: string): string => `[lib/a.cuh]\n${a}\n[lib/b.cuh]\n2\ntext`;
    expect(JSON.parse(run.stdout)).toEqual([text('1'), text('1'), text('3')]);
  });

  thorough('may crash: that kernel fails with its name and last output, and the others are compiled', () => {
    const { cubins, failures } = compile({
      k_a: 'CRASH and some more text',
      k_b: 'plain',
      k_c: 'also plain',
      k_d: 'CRASH',
    });
    expect(cubins).toEqual(['k_b', 'k_c']);
    expect(failures['k_a']).toMatch(
      /^NVRTC \(.*libnvrtc\.so\.13\) was killed by SIGABRT while it compiled the generated k_a\.cu\.\nscripted crash$/,
    );
    expect(Object.keys(failures).sort()).toEqual(['k_a', 'k_d']);
  });

  thorough('survive Ctrl-C in their group, but not their parent', async () => {
    const place = fresh();
    const script = `
      const { compileCubins } = await import(${JSON.stringify(BUILT)});
      await compileCubins([{ symbol: 'k_a', source: ${JSON.stringify(`MEET ${place}\n`)} }], { arch: 'sm_90a' });`;
    const parent = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: 'ignore',
      env: { PATH: '/usr/bin:/bin', TILEWRIGHT_NVRTC: library, TILEWRIGHT_CACHE: fresh() },
    });
    const isAlive = (pid: number): boolean => {
      try {
        // A zombie that nobody has waited for yet is gone too.
        return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
      } catch {
        return false;
      }
    };
    const hasPending = (pid: number, signal: number): boolean =>
      [...readFileSync(`/proc/${pid}/status`, 'utf8').matchAll(/^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)/gm)].some(
        ([, mask]) => (BigInt(`0x${mask!}`) & (1n << BigInt(signal - 1))) !== 0n,
      );
    try {
      await expect.poll(() => readdirSync(place)).not.toEqual([]);
      const child = Number.parseInt(readdirSync(place)[0]!);
      process.kill(child, 'SIGINT');
      // It was given the signal, and lives.
      await expect.poll(() => hasPending(child, 2)).toBe(false);
      expect(isAlive(child)).toBe(true);
      parent.kill('SIGKILL');
      await expect.poll(() => isAlive(child)).toBe(false);
    } finally {
      parent.kill('SIGKILL');
    }
  });
});
