import { mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { kindAt } from '../../system/read.js';
import { runFolder } from '../support/runFolder.js';

it('what is at a path is known without an exception, also below a file and behind links', () => {
  const folder = mkdtempSync(join(runFolder(), 'read-'));
  const file = join(folder, 'file');
  writeFileSync(file, '');
  symlinkSync(folder, join(folder, 'link'));
  symlinkSync(join(folder, 'gone'), join(folder, 'broken'));
  const kinds = ['', 'file', 'link', 'file/below', 'broken', 'nothing', '\0'].map((name) => kindAt(join(folder, name)));
  expect(kinds).toEqual(['folder', 'file', 'folder', undefined, undefined, undefined, undefined]);
  expect(kindAt('/dev/null')).toBe('other');
});
