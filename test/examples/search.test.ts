/** docs/search.md: what it names is what the code has. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { METHODS, searchFields } from '../../search/options.js';
import { runCli } from '../cli/fakeIo.js';

const ROOT = join(import.meta.dirname, '..', '..');
const TEXT = readFileSync(join(ROOT, 'docs', 'search.md'), 'utf8');

const flagsIn = (some: string): ReadonlySet<string> => new Set(some.match(/--[a-z]+(-[a-z]+)*/g));
const helpOf = async (command: string): Promise<ReadonlySet<string>> =>
  new Set(
    [...(await runCli([command, '--help'])).stdout.matchAll(/^ +(?:-\w, )?(--[a-z-]+)/gm)].map(([, flag]) => flag!),
  );

describe('docs/search.md', () => {
  it('names every flag of search that generate does not have, and none that there is not', async () => {
    const [search, generate, serve] = [await helpOf('search'), await helpOf('generate'), await helpOf('serve')];
    const named = flagsIn(TEXT.replaceAll(/\(#.*?\)/g, ''));
    const own = [...search].filter((flag) => !generate.has(flag));
    expect(own.length).toBeGreaterThan(15);
    for (const flag of own) expect(named, flag).toContain(flag);
    for (const flag of named) expect(search.has(flag) || serve.has(flag) || flag === '--adapter', flag).toBe(true);
  });

  it('names every method, and every option by its flag', () => {
    for (const method of METHODS) expect(TEXT).toContain(`\`${method}\``);
    for (const field of Object.keys(searchFields)) {
      const flag = `--${field.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
      expect(flagsIn(TEXT), flag).toContain(flag);
    }
  });

  it('shows the program of examples/', () => {
    expect(TEXT.includes(readFileSync(join(ROOT, 'examples', 'search.mjs'), 'utf8'))).toBe(true);
  });
});
