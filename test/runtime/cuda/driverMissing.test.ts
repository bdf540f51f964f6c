/** Drivers that are missing, too old or incomplete. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { cudaAvailable, loadCudaAddon, requireCuda } from '../../../runtime/cuda/addon.js';
import { compileLibrary, hasCompiler } from '../../support/fakeCuda/fakeDriver.js';

describe('a driver that cannot be used', () => {
  it('is reported if it is missing, with a way to continue', () => {
    const missing = cudaAvailable('/nowhere/libcuda.so.1');
    expect(missing).toMatchObject({
      ok: false,
      reason: expect.stringMatching(/cannot be loaded: \/nowhere\/libcuda.so.1: cannot open shared object file/),
    });
    expect(() => requireCuda('/nowhere/libcuda.so.1')).toThrow(UserError);
    expect(() => new (loadCudaAddon().Device)(0)).toThrow(/No CUDA driver is loaded/);
  });

  it('must be given by its full path if it has another name than libcuda.so.1', () => {
    expect(cudaAvailable('libother.so')).toMatchObject({ ok: false, reason: expect.stringMatching(/full path/) });
  });

  describe.skipIf(!hasCompiler)('libraries', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tilewright-cuda-'));
    afterAll(() => rmSync(folder, { recursive: true, force: true }));

    it('that are too old are refused', () => {
      const path = compileLibrary(folder, 'old', {
        text: 'int cuDriverGetVersion(int *v) { *v = 11040; return 0; }\n',
      });
      expect(cudaAvailable(path)).toEqual({
        ok: false,
        reason: 'the driver is too old: it is for CUDA 11.4, this needs CUDA 12.0 or newer (a driver from 525 on)',
      });
    });

    it('that lack entry points are refused', () => {
      const path = compileLibrary(folder, 'partial', {
        text: 'int cuDriverGetVersion(int *v) { *v = 12040; return 0; }\nint cuInit(unsigned f) { return f; }\n',
      });
      const available = cudaAvailable(path);
      expect(available).toMatchObject({
        ok: false,
        reason: expect.stringMatching(/lacks cuGetErrorName, .*cuLaunchKernelEx, cuTensorMapEncodeTiled$/),
      });
      expect(available).not.toMatchObject({ reason: expect.stringMatching(/cuInit|cuFuncGetParamInfo/) });
    });
  });
});
