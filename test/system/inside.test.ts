/** Names in files never lead out of the folder that the files are read from. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { pathInside } from '../../system/read.js';

describe('a path inside a folder', () => {
  const root = mkdtempSync(join(tmpdir(), 'tilewright-inside-'));
  const folder = join(root, 'folder');
  mkdirSync(join(folder, 'sub'), { recursive: true });
  afterAll(() => rmSync(root, { recursive: true, force: true }));
  writeFileSync(join(folder, 'sub', 'file.so'), '');
  writeFileSync(join(root, 'outside'), '');
  symlinkSync('sub/file.so', join(folder, 'within'));
  symlinkSync('../outside', join(folder, 'out'));
  symlinkSync('..', join(folder, 'up'));

  it.each(['sub/file.so', 'within', 'missing'])('may be %s', (name) => {
    expect(pathInside(folder, name)).toBe(join(folder, name));
  });

  it.each(['../outside', '/etc/passwd', 'sub/../../outside', '.hidden', '', 'a\0b', 'sub//file.so'])(
    'may not be %j',
    (name) => {
      expect(() => pathInside(folder, name)).toThrow(/is no name of a file in it/);
    },
  );

  it.each(['out', 'up', 'up/outside'])('may not lead out by the link %s', (name) => {
    expect(() => pathInside(folder, name)).toThrow(/a symbolic link leads out of the folder/);
  });
});
