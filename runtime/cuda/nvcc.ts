/**
 * nvcc, the toolkit's compiler: used where NVRTC is absent, so that a machine without a GPU builds a whole artifact.
 */
import { constants } from 'node:fs';
import { access, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, isAbsolute, join } from 'node:path';
import { UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import { type Header, isHeaderName } from '../../ir/unit.js';
import type { Settings } from '../../settings.js';
import { runProcess } from '../compilers.js';
import { expand } from './findNvrtc.js';
import { type Compilation, type CudaVersion, type LaneRequest, versionProblem } from './nvrtc.js';

export interface FoundNvcc {
  readonly path: string;
  readonly version: CudaVersion;
  /** The line of `--version` that names the build: part of cache keys. */
  readonly build: string;
}

const MAX_CUBIN_BYTES = 64 * 2 ** 20;

async function locate(settings: Settings): Promise<string | undefined> {
  const isProgram = (path: string): Promise<boolean> =>
    access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
  if (settings.nvcc !== undefined && settings.nvcc.includes('/'))
    return (await isProgram(settings.nvcc)) ? settings.nvcc : undefined;
  const onPath = settings.path.split(delimiter).filter((folder) => isAbsolute(folder));
  // Toolkits are often installed and not on PATH.
  const folders =
    settings.nvcc === undefined
      ? [...onPath, ...(await expand(settings.cudaToolkits)).map((toolkit) => join(toolkit, 'bin'))]
      : onPath;
  for (const folder of folders) {
    const path = join(folder, settings.nvcc ?? 'nvcc');
    if (await isProgram(path)) return path;
  }
  return undefined;
}

async function probe(path: string, arch: CudaArch, driverVersion: number | undefined): Promise<FoundNvcc | string> {
  const { status, stdout, stderr } = await runProcess(path, ['--version']);
  if (status !== 0) return `nvcc ${path}: --version fails: ${stderr.trim().split('\n')[0] ?? ''}`;
  const release = /release (\d+)\.(\d+)/.exec(stdout);
  if (release === null) return `nvcc ${path}: --version names no release`;
  const version = { major: Number(release[1]), minor: Number(release[2]) };
  const problem = versionProblem(version, arch, driverVersion);
  if (problem !== undefined) return `nvcc ${path}: ${problem}`;
  return { path, version, build: /^Build .*$/m.exec(stdout)?.[0] ?? stdout.trim() };
}

/**
 * TILEWRIGHT_NVCC where set, otherwise nvcc on PATH or in a toolkit; a line saying why it is of no use; undefined where
 * there is none. Throws UserError where TILEWRIGHT_NVCC names something unusable.
 */
export async function findNvcc(
  arch: CudaArch,
  driverVersion: number | undefined,
  settings: Settings,
): Promise<FoundNvcc | string | undefined> {
  const path = await locate(settings);
  const found = path === undefined ? undefined : await probe(path, arch, driverVersion);
  if (settings.nvcc !== undefined && (found === undefined || typeof found === 'string')) {
    throw new UserError(
      `TILEWRIGHT_NVCC cannot be used: ${found ?? `${settings.nvcc} is not an executable program`}.`,
      'Name a working one: TILEWRIGHT_NVCC=/usr/local/cuda/bin/nvcc, or unset it',
    );
  }
  return found;
}

/** Throws for a name that could leave the folder. */
async function writeHeader(folder: string, { name, text }: Header): Promise<void> {
  if (!isHeaderName(name)) throw new Error(`${JSON.stringify(name)} is no name of a header`);
  const file = join(folder, name);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, text);
}

/** Compiles one unit in a process of its own; as many run at once as there are processors. */
export async function compileWithNvcc(
  path: string,
  { name, source, headers }: Omit<LaneRequest, 'options'>,
  arch: CudaArch,
  signal?: AbortSignal,
): Promise<Compilation> {
  const folder = await mkdtemp(join(tmpdir(), 'tilewright-nvcc-'));
  try {
    await writeFile(join(folder, name), source);
    for (const header of headers) await writeHeader(folder, header);
    const number = arch.slice('sm_'.length);
    const { status, stdout, stderr } = await runProcess(
      path,
      [
        '-cubin',
        `-gencode=arch=compute_${number},code=sm_${number}`,
        '--std=c++20',
        '--ptxas-options=-v',
        '-I.',
        '-o',
        'kernel.cubin',
        name,
      ],
      folder,
      signal,
    );
    signal?.throwIfAborted();
    const log = `${stdout}${stderr}`;
    if (status !== 0) return { isCompiled: false, log };
    const cubin = join(folder, 'kernel.cubin');
    const { size } = await stat(cubin);
    if (size > MAX_CUBIN_BYTES)
      throw new Error(`nvcc made ${size} bytes of ${name}; at most ${MAX_CUBIN_BYTES} are taken`);
    return { isCompiled: true, cubin: new Uint8Array(await readFile(cubin)), log };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
