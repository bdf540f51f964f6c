/** Golden units of CUDA kernels: what is printed for each; the headers that it includes are read as they are. */
import { join } from 'node:path';
import { expect } from 'vitest';

const FOLDER = join(import.meta.dirname, 'golden');

/** Compares the unit of a kernel with golden/`name`.cu. */
export async function expectGolden(source: string, name: string): Promise<void> {
  await expect(source).toMatchFileSnapshot(join(FOLDER, `${name}.cu`));
}
