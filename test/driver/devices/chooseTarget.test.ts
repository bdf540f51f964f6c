import { describe, expect, it } from 'vitest';
import { chooseForMachine, chooseTarget, type TargetProbes } from '../../../driver/devices/chooseTarget.js';
import { UserError } from '../../../errors.js';
import type { CudaDeviceInfo } from '../../../runtime/cuda/nativeDevice.js';

const GIB = 2 ** 30;
const gpu = (major: number, totalBytes = 80 * GIB): CudaDeviceInfo =>
  ({ ordinal: 0, name: `GPU ${major}.0`, capability: [major, 0], totalBytes }) as unknown as CudaDeviceInfo;

/** A machine with these GPUs, and a model of this many GiB. */
const machine = (
  devices: readonly CudaDeviceInfo[],
  weights = 2,
  change: Partial<TargetProbes> = {},
): TargetProbes => ({
  gpus: () =>
    devices.length === 0
      ? { ok: false, reason: 'libcuda.so.1 is not here' }
      : { ok: true, driverVersion: 12040, devices },
  requireCompiler: () => Promise.resolve(),
  weightBytes: () => weights * GIB,
  ...change,
});
const REQUEST = { model: 'm', init: { kind: 'checkpoint' } } as const;

describe('--target auto', () => {
  it('is a GPU that can hold the model', async () => {
    expect(await chooseForMachine(REQUEST, machine([gpu(9)]))).toEqual({
      target: 'cuda',
      line: 'cuda (GPU 9.0, with room for 79 GiB, holds 2 GiB of weights)',
    });
  });

  it.each([
    ['no GPU', REQUEST, machine([]), 'cpu (no GPU: libcuda.so.1 is not here)'],
    ['an old GPU', REQUEST, machine([gpu(7)]), 'cpu (GPU 7.0 is older than compute capability 8.0)'],
    [
      'a model that is too large',
      REQUEST,
      machine([gpu(9)], 120),
      'cpu (the weights take 120 GiB, and GPU 9.0 has room for 79 GiB)',
    ],
    [
      'one that would fit all GPUs',
      REQUEST,
      machine([gpu(9), gpu(9)], 120),
      'cpu (the weights take 120 GiB, and GPU 9.0 has room for 79 GiB; --parallel auto spreads it over all GPUs)',
    ],
    ['an instruction set', { ...REQUEST, isa: 'avx2' }, machine([gpu(9)]), /^cpu \(--isa avx2 is/],
    ['f32', { ...REQUEST, precision: 'f32' }, machine([gpu(9)]), /^cpu \(--precision f32 is/],
    [
      'no compiler for GPUs',
      REQUEST,
      machine([gpu(9)], 2, { requireCompiler: () => Promise.reject(new UserError('no NVRTC and no nvcc\nmore', 'x')) }),
      'cpu (no compiler for GPU 9.0: no NVRTC and no nvcc; see tilewright doctor)',
    ],
  ] as const)('is the CPU for %s, and says so', async (_, request, probes, line) => {
    const chosen = await chooseForMachine(request, probes);
    expect(chosen.target).toBe('cpu');
    expect(chosen.line).toMatch(line);
  });

  it('counts the requested number of GPUs', async () => {
    for (const more of [{ devices: 2 }, { devices: 'all' }, { parallel: { replicas: 1, stages: 2 } }] as const)
      expect((await chooseForMachine({ ...REQUEST, ...more }, machine([gpu(9), gpu(9)], 120))).target).toBe('cuda');
    // Each replica holds the whole model.
    const replicas = { parallel: { replicas: 2, stages: 1 } };
    expect((await chooseForMachine({ ...REQUEST, ...replicas }, machine([gpu(9), gpu(9)], 120))).target).toBe('cpu');
  });

  it('leaves an explicit target unchanged', async () => {
    const asked = { ...REQUEST, target: 'cuda:sm_80' } as const;
    expect(await chooseTarget(asked, machine([]))).toEqual({ target: 'cuda:sm_80', line: 'cuda:sm_80' });
  });
});
