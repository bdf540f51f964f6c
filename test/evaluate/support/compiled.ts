/** Compiles evaluate/ to JavaScript in a separate folder, for child processes and worker threads. */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { SUPPORT } from './questions.js';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

/**
 * Returns the folder. It holds evaluate/, system/, python/, tasks/, errors.js, fakeTokenizer.mjs and the packages. The
 * caller removes it.
 */
export function compileEval(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-eval-'));
  const sources = ['evaluate', 'system', 'python', 'tasks'].flatMap((part) =>
    readdirSync(join(ROOT, part), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => join(part, file)),
  );
  for (const file of [
    ...sources,
    'errors.ts',
    join('test', 'evaluate', 'support', 'fakeScorer.ts'),
    join('test', 'support', 'fileRun.ts'),
  ]) {
    const { outputText } = ts.transpileModule(readFileSync(join(ROOT, file), 'utf8'), {
      compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true },
    });
    const target = join(folder, file.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, outputText);
  }
  cpSync(join(SUPPORT, 'fakeTokenizer.mjs'), join(folder, 'fakeTokenizer.mjs'));
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}\n');
  return folder;
}
