/**
 * Golden text of CUDA kernels. A function that several of them contain stands once, in golden/shared/, and each golden
 * file names it in a line. A kernel whose text of it changes no longer contains the shared one, and differs.
 *
 * To update shared text: delete its file and run the tests with `-u`, which writes the function into each golden file.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';

const FOLDER = join(import.meta.dirname, 'golden');

const SHARED = readdirSync(join(FOLDER, 'shared')).map((name) => ({
  reference: `/* shared/${name} */`,
  text: readFileSync(join(FOLDER, 'shared', name), 'utf8').trimEnd(),
}));

/** Compares the text of a kernel with golden/`name`.cu. */
export async function expectGolden(source: string, name: string): Promise<void> {
  const brief = SHARED.reduce((text, shared) => text.replaceAll(shared.text, () => shared.reference), source);
  await expect(brief).toMatchFileSnapshot(join(FOLDER, `${name}.cu`));
}
