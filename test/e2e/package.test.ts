/**
 * The package that `npm pack` makes: everything that its README links to, everything that building the addon needs, and
 * nothing else.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { isThorough, thorough } from '../support/thorough.js';

const ROOT = join(import.meta.dirname, '..', '..');

/** Paths of the package's files. */
function packedFiles(): string[] {
  const { stdout, stderr } = spawnSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  const report: unknown = JSON.parse(stdout === '' ? stderr : stdout);
  // A list, or an object by package name, depending on npm's version.
  const [entry] = Object.values(report as Record<string, { files: { path: string }[] }>);
  return entry!.files.map(({ path }) => path);
}

/** Links of a Markdown file that stay within the project, as paths from its root. */
const linksOf = (file: string): string[] =>
  [...readFileSync(join(ROOT, file), 'utf8').matchAll(/\]\((?!https?:|#)([^)#\s]+)[^)]*\)/g)].map(([, link = '']) =>
    normalize(join(dirname(file), link)).replace(/\/$/, ''),
  );

describe('the npm package', () => {
  // npm compresses all of it, which takes ten seconds.
  const files = isThorough ? packedFiles() : [];
  const has = (path: string): boolean => files.some((file) => file === path || file.startsWith(`${path}/`));

  thorough('contains every document that its README and its documents link to', () => {
    const documents = files.filter((file) => file.endsWith('.md') && !file.startsWith('docs/decisions/'));
    expect(documents).toContain('docs/architecture.md');
    // Source files that documents link to lie in the repository.
    const isSource = (link: string): boolean => !/^(docs|examples|README|CHANGELOG|CONTRIBUTING|LICENSE)/.test(link);
    const missing = documents.flatMap((file) =>
      linksOf(file)
        .filter((link) => !isSource(link) && !has(link))
        .map((link) => `${file} → ${link}`),
    );
    expect(missing).toEqual([]);
  });

  it('has documents whose links lead to what is there', () => {
    const documents = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'));
    expect(documents).toContain('architecture.md');
    const missing = ['README.md', 'CONTRIBUTING.md', ...documents.map((name) => `docs/${name}`)].flatMap((file) =>
      linksOf(file)
        .filter((link) => !existsSync(join(ROOT, link)))
        .map((link) => `${file} → ${link}`),
    );
    expect(missing).toEqual([]);
  });

  it.runIf(isThorough && existsSync(join(ROOT, 'dist')))(
    'contains the headers of kernels, where its code finds them',
    () => {
      const built = (target: string): readonly string[] =>
        readdirSync(join(ROOT, 'codegen', target), { recursive: true, encoding: 'utf8' })
          .filter((name) => /\.(cuh|h)$/.test(name))
          .map((name) => `dist/codegen/${target}/${name}`);
      expect(files).toEqual(expect.arrayContaining([...built('cuda'), ...built('cpu'), 'dist/runtime/native/abi.h']));
    },
  );

  thorough('contains what builds the addon, and no tests', () => {
    expect(files).toEqual(
      expect.arrayContaining(['CMakeLists.txt', 'scripts/buildAddon.mjs', 'runtime/native/addon.cc']),
    );
    expect(files.filter((file) => /^(test|dist\/test)\//.test(file))).toEqual([]);
    const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    expect(Object.keys(dependencies)).toEqual(expect.arrayContaining(['node-addon-api', 'node-api-headers']));
    expect(dependencies).not.toHaveProperty('cmake-js');
  });
});
