/** Compiling generated C: the cache, damaged entries, errors with their lines, missing and broken compilers. */
import {
  chmodSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  mkdirSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadAddon } from '../../runtime/addon.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { findCompiler } from '../../runtime/cpu/systemCompiler.js';
import { UserError } from '../../errors.js';
import { readSettings } from '../../settings.js';
import { settingsIn, temporaryFolder } from './kernels.js';
import { casesHere, thorough } from '../support/thorough.js';

let counter = 0;
const root = temporaryFolder();
const freshCache = (): string => join(root, `cache${counter++}`);
const source = (value: number, name = 'a.c') => [
  { name, text: `#include <math.h>\nint tw_value_${name[0]!}(void) { return (int)sqrt(${value * value}); }\n` },
];
const hasSymbol = (path: string, symbol: string): boolean => new (loadAddon().Library)(path).has(symbol);

async function failure(promise: Promise<unknown>): Promise<UserError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(UserError);
  return error as UserError;
}

describe('the cache of compiled kernels', () => {
  it('compiles once, then finds it', async () => {
    const settings = settingsIn(freshCache());
    const first = await compileShared(source(1), { isa: 'portable', settings });
    expect(first.cached).toBe(false);
    expect(hasSymbol(first.path, 'tw_value_a')).toBe(true);
    const second = await compileShared(source(1), { isa: 'portable', settings });
    expect(second).toMatchObject({ cached: true, path: first.path });
  });

  thorough('has another entry for another text, name, instruction set or flag', async () => {
    const settings = settingsIn(freshCache());
    const paths = new Set<string>();
    for (const [text, options] of [
      [source(1), { isa: 'portable' }],
      [source(2), { isa: 'portable' }],
      [source(1, 'b.c'), { isa: 'portable' }],
      [source(1), { isa: 'avx2' }],
      [source(1), { isa: 'portable', extraFlags: ['-DX=1'] }],
    ] as const)
      paths.add((await compileShared(text, { ...options, settings })).path);
    expect(paths.size).toBe(5);
  });

  it('compiles several units into one library', async () => {
    const { path } = await compileShared([...source(1, 'a.c'), ...source(2, 'b.c'), ...source(3, 'c.c')], {
      isa: 'avx512',
      settings: settingsIn(freshCache()),
    });
    expect(['a', 'b', 'c'].map((name) => hasSymbol(path, `tw_value_${name}`))).toEqual([true, true, true]);
    expect(readdirSync(dirname(path)).sort()).toEqual(['a.c', 'b.c', 'c.c', 'kernels.sha256', 'kernels.so']);
  });

  it('compiles again if an entry is truncated, altered or incomplete', async () => {
    const damage: ((entry: string) => void)[] = [
      (entry) => truncateSync(join(entry, 'kernels.so'), 100),
      (entry) =>
        writeFileSync(
          join(entry, 'kernels.so'),
          Buffer.from(readFileSync(join(entry, 'kernels.so'))).fill(1, 4000, 4001),
        ),
      (entry) => rmSync(join(entry, 'kernels.sha256')),
      (entry) => rmSync(join(entry, 'kernels.so')),
      (entry) => {
        rmSync(entry, { recursive: true });
        writeFileSync(entry, 'a file where a folder should be');
      },
    ];
    for (const spoil of casesHere(damage, 0, 1, 4)) {
      const settings = settingsIn(freshCache());
      const { path } = await compileShared(source(1), { isa: 'portable', settings });
      spoil(dirname(path));
      const again = await compileShared(source(1), { isa: 'portable', settings });
      expect(again.cached).toBe(false);
      expect(hasSymbol(again.path, 'tw_value_a')).toBe(true);
      expect((await compileShared(source(1), { isa: 'portable', settings })).cached).toBe(true);
    }
  });

  it('lets several writers make the same entry at once, and leaves nothing behind', async () => {
    const cache = freshCache();
    mkdirSync(join(cache, 'x'), { recursive: true });
    // Different spellings of the folder bypass the sharing within a process, as other processes would.
    const spellings = [cache, `${cache}/.`, `${cache}/x/..`, `${cache}//`];
    const all = await Promise.all(
      spellings.map((spelling) => compileShared(source(5), { isa: 'portable', settings: settingsIn(spelling) })),
    );
    expect(new Set(all.map(({ path }) => path)).size).toBe(1);
    expect(hasSymbol(all[0]!.path, 'tw_value_a')).toBe(true);
    expect(readdirSync(join(cache, 'kernels')).filter((name) => name.startsWith('.'))).toEqual([]);
  });

  it('removes what a killed process left a day ago, not what another process is writing now', async () => {
    const cache = freshCache();
    for (const name of ['.tmp-old', '.tmp-new']) mkdirSync(join(cache, 'kernels', name), { recursive: true });
    utimesSync(join(cache, 'kernels', '.tmp-old'), 1e9, 1e9);
    await compileShared(source(1), { isa: 'portable', settings: settingsIn(cache) });
    expect(existsSync(join(cache, 'kernels', '.tmp-old'))).toBe(false);
    expect(existsSync(join(cache, 'kernels', '.tmp-new'))).toBe(true);
  });

  it('names a folder that cannot be used, and how to choose another', async () => {
    const file = join(root, 'file');
    writeFileSync(file, '');
    const error = await failure(
      compileShared(source(1), { isa: 'portable', settings: settingsIn(join(file, 'cache')) }),
    );
    expect(error.message).toContain(join(file, 'cache', 'kernels'));
    expect(error.hint).toContain('TILEWRIGHT_CACHE=');
  });

  it('keeps source names inside the folder', async () => {
    for (const name of ['../a.c', 'a/b.c', '-o.c', 'a.c;', 'a.h', '']) {
      await expect(
        compileShared([{ name, text: '' }], { isa: 'portable', settings: settingsIn(freshCache()) }),
      ).rejects.toThrow(/source name/);
    }
  });

  it('gives units their headers, which are part of their names, and keeps them inside the folder', async () => {
    const settings = settingsIn(freshCache());
    const withHeader = (value: number, name = 'lib/inner.h') => [
      {
        name: 'a.c',
        text: '#include "lib/outer.h"\nint tw_value_a(void) { return VALUE; }\n',
        headers: [
          { name, text: `#define VALUE ${value}\n` },
          { name: 'lib/outer.h', text: '#include "lib/inner.h"\n' },
        ],
      },
    ];
    const { path } = await compileShared(withHeader(1), { isa: 'portable', settings });
    expect(readFileSync(join(dirname(path), 'lib', 'inner.h'), 'utf8')).toBe('#define VALUE 1\n');
    expect((await compileShared(withHeader(2), { isa: 'portable', settings })).path).not.toBe(path);
    expect(await compileShared(withHeader(1), { isa: 'portable', settings })).toMatchObject({ path, cached: true });
    for (const name of ['../inner.h', '/lib/inner.h', 'lib/../inner.h', 'inner.h', 'lib/inner.sh', 'lib/.h'])
      await expect(compileShared(withHeader(3, name), { isa: 'portable', settings })).rejects.toThrow(/header name/);
  });
});

describe('errors of the compiler', () => {
  it('shows the lines of a header that do not compile', async () => {
    const error = await failure(
      compileShared(
        [
          {
            name: 'a.c',
            text: '#include "lib/bad.h"\n',
            headers: [{ name: 'lib/bad.h', text: 'int first;\nint broken = ;\n' }],
          },
        ],
        { isa: 'portable', settings: settingsIn(freshCache()) },
      ),
    );
    expect(error.message).toContain('lib/bad.h:2:');
    expect(error.message).toContain('>     2 | int broken = ;');
  });

  it('shows the generated lines that do not compile', async () => {
    const cache = freshCache();
    const text = 'int first;\nint second;\nint broken = ;\nint fourth;\nint fifth;\nint alsoBroken = +;\n';
    const error = await failure(
      compileShared([...source(1, 'good.c'), { name: 'bad.c', text }], {
        isa: 'portable',
        settings: settingsIn(cache),
      }),
    );
    expect(error.message).toContain('bad.c:3:');
    expect(error.message).toContain('>     3 | int broken = ;');
    expect(error.message).toContain('      2 | int second;');
    expect(error.message).toContain('>     6 | int alsoBroken = +;');
    expect(error.hint).toContain('TILEWRIGHT_CC=');
    expect(readdirSync(join(cache, 'kernels'))).toEqual([]);
  });

  it('names what to install if there is no compiler', async () => {
    const empty = join(root, 'empty');
    mkdirSync(empty, { recursive: true });
    const error = await failure(findCompiler({ ...readSettings(), cc: undefined, path: empty }));
    expect(error.message).toContain('No working C compiler');
    expect(error.hint).toContain('apt install gcc');
    expect(error.hint).toContain('TILEWRIGHT_CC=');
  });

  it('does not fall back from a compiler that was requested', async () => {
    const error = await failure(findCompiler({ ...readSettings(), cc: '/nonexistent/cc' }));
    expect(error.message).toContain('/nonexistent/cc: not found');
  });

  it('tests a compiler before using it, and falls back to the next', async () => {
    const folder = join(root, 'half');
    mkdirSync(folder, { recursive: true });
    writeFileSync(
      join(folder, 'cc'),
      '#!/bin/sh\n[ "$1" = --version ] && echo half 1.0 && exit 0\necho "cannot find -lc" >&2\nexit 1\n',
    );
    chmodSync(join(folder, 'cc'), 0o755);
    const error = await failure(findCompiler({ ...readSettings(), cc: undefined, path: folder }));
    expect(error.message).toContain('it cannot compile three lines of C: cannot find -lc');
    const found = await findCompiler({ ...readSettings(), cc: undefined, path: `${folder}:${readSettings().path}` });
    expect(found.path).not.toContain(folder);
  });
});
