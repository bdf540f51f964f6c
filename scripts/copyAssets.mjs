/** Copies what the TypeScript compiler leaves behind into dist, at the same relative paths: templates and the kernel ABI. */
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const templates = readdirSync(join(ROOT, 'codegen'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.hbs')).map((file) => join('codegen', file));

for (const file of [...templates, join('runtime', 'native', 'abi.h')]) {
  const to = join(ROOT, 'dist', file);
  mkdirSync(dirname(to), { recursive: true });
  cpSync(join(ROOT, file), to);
}
