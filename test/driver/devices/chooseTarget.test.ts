import { describe, expect, it } from 'vitest';
import { chooseForMachine, chooseTarget, cpuName, type TargetProbes } from '../../../driver/devices/chooseTarget.js';
import { UserError } from '../../../errors.js';
import type { CudaDeviceInfo } from '../../../runtime/cuda/native.js';

const GIB = 2 ** 30;
const gpu = (major: number, totalBytes = 80 * GIB): CudaDeviceInfo =>
  ({ ordinal: 0, name: `GPU ${major}.0`, capability: [major, 0], totalBytes }) as unknown as CudaDeviceInfo;

/** A machine with these GPUs, and a model of this many GiB. */
const machine = (
  devices: readonly CudaDeviceInfo[],
  weights = 2,
  change: Partial<TargetProbes> = {},
): TargetProbes => ({
  cpu: () => 'Some CPU 9000',
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
      device: 'GPU (GPU 9.0, room for 79 GiB; the weights take 2 GiB)',
    });
  });

  it.each([
    ['an old GPU', REQUEST, machine([gpu(7)]), 'CPU (Some CPU 9000): GPU 7.0 is older than compute capability 8.0'],
    [
      'a model that is too large',
      REQUEST,
      machine([gpu(9)], 120),
      'CPU (Some CPU 9000): the weights take 120 GiB, and GPU 9.0 has room for 79 GiB',
    ],
    [
      'one that would fit all GPUs',
      REQUEST,
      machine([gpu(9), gpu(9)], 120),
      /and GPU 9.0 has room for 79 GiB; --parallel auto spreads it over all GPUs$/,
    ],
    ['an instruction set', { ...REQUEST, isa: 'avx2' }, machine([gpu(9)]), /^CPU \(Some CPU 9000\): --isa avx2 is/],
    ['f32', { ...REQUEST, precision: 'f32' }, machine([gpu(9)]), /^CPU \(Some CPU 9000\): --precision f32 is/],
    [
      'no compiler for GPUs',
      REQUEST,
      machine([gpu(9)], 2, { requireCompiler: () => Promise.reject(new UserError('no NVRTC and no nvcc\nmore', 'x')) }),
      /: there is no compiler for GPU 9.0; tilewright doctor says more$/,
    ],
  ] as const)('is the CPU for %s, and says so', async (_, request, probes, line) => {
    const chosen = await chooseForMachine(request, probes);
    expect(chosen.target).toBe('cpu');
    expect(chosen.device).toMatch(line);
  });

  it('is the CPU where there is no GPU, whose absence concerns nobody who did not ask for one', async () => {
    expect(await chooseForMachine(REQUEST, machine([]))).toEqual({
      target: 'cpu',
      device: 'CPU (Some CPU 9000)',
      detail: 'no GPU is used: libcuda.so.1 is not here',
    });
    expect((await chooseForMachine(REQUEST, machine([], 2, { cpu: () => '' }))).device).toBe('CPU');
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
    expect(await chooseTarget(asked, machine([]))).toEqual({ target: 'cuda:sm_80', device: 'GPU (sm_80)' });
    expect((await chooseTarget({ ...REQUEST, target: 'cuda' }, machine([]))).device).toBe('GPU');
    const cpu = { target: 'cpu', device: 'CPU (Some CPU 9000)' };
    expect(await chooseTarget({ ...REQUEST, target: 'cpu' }, machine([gpu(9)]))).toEqual(cpu);
  });

  it.each([
    ['Intel(R) Xeon(R) Gold 6448Y CPU @ 2.10GHz', 'Intel Xeon Gold 6448Y'],
    ['AMD EPYC 9654 96-Core Processor', 'AMD EPYC 9654 96-Core Processor'],
    ['12th Gen Intel(R) Core(TM) i7-1260P', '12th Gen Intel Core i7-1260P'],
    ['', ''],
  ])('names a processor: %s', (model, name) => {
    expect(cpuName(model)).toBe(name);
  });
});
