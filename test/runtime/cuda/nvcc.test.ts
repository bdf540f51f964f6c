/** Compiling kernels to cubins with a real nvcc, which needs no GPU. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { compileCubins, type CudaUnit } from '../../../runtime/cuda/compiler.js';
import { isCubin } from '../../../runtime/cuda/cubinCache.js';
import { readSettings, type Settings } from '../../../settings.js';
import { temporaryFolder } from '../kernels.js';
import { thorough } from '../../support/thorough.js';

const NVCC = readSettings()
  .path.split(delimiter)
  .map((folder) => join(folder, 'nvcc'))
  .find((path) => existsSync(path));
if (NVCC === undefined) console.warn('SKIPPED test/runtime/cuda/nvcc.test.ts: no nvcc on PATH');

const root = temporaryFolder();
let counter = 0;

async function failure(promise: Promise<unknown>): Promise<UserError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(UserError);
  return error as UserError;
}

describe.skipIf(NVCC === undefined)('compiling with nvcc', () => {
  const source = `extern "C" __global__ void k_real(int T, float *p) {
  __shared__ float tile[256];
  tile[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x + T] = tile[255 - threadIdx.x];
}
`;
  const settings = (): Settings => ({
    ...readSettings(),
    cacheDir: join(root, `cache${counter++}`),
    nvcc: NVCC,
    nvrtc: undefined,
  });

  it('makes code for both architectures, and reports its resources', async () => {
    const mine = settings();
    for (const arch of ['sm_80', 'sm_90a'] as const) {
      const result = await compileCubins([{ symbol: 'k_real', source }], { arch, settings: mine });
      const cubin = result.cubins.get('k_real') ?? new Uint8Array();
      expect(isCubin(cubin)).toBe(true);
      expect(Buffer.from(cubin).includes('k_real')).toBe(true);
      expect(result.resources.get('k_real')).toMatchObject({ sharedBytes: 1024, spillStoreBytes: 0 });
      expect(result.resources.get('k_real')?.registers).toBeGreaterThan(3);
      expect(result.compiler).toMatch(/^nvcc \d+\.\d+ \(/);
      expect((await compileCubins([{ symbol: 'k_real', source }], { arch, settings: mine })).isCached).toBe(true);
    }
  });

  const included = `#pragma once
#include "lib/first.cuh"
__device__ float twice(float x) { return first(x) * 2; }
`;
  const withHeaders = (text: string): CudaUnit => ({
    symbol: 'k_real',
    source:
      '#include "gemm/twice.cuh"\nextern "C" __global__ void k_real(float *p) { p[threadIdx.x] = twice(p[0]); }\n',
    headers: [
      { name: 'lib/first.cuh', text: '#pragma once\n__device__ float first(float x) { return x + 1; }\n' },
      { name: 'gemm/twice.cuh', text },
    ],
  });

  thorough('gets headers from memory, shows their wrong lines, and writes none outside of its folder', async () => {
    const mine = settings();
    const options = { arch: 'sm_90a', settings: mine } as const;
    expect((await compileCubins([withHeaders(included)], options)).cubins.size).toBe(1);
    const wrong = included.replace('x) * 2', 'y) * 2');
    expect((await failure(compileCubins([withHeaders(wrong)], options))).message).toContain(
      'gemm/twice.cuh:3: error: identifier "y" is undefined\n      1 | #pragma once\n',
    );
    for (const name of ['../out.cuh', '/tmp/out.cuh', 'lib/../../out.cuh', 'k_real.cu', 'lib/', '.a/b.cuh'])
      await expect(
        compileCubins([{ symbol: 'k_real', source, headers: [{ name, text: '' }] }], options),
      ).rejects.toThrow('no name of a header');
  });

  thorough("shows the generated lines that do not compile, and the assembler's message", async () => {
    const mine = settings();
    const wrong = source.replace('255 - threadIdx.x', 'undeclared');
    expect(
      (await failure(compileCubins([{ symbol: 'k_real', source: wrong }], { arch: 'sm_90a', settings: mine }))).message,
    ).toMatch(
      new RegExp(
        'k_real\\.cu:5: error: identifier "undeclared" is undefined\n' +
          '      3 \\| .*\n      4 \\| .*\n>     5 \\|   p\\[threadIdx\\.x \\+ T\\] = tile\\[undeclared\\];',
      ),
    );
    const assembly = source.replace('__syncthreads();', 'asm volatile("no.such.instruction;");');
    expect(
      (await failure(compileCubins([{ symbol: 'k_real', source: assembly }], { arch: 'sm_90a', settings: mine })))
        .message,
    ).toMatch(/does not compile the generated k_real\.cu:\nptxas .*error.*'\.such'/);
  });
});
