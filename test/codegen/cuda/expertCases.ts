/** A model of five experts whose products are emulated over fibres, under any legal schedule. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import { compileModel } from '../../../driver/compile/compile.js';
import { cuda } from '../../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import { scoreOf } from '../../../ir/plan.js';
import { describeRandomCheckpoint } from '../../../models/randomCheckpoint.js';
import { randomSource } from '../harness.js';
import { type EmulateOptions, emulateModule } from './emulate.js';
import { randomBatch, randomTensors } from './randomModel.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-experts-'));
const VOCABULARY = 600;
writeFileSync(
  join(folder, 'config.json'),
  JSON.stringify({
    architectures: ['MixtralForCausalLM'],
    model_type: 'mixtral',
    torch_dtype: 'bfloat16',
    hidden_size: 80,
    intermediate_size: 72,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 32,
    num_local_experts: 5,
    num_experts_per_tok: 2,
    vocab_size: VOCABULARY,
    max_position_embeddings: 512,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: true,
  }),
);
export const FACTS = TYPICAL_FACTS.sm_90a;
export const PLAN = scoreOf(
  compileModel(describeRandomCheckpoint(folder, 1), cuda, cudaDevice(TYPICAL_FACTS.sm_80, 'bf16'), { batchTokens: 512 })
    .plan,
);
rmSync(folder, { recursive: true });
export const BATCH = randomBatch({ T: 150, R: 20 }, VOCABULARY, 4);
export const TENSORS = randomTensors(PLAN, randomSource(3));
export const GROUPED = PLAN.kernels
  .filter((kernel) => kernel.anchor === 'gemm')
  .filter(({ experts }) => experts !== undefined);
export const wgmma = (mode: CudaGemmSchedule['mode'], tm: number, tn: number, stages: number): CudaGemmSchedule => ({
  kind: 'gemm',
  skeleton: 'wgmma',
  tm,
  tn,
  tk: 64,
  stages,
  cluster: 1,
  raster: 2,
  mode,
});

/** Values of all buffers where the products of experts have `schedule`, the other kernels their defaults. */
export function emulateExperts(
  schedule: CudaGemmSchedule,
  options: Pick<EmulateOptions, 'backwards' | 'mutate' | 'multiprocessors'>,
): ReadonlyMap<string, Float64Array> {
  const schedules = PLAN.kernels.map((kernel, i): CudaSchedule => {
    if (!GROUPED.some((each) => each === kernel)) return PLAN.schedules[0]![PLAN.launches[i]!.signature]!;
    const verdict = isLegalCuda(kernel, PLAN, schedule, FACTS);
    if (verdict !== true) throw new Error(`${kernel.name}: ${verdict}`);
    return schedule;
  });
  return emulateModule(PLAN, { ...BATCH, tensors: TENSORS, schedules, tokensCapacity: 512, ...options }).values;
}
