/** A product with the logits of experts and the two kernels behind it, their schedules, and what they leave. */
import { cudaScheduling } from '../../../codegen/cuda/encoding.js';
import { TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaSchedule } from '../../../ir/cuda.js';
import { extentIn } from '../../../ir/extents.js';
import type { GemmKernel } from '../../../ir/kernel.js';
import { kernelReads, kernelWrites } from '../../../ir/kernelAccess.js';
import type { Bucket } from '../../../ir/plan.js';
import { at } from '../../../system/at.js';
import { randomSource } from '../harness.js';
import { arrangeModule, loadEmulator } from './emulate.js';
import { microCase, SMALL } from './microCases.js';
import { randomTensors } from './randomModel.js';

export const FACTS = TYPICAL_FACTS.sm_90a;
/** 40 experts are three tiles of logits, of which the last is not full. */
const { module: whole } = microCase({ ...SMALL, num_local_experts: 40, num_experts_per_tok: 3 });
const first = whole.kernels.findIndex((kernel) => kernel.anchor === 'gemm' && kernel.routing !== undefined);
export const kernels = whole.kernels.slice(first, first + 3);
const read = new Set(kernels.flatMap((kernel) => [...kernelReads(kernel)]));
export const module = { ...whole, kernels, weights: whole.weights.filter(({ name }) => read.has(name)) };
export const [product] = kernels as [GemmKernel, ...typeof kernels];

const bucketOf = (tokens: number): Bucket => ({ extents: { T: tokens, R: tokens, C: tokens }, longest: 64 });
export const defaults = (tokens: number): readonly CudaSchedule[] =>
  kernels.map((kernel) => cudaScheduling.default(kernel, module, FACTS, bucketOf(tokens)));

/** Settled schedules of the product and of the two kernels behind it. */
export function settledAt(tokens: number): readonly CudaSchedule[] {
  const own = whole.launches.slice(first, first + 3);
  const schedules = Object.fromEntries(defaults(tokens).map((schedule, i) => [at(own, i).signature, schedule]));
  const settled = cudaScheduling.settle!(module, own, schedules, bucketOf(tokens));
  return own.map(({ signature }) => settled[signature]!);
}

function inputsOf(tokens: number): ReadonlyMap<string, Float64Array> {
  const dice = randomSource(7);
  const written = new Set(kernels.flatMap((kernel) => [...kernelWrites(kernel)]));
  const sizes = bucketOf(tokens).extents;
  return new Map(
    module.buffers
      .filter(({ name, space }) => read.has(name) && !written.has(name) && space !== 'weight')
      .map(({ name, dtype, rows, columns }) => {
        const count = extentIn(rows, sizes) * Number(columns);
        const value = (): number => (dtype === 'f32' ? Math.abs(dice()) : dtype === 'u8' ? 77 : dice());
        return [name, Float64Array.from({ length: count }, value)];
      }),
  );
}

/** What the kernels leave under these schedules. */
export function run(
  tokens: number,
  schedules: readonly CudaSchedule[],
  backwards = false,
): ReadonlyMap<string, Float64Array> {
  const options = { sizes: bucketOf(tokens).extents, inputs: inputsOf(tokens), schedules };
  const tensors = randomTensors(module, randomSource(3));
  const { emitted, memory, values } = arrangeModule(module, { ...options, tensors });
  const emulate = loadEmulator(emitted);
  for (const text of emitted) emulate(text, memory, options.sizes, { backwards });
  return values();
}
