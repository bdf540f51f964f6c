/**
 * What families add to LLaMA's kernels, for GPUs: both functions of a small model of each are compiled by nvcc for
 * both architectures, and the kernels of score, run over fibres, give what kernel IR says.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { CudaModel } from '../../driver/targets/cudaKernels.js';
import { CUDA_ARCHS, type CudaArch } from '../../ir/cuda.js';
import type { AttentionKernel } from '../../ir/kernel.js';
import { interpretKernel, type KernelEnv } from '../../ir/kernelInterpreter.js';
import { linkFunction, scoreOf } from '../../ir/plan.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { besideCuts, partsOf, usual } from '../codegen/cuda/besideCuts.js';
import { numbersOf } from '../codegen/cuda/checkKernels.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { randomBatch, randomTensors } from '../codegen/cuda/randomModel.js';
import { randomSource } from '../codegen/harness.js';
import { compileByNvcc, hasNvcc } from '../support/nvcc.js';

const VOCABULARY = 600;
const FAMILIES = [
  ['MistralForCausalLM', { model_type: 'mistral', sliding_window: 20 }],
  ['Qwen3ForCausalLM', { model_type: 'qwen3' }],
  [
    'Olmo3ForCausalLM',
    { model_type: 'olmo3', sliding_window: 20, layer_types: ['sliding_attention', 'full_attention'] },
  ],
  [
    'GraniteForCausalLM',
    {
      model_type: 'granite',
      embedding_multiplier: 3,
      residual_multiplier: 0.4,
      attention_multiplier: 0.15,
      logits_scaling: 1.7,
    },
  ],
  ['SmolLM3ForCausalLM', { model_type: 'smollm3', no_rope_layers: [0, 1] }],
  ['MixtralForCausalLM', { model_type: 'mixtral', num_local_experts: 5, intermediate_size: 96 }],
  [
    'Qwen2MoeForCausalLM',
    {
      model_type: 'qwen2_moe',
      num_experts: 6,
      num_experts_per_tok: 3,
      moe_intermediate_size: 72,
      shared_expert_intermediate_size: 96,
      decoder_sparse_step: 2,
    },
  ],
  ['PhiForCausalLM', { model_type: 'phi', hidden_size: 256, num_key_value_heads: 4 }],
  ['GPTNeoXForCausalLM', { model_type: 'gpt_neox', num_key_value_heads: 4, rotary_pct: 0.25 }],
  ['GemmaForCausalLM', { model_type: 'gemma', tie_word_embeddings: true }],
  [
    'Gemma2ForCausalLM',
    { model_type: 'gemma2', sliding_window: 24, attn_logit_softcapping: 2, final_logit_softcapping: 3 },
  ],
  ['Gemma3ForCausalLM', { model_type: 'gemma3_text', sliding_window: 24, sliding_window_pattern: 2 }],
  ['FalconForCausalLM', { model_type: 'falcon', new_decoder_architecture: true, num_kv_heads: 2, hidden_size: 256 }],
  ['GPT2LMHeadModel', { model_type: 'gpt2', hidden_size: 256 }],
  ['CohereForCausalLM', { model_type: 'cohere', use_qk_norm: true }],
  ['ArceeForCausalLM', { model_type: 'arcee' }],
  ['ApertusForCausalLM', { model_type: 'apertus' }],
  [
    'Glm4MoeForCausalLM',
    { model_type: 'glm4_moe', n_routed_experts: 8, num_experts_per_tok: 2, n_group: 4, topk_group: 2 },
  ],
  [
    'MiniMaxM2ForCausalLM',
    { model_type: 'minimax_m2', num_local_experts: 6, num_experts_per_tok: 2, intermediate_size: 96 },
  ],
  [
    'PhimoeForCausalLM',
    { model_type: 'phimoe', num_local_experts: 6, router_jitter_noise: 0.3, attention_bias: true, lm_head_bias: true },
  ],
  [
    'Llama4ForCausalLM',
    { model_type: 'llama4_text', num_local_experts: 6, num_experts_per_tok: 2, intermediate_size_mlp: 96 },
  ],
  ['HunYuanDenseV1ForCausalLM', { model_type: 'hunyuan_v1_dense' }],
  ['Glm4ForCausalLM', { model_type: 'glm4', partial_rotary_factor: 0.5 }],
  [
    'Exaone4ForCausalLM',
    { model_type: 'exaone4', sliding_window: 20, layer_types: ['sliding_attention', 'full_attention'] },
  ],
  ['Cohere2ForCausalLM', { model_type: 'cohere2', sliding_window: 24, sliding_window_pattern: 2 }],
] as const;

const folder = mkdtempSync(join(tmpdir(), 'tilewright-families-'));
afterAll(() => rmSync(folder, { recursive: true }));

function compiled(architecture: string, changes: object, arch: CudaArch, cacheTokens?: number): CudaModel {
  const config = {
    architectures: [architecture],
    torch_dtype: 'bfloat16',
    hidden_size: 128,
    intermediate_size: 192,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 64,
    vocab_size: VOCABULARY,
    max_position_embeddings: 512,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: false,
    ...changes,
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  return compileModel(describeRandomCheckpoint(folder, 1), cuda, cudaDevice(TYPICAL_FACTS[arch], 'bf16'), {
    batchTokens: 512,
    ...(cacheTokens === undefined ? {} : { cacheTokens }),
  });
}

/** The largest difference of numbers of a buffer, relative to its usual size. */
const error = (got: Float64Array, want: Float64Array): number =>
  got.reduce((most, x, i) => {
    if (x === want[i]) return most;
    const d = Math.abs(x - want[i]!) / Math.max(usual(want), Math.abs(want[i]!));
    return Number.isNaN(d) ? Infinity : Math.max(most, d);
  }, 0);

const MOST: Readonly<Record<string, number>> = { u8: 2 ** -15, bf16: 2 ** -7 };
const F32_LOSS = 2e-5;

/** The unit roundoff of bf16. */
const BF16_ROUNDING = 2 ** -8;

/**
 * By how much attention in bf16 exceeds its error bound against float64. Its weights p are added up in f32, but rounded
 * to bf16 as operands of the product with v. So Σ p·v is off by up to the roundoff times Σ p·|v|, which kernel IR does
 * not model. The result is rounded once more.
 */
function beyondRounding(kernel: AttentionKernel, env: KernelEnv, got: Float64Array): number {
  const exact = interpretKernel(kernel, { ...env, round: false }).get(kernel.out)!;
  const sizes = new Map([...env.buffers, [kernel.v, env.buffers.get(kernel.v)!.map(Math.abs)]]);
  const terms = interpretKernel(kernel, { ...env, round: false, buffers: sizes }).get(kernel.out)!;
  return got.reduce((most, x, i) => {
    const bound = BF16_ROUNDING * (terms[i]! + Math.abs(exact[i]!)) + F32_LOSS * terms[i]!;
    return Math.max(most, Math.abs(x - exact[i]!) - bound);
  }, -Infinity);
}

/**
 * Bytes that a thread may store for want of registers. Attention within a window or with a cap lacks up to six. On
 * sm_80 the tile that adds an expert of all tokens, times its gate, to a stream in two parts lacks 13.
 */
const MAX_SPILLED: Readonly<Record<CudaArch, number>> = { sm_80: 52, sm_90a: 24 };

describe.each(FAMILIES)('%s', (architecture, changes) => {
  it('gives what kernel IR says, kernel by kernel', () => {
    const plan = scoreOf(compiled(architecture, changes, 'sm_80').plan);
    const { sizes, inputs } = randomBatch({ T: 45, R: 13 }, VOCABULARY, 4);
    const schedules = plan.launches.map(({ signature }) => {
      const schedule = plan.schedules[0]![signature]!;
      return schedule.kind === 'gemm' ? { ...schedule, tm: 32, tn: 64, raster: 2 } : schedule;
    });
    const tensors = randomTensors(plan, randomSource(3));
    const { values } = emulateModule(plan, { sizes, inputs, tensors, schedules, tokensCapacity: 512 });
    const env = { sizes, buffers: values, tensors, decls: plan, round: true };
    for (const kernel of plan.kernels.flatMap(partsOf))
      for (const [name, wanted] of interpretKernel(kernel, env)) {
        const decl = plan.buffers.find((buffer) => buffer.name === name)!;
        const most = MOST[decl.dtype] ?? F32_LOSS;
        const [got, right] = [numbersOf(decl, values), numbersOf(decl, new Map([...values, [name, wanted]]))];
        if (kernel.anchor === 'attention') {
          expect(beyondRounding(kernel, env, got), `${kernel.name}: ${name}`).toBeLessThanOrEqual(0);
          continue;
        }
        const beside =
          kernel.anchor === 'gemm' && error(got, right) > most
            ? besideCuts(kernel, env, F32_LOSS).get(name)!
            : { low: right, high: right };
        const nearest = got.map((y, i) => Math.min(Math.max(y, beside.low[i]!), beside.high[i]!));
        expect(error(got, nearest), `${kernel.name}: ${name}`).toBeLessThanOrEqual(most);
      }
  });

  it.skipIf(!hasNvcc).each(CUDA_ARCHS)('is compiled for %s without warnings, for both functions', (arch) => {
    const { plan: whole } = compiled(architecture, changes, arch, 1024);
    expect(whole.functions.map(({ interface: { name } }) => name)).toEqual(expect.arrayContaining(['score', 'step']));
    const texts = whole.functions.flatMap(({ interface: { name } }) => {
      const plan = linkFunction(whole, name);
      return plan.kernels.map((kernel, i) =>
        emitCudaKernel(kernel, plan, plan.schedules.at(-1)![plan.launches[i]!.signature]!, plan.capacity.extents),
      );
    });
    const kernels = [...new Map(texts.map((text) => [text.source, text])).values()];
    const spilled = compileByNvcc(kernels, arch).map(
      ({ spillStores }, i) => [kernels[i]!.symbol, spillStores] as const,
    );
    expect(spilled.filter(([, bytes]) => bytes > MAX_SPILLED[arch])).toEqual([]);
  });
});
