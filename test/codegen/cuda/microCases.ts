/** Products of experts with microscaled weights, and the same in bf16: what the skeleton for them is tested on. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parametersOf } from '../../../codegen/cuda/index.js';
import { compileModel } from '../../../driver/compile/compile.js';
import { cuda } from '../../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { extentIn } from '../../../ir/extents.js';
import type { GemmKernel, KernelModule } from '../../../ir/kernel.js';
import { roundToMicroscaled } from '../../../ir/microscaled.js';
import { scoreOf } from '../../../ir/plan.js';
import type { Json } from '../../../models/model/model.js';
import { describeRandomCheckpoint } from '../../../models/randomCheckpoint.js';
import { randomSource } from '../harness.js';
import { type Arranged, arrangeModule, type EmulateOptions } from './emulate.js';
import { randomTensors } from './randomModel.js';

export interface MicroCase {
  /** Whose experts are in MXFP4, and the same with them in bf16. */
  readonly module: ReturnType<typeof scoreOf>;
  readonly decoded: ReturnType<typeof scoreOf>;
  /** Gate and up, and down. */
  readonly products: readonly GemmKernel[];
}

const isOfExperts = (kernel: KernelModule['kernels'][number]): kernel is GemmKernel =>
  kernel.anchor === 'gemm' && kernel.experts !== undefined;

/** A model of 20 billion parameters, of two layers. */
const CONFIG: Json = {
  architectures: ['GptOssForCausalLM'],
  model_type: 'gpt_oss',
  torch_dtype: 'bfloat16',
  hidden_size: 2880,
  intermediate_size: 2880,
  num_hidden_layers: 2,
  layer_types: ['sliding_attention', 'full_attention'],
  num_attention_heads: 64,
  num_key_value_heads: 8,
  head_dim: 64,
  num_local_experts: 32,
  num_experts_per_tok: 4,
  vocab_size: 2048,
  max_position_embeddings: 131_072,
  quantization_config: { quant_method: 'mxfp4' },
};

/** The first layer's products of that model, changed. */
export function microCase(changes: Json, batchTokens = 512): MicroCase {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-micro-'));
  try {
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...CONFIG, ...changes }));
    const checkpoint = describeRandomCheckpoint(folder, 1);
    const module = scoreOf(
      compileModel(checkpoint, cuda, cudaDevice(TYPICAL_FACTS.sm_90a, 'bf16'), { batchTokens }).plan,
    );
    const weights = module.weights.map((weight) =>
      weight.layout === 'microscaled' ? ({ ...weight, layout: 'kmajor', format: 'bf16' } as const) : weight,
    );
    return {
      module,
      decoded: { ...module, weights },
      products: module.kernels.filter(isOfExperts).slice(0, 2),
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Three and five blocks of k, and five experts; one layer. */
export const SMALL: Json = {
  hidden_size: 192,
  intermediate_size: 320,
  num_hidden_layers: 1,
  layer_types: ['sliding_attention'],
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 32,
  num_local_experts: 5,
  num_experts_per_tok: 2,
  vocab_size: 300,
};
/** Rows of each expert: one has more than a tile, one has one, one none. */
const COUNTS: readonly number[] = [3, 81, 0, 1, 35];
const SIZES = { T: 60, R: 60, C: 60 };

/** The products, a schedule each, of made-up rows: the second reads what the first has left. */
export function arrangeMicro(
  { module, decoded, products }: MicroCase,
  schedules: readonly CudaGemmSchedule[],
  isDecoded: boolean,
): { readonly module: KernelModule; readonly options: EmulateOptions } {
  const dice = randomSource(5);
  const starts = [0];
  for (const count of COUNTS) starts.push(starts.at(-1)! + count);
  const owners = COUNTS.flatMap((count, expert) => Array.from({ length: count }, () => expert));
  const read = products.flatMap((kernel) => parametersOf(kernel, module));
  const inputs = new Map(
    module.buffers
      .filter(({ name }) => read.includes(name))
      .map(({ name, dtype, rows, columns }): [string, Float64Array] => {
        if (name === products[0]!.experts!.starts) return [name, Float64Array.from(starts)];
        if (dtype === 'i32') return [name, Float64Array.from(owners)];
        const count = typeof rows === 'number' ? rows : extentIn(rows, SIZES);
        return [name, Float64Array.from({ length: count * Number(columns) }, () => dice() - 0.5)];
      }),
  );
  // Values that MXFP4 has, so that both storages have the same.
  const tensors = new Map(
    [...randomTensors(module, randomSource(3))].map(([name, tensor]) => [
      name,
      tensor.columns % 64 === 0 && tensor.rows > 1 ? { ...tensor, data: roundToMicroscaled(tensor.data) } : tensor,
    ]),
  );
  const own = { ...(isDecoded ? decoded : module), kernels: products };
  return { module: own, options: { sizes: SIZES, inputs, tensors, schedules } };
}

/** What the products write. */
export const outputsOf = ({ products }: MicroCase): readonly string[] =>
  products.flatMap(({ segments }) => segments.flatMap(({ outputs }) => outputs.map(({ buffer }) => buffer)));

/** The same, for running it on a GPU. */
export const arrangedMicro = (own: MicroCase, schedule: CudaGemmSchedule, isDecoded: boolean): Arranged => {
  const { module, options } = arrangeMicro(own, [schedule, schedule], isDecoded);
  return arrangeModule(module, options);
};
export const MICRO_SIZES = SIZES;
