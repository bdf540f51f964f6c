/** A layer whose contractions are in E4M3, over fibres: what rows are rounded to, finished and split into. */
import { expect, it } from 'vitest';
import { defaultCudaSchedule } from '../../../codegen/cuda/index.js';
import { cudaNumerics } from '../../../driver/targets/cudaDevice.js';
import type { CudaSchedule } from '../../../ir/cuda.js';
import { interpretModule } from '../../../ir/kernelInterpreter.js';
import { scoringBucket } from '../../../ir/scoring.js';
import type { Numerics } from '../../../passes/numerics.js';
import { lower, optimize } from '../../../passes/runPasses.js';
import { llama } from '../../passes/llamaGraph.js';
import { environment, TREES } from '../../passes/modelEnvironment.js';
import { emulateModule } from './emulate.js';

const FACTS = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;

/** Of the difference, relative to what is wanted. */
function error(got: Float64Array, want: Float64Array): number {
  const norm = (values: Float64Array): number => Math.sqrt(values.reduce((sum, x) => sum + x * x, 0));
  return norm(got.map((x, i) => x - want[i]!)) / norm(want);
}

it.each([
  ['all', ['h1_e4m3', 'h2_e4m3']],
  ['deep', []],
] as const)(
  'a layer in E4M3 means what its kernels mean: %s products finish rows of 24 bits',
  (finishing, finishes) => {
    const graph = llama({ hiddenSize: 64, intermediateSize: 128, headDim: 16 });
    const numerics: Numerics = { ...cudaNumerics('fp8'), finishing };
    const whole = lower(optimize(graph, numerics), numerics);
    const module = {
      ...whole,
      kernels: whole.kernels.filter(({ path }) => !/^layers\.1|^head|^prepare\.end/.test(path)),
    };
    const finished = module.kernels.flatMap((kernel) => (kernel.anchor === 'gemm' ? (kernel.finish ?? []) : []));
    expect(finished.map(({ buffer }) => buffer)).toEqual(finishes);
    const env = environment(graph, TREES);
    const given = new Map([...env.params].map(([name, values]) => [name.toLowerCase(), values]));
    const names = module.buffers.filter(({ space }) => space === 'input').map(({ name }) => name);
    const inputs = new Map(names.map((name) => [name, given.get(name.replaceAll('_', ''))!]));
    const { sizes, tensors } = env;
    const bucket = scoringBucket({ tokens: 4096, rows: 4096, longest: 256 });
    const schedules = module.kernels.map((kernel): CudaSchedule => {
      const schedule = defaultCudaSchedule(kernel, module, FACTS, bucket);
      return schedule.kind === 'gemm' ? { ...schedule, cluster: 1 } : schedule;
    });
    const { values } = emulateModule(module, { sizes, inputs, tensors, schedules });
    const want = interpretModule(module, { sizes, buffers: inputs, tensors, round: true });
    // A last place of bf16 moves a few numbers over a border of 8 bits, and with them all that follows.
    const bounds = {
      h_e4m3: 1e-6,
      attended_bf16: 2e-3,
      h1_upper: 5e-3,
      h1_e4m3: 0.02,
      activated_bf16: 0.03,
      h2_upper: 0.04,
    };
    for (const [name, bound] of Object.entries(bounds))
      expect(error(values.get(name)!, want.get(name)!), name).toBeLessThan(bound);
  },
);
