/** Names of extents, which generated kernels take as parameters beside names of their own. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { EXTENT_NAME } from '../../ir/extents.js';

const TEMPLATES = ['cpu', 'cuda'].map((target) =>
  join(dirname(fileURLToPath(import.meta.url)), '../../codegen', target, 'templates'),
);

/** Constants that templates define in a kernel or beside it. */
const constants = TEMPLATES.flatMap((folder) =>
  readdirSync(folder).flatMap((file) =>
    [...readFileSync(join(folder, file), 'utf8').matchAll(/^\s*(?:static )?const(?:expr)? \w+ (.*);/gm)].flatMap(
      ([, list]) => [...list!.matchAll(/(?:^|, )(\w+) = /g)].map(([, name]) => name!),
    ),
  ),
);

it('names of extents follow the grammar', () => {
  for (const name of ['T', 'R', 'N', 'Q', 'Entries', 'A1']) expect(name).toMatch(EXTENT_NAME);
  for (const name of ['t', '', 'TT', 'T_', 'T\n', 'int', 'D', 'K', 'A23456789012345678'])
    expect(name).not.toMatch(EXTENT_NAME);
});

it('names of extents are not constants of generated kernels', () => {
  expect(constants).toEqual(expect.arrayContaining(['D', 'QUERIES', 'KEYS']));
  expect(constants.filter((name) => EXTENT_NAME.test(name))).toEqual([]);
});
