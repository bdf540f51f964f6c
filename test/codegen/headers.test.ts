/** Headers of kernels: what all of them have in common, and how a unit finds them. */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import { cpuHeadersOf } from '../../codegen/cpu/index.js';
import { cudaHeadersOf } from '../../codegen/cuda/index.js';
import { Headers, includesOf } from '../../codegen/headers.js';
import { isHeaderName, unitDigest } from '../../ir/unit.js';
import { temporaryFolder } from '../models/support.js';

const MAX_LINES = 500;
const MAX_COLUMNS = 120;

const folderOf = (target: string): string => fileURLToPath(new URL(`../../codegen/${target}/`, import.meta.url));

describe.each([
  { target: 'cuda', suffix: '.cuh', headersOf: cudaHeadersOf },
  { target: 'cpu', suffix: '.h', headersOf: cpuHeadersOf },
])('headers of $target', ({ target, suffix, headersOf }) => {
  const names = readdirSync(folderOf(target), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(suffix))
    .sort();
  const textOf = (name: string): string => headersOf(`#include "${name}"\n`).at(-1)!.text;

  it('are there', () => expect(names.length).toBeGreaterThan(10));

  it.each(names)('%s says what it is for, is included once, and is short enough to read', (name) => {
    expect(isHeaderName(name)).toBe(true);
    const text = textOf(name);
    // One that is included for each instruction set forgets the names that it was given.
    if (/#undef TW_OF\n/.test(text)) expect(text).toMatch(/^\/\*[\s\S]+?\*\/\n#include /);
    else expect(text).toMatch(/^\/\*[\s\S]+?\*\/\n#pragma once\n/);
    const lines = text.split('\n');
    expect(lines.length).toBeLessThanOrEqual(MAX_LINES);
    for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(MAX_COLUMNS);
  });

  it('include each other without a cycle', () => {
    for (const name of names) {
      const own = headersOf(`#include "${name}"\n`).map((header) => header.name);
      expect(own.at(-1)).toBe(name);
      expect(new Set(own).size).toBe(own.length);
    }
  });

  it.runIf(target === 'cuda')('have assembly in lib/ only', () => {
    for (const name of names.filter((each) => !each.startsWith('lib/')))
      expect(textOf(name), name).not.toMatch(/\basm\b/);
  });
});

describe('a folder of headers', () => {
  const folder = temporaryFolder();
  const write = (name: string, text: string): void => {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), text);
  };
  write('lib/a.cuh', '/* a */\n');
  write('lib/b.cuh', '#include "lib/a.cuh"\n');
  write('gemm/c.cuh', '#include "lib/b.cuh"\n#include "lib/a.cuh"\n');
  write('lib/one.cuh', '#include "lib/other.cuh"\n');
  write('lib/other.cuh', '#include "lib/one.cuh"\n');
  const headers = new Headers(pathToFileURL(`${folder}/`));

  it('gives each header once, behind those that it includes', () => {
    expect(headers.of('#include "gemm/c.cuh"\n#include "lib/b.cuh"\n').map(({ name }) => name)).toEqual([
      'lib/a.cuh',
      'lib/b.cuh',
      'gemm/c.cuh',
    ]);
    expect(headers.of('int x;\n')).toEqual([]);
    expect(headers.names()).toContain('gemm/c.cuh');
  });

  it('gives nothing that lies elsewhere, and nothing endless', () => {
    for (const name of [
      '../x.cuh',
      'lib/../../x.cuh',
      '/etc/passwd',
      'lib/.x.cuh',
      'x.cuh',
      'lib/a.cuh\0.h',
      'lib/a.ts',
    ])
      expect(() => headers.of(`#include "${name}"\n`), name).toThrow('no name of a header');
    expect(() => headers.of('#include "lib/one.cuh"\n')).toThrow('include each other: lib/one.cuh, lib/other.cuh');
    expect(() => headers.of('#include "lib/none.cuh"\n')).toThrow('ENOENT');
  });

  it('changes the digest of units that include what changed, and of no other', () => {
    const unit = '#include "lib/b.cuh"\n';
    const own = headers.of(unit);
    const digest = unitDigest(unit, own);
    expect(
      unitDigest(
        unit,
        own.map((header) => ({ ...header })),
      ),
    ).toBe(digest);
    for (const changed of own) {
      const others = own.map((each) => (each === changed ? { ...each, text: `${each.text}\n` } : each));
      expect(unitDigest(unit, others)).not.toBe(digest);
    }
    expect(unitDigest(unit, own.toReversed())).not.toBe(digest);
    expect(includesOf(unit)).toEqual(['lib/b.cuh']);
  });
});
