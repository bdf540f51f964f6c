/** Every header of kernels compiles by itself, with the compilers that kernels meet and with an editor's flags. */
import { execFile, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { fibreFlags } from '../support/cudaWarp/compile.js';
import { hasNvcc } from '../support/nvcc.js';

const folderOf = (target: string): string => fileURLToPath(new URL(`../../codegen/${target}/`, import.meta.url));
const headersIn = (target: string, suffix: string): readonly string[] =>
  readdirSync(folderOf(target), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(suffix))
    .sort();
const has = (program: string): boolean => spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0;

/** An empty file that includes the header first of all. */
const alone = (name: string, language: string): readonly string[] => ['-include', name, '-x', language, '/dev/null'];

/** What the compiler says of each header that it is run on, where that is not nothing. */
async function complaints(
  names: readonly string[],
  program: string,
  argsOf: (name: string) => readonly string[],
  cwd = tmpdir(),
): Promise<Readonly<Record<string, string>>> {
  const found: Record<string, string> = {};
  const waiting = [...names];
  const run = (name: string): Promise<void> =>
    new Promise((resolve) => {
      execFile(program, argsOf(name), { cwd, encoding: 'utf8' }, (error, stdout, stderr) => {
        if (error !== null || stderr !== '') found[name] = `${stdout}${stderr}${error?.message ?? ''}`;
        resolve();
      });
    });
  const work = async (): Promise<void> => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) await run(name);
  };
  await Promise.all(Array.from({ length: availableParallelism() }, work));
  return found;
}

describe('headers of CUDA kernels by themselves', () => {
  const cuda = headersIn('cuda', '.cuh');
  const folder = folderOf('cuda');

  it.skipIf(!hasNvcc).each(['80', '90a'])(
    'compile with nvcc for sm_%s',
    async (arch) => {
      const flags = ['-cubin', `-gencode=arch=compute_${arch},code=sm_${arch}`, '--std=c++20', '-Werror=all-warnings'];
      const args = (name: string): readonly string[] => [
        ...flags,
        '-I',
        folder,
        '-o',
        '/dev/null',
        ...alone(name, 'cu'),
      ];
      expect(await complaints(cuda, 'nvcc', args)).toEqual({});
    },
    600_000,
  );

  it('compile over fibres', async () => {
    const args = (name: string): readonly string[] => [...fibreFlags(), '-fsyntax-only', ...alone(name, 'c++')];
    expect(await complaints(cuda, 'c++', args)).toEqual({});
  }, 600_000);
});

describe('headers of C kernels by themselves', () => {
  const cpu = headersIn('cpu', '.h');
  const folder = folderOf('cpu');
  const flags = readFileSync(join(folder, 'compile_flags.txt'), 'utf8').trim().split('\n');

  it.skipIf(!has('cc')).each([[[]], [['-mavx2', '-mfma', '-mf16c']], [['-march=sapphirerapids']]] as const)(
    'compile with the flags that editors are given, and %s',
    async (isa) => {
      if (process.arch !== 'x64' && isa.length > 0) return;
      const args = (name: string): readonly string[] => [...flags, ...isa, '-fsyntax-only', ...alone(name, 'c')];
      expect(await complaints(cpu, 'cc', args, folder)).toEqual({});
    },
    600_000,
  );
});
