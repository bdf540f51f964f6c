/** Python files beside task files: a run says which ones it does not follow. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { Hook, type Yaml } from '../../../tasks/definition/yaml.js';
import { unreadModules } from '../../../tasks/hooks/unread.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-unread-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

it('names files that are there and are not the known ones, once each', () => {
  writeFileSync(join(root, 'utils.py'), 'def f(doc): return 1\n');
  const settings = (...names: string[]): ReadonlyMap<string, { readonly value: Yaml; readonly where: string }> =>
    new Map(names.map((name) => [name, { value: [new Hook(name, join(root, 'a.yaml'))], where: '' }]));
  expect(unreadModules([settings('utils.f', 'utils.g', 'other.h'), settings('utils.f')])).toEqual([
    `${join(root, 'utils.py')} is not read: tilewright's own utils.f, utils.g are used`,
  ]);
});
