/** Latent attention on CUDA, run over fibres: products of single heads, and keys that are values, beside float64. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../codegen/cuda/index.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { Kernel } from '../../ir/kernel.js';
import { scoreOf } from '../../ir/plan.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { randomSource } from '../codegen/harness.js';
import { checkKernels, kernelsToCheck } from '../codegen/cuda/checkKernels.js';
import { loadEmulator } from '../codegen/cuda/emulate.js';
import { randomBatch, randomTensors } from '../codegen/cuda/randomModel.js';

const CAPACITY = 64;
const FACTS = TYPICAL_FACTS.sm_90a;
const VOCAB = 530;
const folder = mkdtempSync(join(tmpdir(), 'tilewright-latent-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const gemm = (skeleton: 'simt' | 'mma', tn: number, tm = 32): CudaSchedule => ({
  ...{ kind: 'gemm', skeleton, tm, tn, tk: 32, stages: skeleton === 'mma' ? 2 : 1, cluster: 1, raster: 2 },
  mode: 'cooperative',
});
const SIMT: CudaSchedule = { kind: 'attention', skeleton: 'simt', queries: 4, keys: 32 };

const WIDTHS = [
  { rank: 64, turned: 8, plain: 16, values: 32, products: ['simt', 'mma'] },
  { rank: 45, turned: 8, plain: 3, values: 6, products: ['simt'] },
  { rank: 40, turned: 24, plain: 8, values: 20, products: ['simt'] },
] as const;

describe('latent attention', () => {
  it.each(WIDTHS)(
    'agrees with float64: $rank + $turned, $plain, $values',
    async ({ rank, turned, plain, values, products }) => {
      const config = {
        ...{ architectures: ['DeepseekV2ForCausalLM'], model_type: 'deepseek_v2', torch_dtype: 'bfloat16' },
        ...{ hidden_size: 48, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 3, vocab_size: VOCAB },
        ...{
          q_lora_rank: null,
          kv_lora_rank: rank,
          qk_nope_head_dim: plain,
          qk_rope_head_dim: turned,
          v_head_dim: values,
        },
        ...{ first_k_dense_replace: 2, n_routed_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32 },
      };
      writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
      const options = { batchTokens: CAPACITY, mask: cuda.compiler.mask };
      const { plan } = compileModel(describeRandomCheckpoint(folder, 3), cuda, cudaDevice(FACTS, 'bf16'), options);
      const module = scoreOf(plan);
      const tried = new Set<string>();
      module.schedules.forEach((bucket) => {
        module.launches.forEach(({ signature }, i) => {
          expect(isLegalCuda(module.kernels[i]!, module, bucket[signature]!, FACTS), module.kernels[i]!.name).toBe(
            true,
          );
        });
      });
      const schedulesOf = (kernel: Kernel): readonly CudaSchedule[] => {
        if (kernel.anchor === 'attention') return [SIMT];
        if (kernel.anchor !== 'gemm' && kernel.anchor !== 'logprob') return [{ kind: 'loop', threads: 128 }];
        // Pairs that turn together lie in one tile: heads of 24 want tiles of a multiple of that.
        const simt = [gemm('simt', 32, 16), gemm('simt', 64), gemm('simt', 48, 16), gemm('simt', 96, 16)];
        const all = [...simt, gemm('mma', 32), gemm('mma', 64, 16)];
        const legal = all.filter((each) => isLegalCuda(kernel, module, each, FACTS) === true);
        if (kernel.anchor === 'logprob' || kernel.heads === undefined) return legal.slice(0, 1);
        for (const each of legal) if (each.kind === 'gemm') tried.add(each.skeleton);
        return legal;
      };
      const list = kernelsToCheck(module, CAPACITY, schedulesOf);
      expect(list.filter(({ kernel }) => kernel.anchor === 'gemm' && kernel.heads === 3)).toHaveLength(4);
      const run = loadEmulator(list.flatMap(({ texts }) => texts.map(({ text }) => text)));
      await checkKernels(list, {
        module,
        tensors: randomTensors(plan, randomSource(5)),
        ...randomBatch({ T: 37, R: 19 }, VOCAB, 7),
        capacity: CAPACITY,
        where: 'latent',
        launch: (text, memory, sizes) => {
          run(text, memory, { ...sizes });
        },
      });
      expect([...tried].toSorted()).toEqual([...products].toSorted());
    },
  );
});
