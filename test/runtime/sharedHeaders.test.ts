/** Headers that are compiled once for a build: the same machine code, and the text where a compiler refuses. */
import { chmodSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { commonHeaders, LEAST_UNITS } from '../../runtime/cpu/sharedHeaders.js';
import { settingsIn, temporaryFolder } from './kernels.js';
import { thorough } from '../support/thorough.js';

const folder = temporaryFolder();
/** Units that name a header where it is not read. */
const units = (count: number, { unread = 'string.h', body = 'sqrt(x)' } = {}) =>
  Array.from({ length: count }, (_, i) => ({
    name: `u${i}.c`,
    text:
      `#include <stdint.h>\n#include <math.h>\n#if 0\n#include <${unread}>\n#endif\n` +
      `double tw_u${i}(double x) { return ${body} + ${i}; }\n`,
  }));

/** Compiles with cc behind a script that may act otherwise first. Returns the library's bytes and all command lines. */
async function compiled(name: string, first: string, sources = units(LEAST_UNITS)) {
  const log = join(folder, `${name}.log`);
  const cc = join(folder, name);
  writeFileSync(cc, `#!/bin/sh\necho "$*" >> ${log}\n${first}\nexec cc "$@"\n`);
  chmodSync(cc, 0o755);
  const settings = settingsIn(join(folder, `${name}.cache`), { cc });
  const { path } = await compileShared(sources, { isa: 'portable', settings });
  const lines = readFileSync(log, 'utf8').trim().split('\n');
  const compiling = lines.filter((line) => line.includes(' -c u'));
  return {
    bytes: readFileSync(path).toString('base64'),
    files: readdirSync(dirname(path)),
    precompiled: lines.filter((line) => line.includes('-x c-header')).length,
    units: compiling.length,
    sharing: compiling.filter((line) => line.includes('-include headers.h')).length,
  };
}

describe('headers of generated C', () => {
  it('are those that all units include, in order', () => {
    const text = (...names: string[]) => ({ name: 'a.c', text: names.map((name) => `#include <${name}>\n`).join('') });
    const all = [text('b.h', 'a.h', 'c.h', 'a.h'), text('c.h', 'a.h', 'd.h'), text('x/y.h', 'a.h', 'c.h')];
    expect(commonHeaders(all)).toEqual(['a.h', 'c.h']);
    expect(commonHeaders([])).toEqual([]);
  });

  it('are compiled once, for the same machine code, and leave nothing behind', async () => {
    const shared = await compiled('shared', '');
    const refused = await compiled('refused', 'case "$*" in *c-header*) exit 1 ;; esac');
    expect(shared).toMatchObject({ precompiled: 1, units: LEAST_UNITS, sharing: LEAST_UNITS });
    expect(refused).toMatchObject({ precompiled: 1, units: LEAST_UNITS, sharing: 0 });
    expect(shared.bytes).toBe(refused.bytes);
    const names = [...units(LEAST_UNITS).map(({ name }) => name), 'kernels.sha256', 'kernels.so'].sort();
    for (const { files } of [shared, refused]) expect(files.sort()).toEqual(names);
  });

  it('are read as text where they cannot be compiled', async () => {
    const all = units(LEAST_UNITS, { unread: 'nowhere.h' });
    expect(await compiled('missing', '', all)).toMatchObject({ precompiled: 1, units: LEAST_UNITS, sharing: 0 });
  });

  thorough('are read as text where what was compiled is of no use', async () => {
    const damaged = await compiled('damaged', 'case "$*" in *c-header*) echo no > headers.h.gch; exit 0 ;; esac');
    expect(damaged).toMatchObject({ precompiled: 1, units: LEAST_UNITS, sharing: 0 });
    // Units that cannot be compiled with them are compiled once more without.
    const failing = await compiled('failing', 'case "$*" in *-include*-c*) exit 1 ;; esac');
    expect(failing).toMatchObject({ units: 2 * LEAST_UNITS, sharing: LEAST_UNITS });
    expect(failing.bytes).toBe(damaged.bytes);
  });

  it('are not worth it for a few units', async () => {
    expect(await compiled('few', '', units(LEAST_UNITS - 1))).toMatchObject({ precompiled: 0, sharing: 0 });
  });

  thorough('do not hide what is wrong with a unit', async () => {
    const wrong = units(LEAST_UNITS, { body: 'nothing(x) * ;' });
    await expect(compiled('wrong', '', wrong)).rejects.toThrow(/u\d+\.c/);
    expect(existsSync(join(folder, 'wrong.cache', 'kernels'))).toBe(true);
    expect(readdirSync(join(folder, 'wrong.cache', 'kernels'))).toEqual([]);
  });
});
