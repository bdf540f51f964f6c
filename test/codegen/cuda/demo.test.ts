/**
 * The demo model as the passes lower it for GPUs: run over fibres and compared with float64, and compiled by nvcc if it
 * is installed.
 */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import { compileModel } from '../../../driver/compile/compile.js';
import { cuda } from '../../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaModel } from '../../../driver/targets/cudaKernels.js';
import { CUDA_ARCHS, type CudaArch, type CudaSchedule } from '../../../ir/cuda.js';
import { interpretKernel } from '../../../ir/kernelInterpreter.js';
import { scoreOf } from '../../../ir/plan.js';
import { openCheckpoint } from '../../../models/checkpoint.js';
import { compileByNvcc, hasNvcc } from '../../support/nvcc.js';
import { randomSource } from '../harness.js';
import { besideCuts, usual } from './besideCuts.js';
import { numbersOf } from './checkKernels.js';
import { emulateModule } from './emulate.js';
import { randomBatch, randomTensors } from './randomModel.js';

const checkpoint = openCheckpoint('models/demo');
const demo = (arch: CudaArch): CudaModel =>
  compileModel(checkpoint, cuda, cudaDevice(TYPICAL_FACTS[arch], 'bf16'), { batchTokens: 512 });

/** Error of sums in f32, in units of a buffer's usual value. */
const F32_LOSS = 2e-5;

/** The largest difference, in units of rounding `got` to its type: relative, for numbers of the buffer's usual size. */
function error(got: Float64Array, want: Float64Array): number {
  const scale = usual(want);
  let most = 0;
  want.forEach((x, i) => {
    if (x === got[i]) return;
    const d = Math.abs(got[i]! - x) / Math.max(scale, Math.abs(x));
    most = Number.isNaN(d) ? Infinity : Math.max(most, d);
  });
  return most;
}

describe('the demo model', () => {
  it('gives what kernel IR says, kernel by kernel', () => {
    const model = demo('sm_80');
    const plan = scoreOf(model.plan);
    const { sizes, inputs } = randomBatch({ T: 45, R: 13 }, 4096, 4);
    // The tiles of a small bucket, so that there are several of them.
    const schedules = plan.launches.map(({ signature }) => small(plan.schedules[0]![signature]!));
    plan.kernels.forEach((kernel, i) => {
      expect(isLegalCuda(kernel, plan, schedules[i]!, TYPICAL_FACTS.sm_80)).toBe(true);
    });
    const tensors = randomTensors(plan, randomSource(3));
    const { values } = emulateModule(plan, { sizes, inputs, tensors, schedules, tokensCapacity: 512 });
    const env = { sizes, buffers: values, tensors, decls: plan, round: true };
    const seen = new Set<string>();
    plan.kernels.forEach((kernel, i) => {
      const { signature } = plan.launches[i]!;
      if (seen.has(signature)) return;
      seen.add(signature);
      const wanted = interpretKernel(kernel, env);
      for (const name of wanted.keys()) {
        const decl = plan.buffers.find((buffer) => buffer.name === name)!;
        // One rounding to bf16 in either direction (two in attention, which rounds its weights), one to 24 bits, or the
        // error of sums in f32.
        const most =
          decl.dtype === 'u8'
            ? 2 ** -15
            : decl.dtype !== 'bf16'
              ? F32_LOSS
              : kernel.anchor === 'attention'
                ? 2 ** -6
                : 2 ** -7;
        const [got, right] = [numbersOf(decl, values), numbersOf(decl, wanted)];
        const beside =
          kernel.anchor === 'gemm' && error(got, right) > most
            ? besideCuts(kernel, env, F32_LOSS).get(name)!
            : { low: right, high: right };
        const nearest = got.map((y, i) => Math.min(Math.max(y, beside.low[i]!), beside.high[i]!));
        expect({ kernel: kernel.name, name, error: error(got, nearest) }).toSatisfy(
          (x: { error: number }) => x.error <= most,
        );
      }
    });
    expect(seen.size).toBeGreaterThan(8);
  });
});

const small = (schedule: CudaSchedule): CudaSchedule =>
  schedule.kind === 'gemm' ? { ...schedule, tm: 32, tn: 64, raster: 2 } : schedule;

if (!hasNvcc) console.warn('SKIPPED compiling the kernels of the demo model for GPUs: no nvcc on PATH');

/**
 * Bytes that a thread may keep in local memory: a few words outside the loop over k (rotary epilogues at 128
 * registers).
 */
const MAX_SPILLED = 16;

describe.skipIf(!hasNvcc)('every kernel of the demo model, by nvcc', () => {
  it.each([...CUDA_ARCHS])('compiles for %s without warnings, and registers suffice', (arch) => {
    const plan = scoreOf(demo(arch).plan);
    const all = plan.kernels.map((kernel, i) =>
      emitCudaKernel(kernel, plan, plan.schedules.at(-1)![plan.launches[i]!.signature]!, plan.capacity.extents),
    );
    const kernels = [...new Map(all.map((kernel) => [kernel.symbol, kernel])).values()];
    compileByNvcc(kernels, arch).forEach(({ spillStores, spillLoads }, i) => {
      const spilled = Math.max(spillStores, spillLoads);
      expect({ symbol: kernels[i]!.symbol, spilled }).toSatisfy((x: { spilled: number }) => x.spilled <= MAX_SPILLED);
    });
  });
});
