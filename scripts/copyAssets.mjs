/** Finishes dist: copies what the TypeScript compiler leaves behind (templates, the kernel ABI, golden files of the GPU tests) and lets the command be started. */
import { chmodSync, cpSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const templates = readdirSync(join(ROOT, 'codegen'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.hbs')).map((file) => join('codegen', file));

const golden = readdirSync(join(ROOT, 'test', 'gpu', 'golden')).map((file) => join('test', 'gpu', 'golden', file));

for (const file of [...templates, ...golden, join('runtime', 'native', 'abi.h')]) {
  const to = join(ROOT, 'dist', file);
  mkdirSync(dirname(to), { recursive: true });
  cpSync(join(ROOT, file), to);
}

// `npx tilewright` in this folder starts the file itself.
chmodSync(join(ROOT, 'dist', 'cli', 'main.js'), 0o755);
