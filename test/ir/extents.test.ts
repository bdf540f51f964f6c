/** Names of extents, which generated kernels take as parameters beside names of their own. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { EXTENT_NAME } from '../../ir/extents.js';

const codegen = join(dirname(fileURLToPath(import.meta.url)), '../../codegen');

/** Constants that headers and templates of kernels define. */
const constants = readdirSync(codegen, { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.(hbs|cuh|h)$/.test(file))
  .map((file) => readFileSync(join(codegen, file), 'utf8'))
  .flatMap((text) => [
    ...[...text.matchAll(/^\s*#define (\w+)/gm)].map(([, name]) => name!),
    ...[...text.matchAll(/^\s*(?:static )?const(?:expr)? \w+ (.*);/gm)].flatMap(([, list]) =>
      [...list!.matchAll(/(?:^|, )(\w+) = /g)].map(([, name]) => name!),
    ),
  ]);

it('names of extents follow the grammar', () => {
  for (const name of ['T', 'R', 'N', 'Q', 'Entries', 'A1']) expect(name).toMatch(EXTENT_NAME);
  for (const name of ['t', '', 'TT', 'T_', 'T\n', 'int', 'D', 'K', 'A23456789012345678'])
    expect(name).not.toMatch(EXTENT_NAME);
});

it('names of extents are not constants of generated kernels', () => {
  expect(constants).toEqual(expect.arrayContaining(['TILE_KEYS', 'WGMMA_ROWS']));
  expect(constants.filter((name) => EXTENT_NAME.test(name))).toEqual([]);
});
