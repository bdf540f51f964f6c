/**
 * Microscaled weights of experts, on fibres: bits that depend on no tile, and are those of the same weights in bf16.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { emitCudaKernel, isLegalCuda, parametersOf } from '../../../codegen/cuda/index.js';
import { compileModel } from '../../../driver/compile/compile.js';
import { cuda } from '../../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { extentIn } from '../../../ir/extents.js';
import type { GemmKernel, KernelModule } from '../../../ir/kernel.js';
import { roundToMicroscaled } from '../../../ir/microscaled.js';
import { scoreOf } from '../../../ir/plan.js';
import { describeRandomCheckpoint } from '../../../models/randomCheckpoint.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { randomSource } from '../harness.js';
import { emulateModule } from './emulate.js';
import { expectGolden } from './golden.js';
import { randomTensors } from './randomModel.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-micro-'));
afterAll(() => rmSync(folder, { recursive: true }));
const VOCABULARY = 300;

/** A model of gpt-oss's kind, whose products of experts are 3 and 5 blocks of k deep. */
function gptOss(sizes: { hidden: number; width: number; layers: number; heads: number; experts: number }): string {
  const path = join(folder, `${JSON.stringify(sizes).replaceAll(/\W/g, '_')}.json`);
  writeFileSync(
    path,
    JSON.stringify({
      architectures: ['GptOssForCausalLM'],
      model_type: 'gpt_oss',
      torch_dtype: 'bfloat16',
      hidden_size: sizes.hidden,
      intermediate_size: sizes.width,
      num_hidden_layers: sizes.layers,
      num_attention_heads: sizes.heads,
      num_key_value_heads: 1,
      head_dim: 32,
      num_local_experts: sizes.experts,
      num_experts_per_tok: 2,
      vocab_size: VOCABULARY,
      sliding_window: 16,
      max_position_embeddings: 512,
      rms_norm_eps: 1e-5,
      quantization_config: { quant_method: 'mxfp4' },
    }),
  );
  return path;
}

const FACTS = TYPICAL_FACTS.sm_90a;
const planOf = (path: string) =>
  scoreOf(compileModel(describeRandomCheckpoint(path, 1), cuda, cudaDevice(FACTS, 'bf16'), { batchTokens: 512 }).plan);
const PLAN = planOf(gptOss({ hidden: 192, width: 320, layers: 1, heads: 2, experts: 5 }));

const isOfExperts = (kernel: KernelModule['kernels'][number]): kernel is GemmKernel =>
  kernel.anchor === 'gemm' && kernel.experts !== undefined;
const PRODUCTS = PLAN.kernels.filter(isOfExperts);
/** Values that MXFP4 has, so that both storages have the same. */
const TENSORS = new Map(
  [...randomTensors(PLAN, randomSource(3))].map(([name, tensor]) => [
    name,
    tensor.columns % 64 === 0 && tensor.rows > 1 ? { ...tensor, data: roundToMicroscaled(tensor.data) } : tensor,
  ]),
);

/** The same kernels with the weights in bf16. */
const DECODED = {
  ...PLAN,
  weights: PLAN.weights.map((weight) =>
    weight.layout === 'microscaled' ? ({ ...weight, layout: 'kmajor', format: 'bf16' } as const) : weight,
  ),
};

const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
const micro = (tm: number, tn: number, tk: number, stages: number): CudaGemmSchedule => ({
  ...{ ...GEMM, skeleton: 'micro' },
  ...{ tm, tn, tk, stages },
});
const MMA: CudaGemmSchedule = { ...GEMM, skeleton: 'mma', tm: 32, tn: 64, tk: 32, stages: 3 };
const SIMT: CudaGemmSchedule = { ...GEMM, skeleton: 'simt', tm: 16, tn: 64, tk: 32, stages: 1 };

/** Pairs of a row and an expert: one expert has more than any tile, one a row, one none. */
const COUNTS = [3, 81, 0, 1, 35] as const;
const SIZES = { T: 60, R: 60, C: 60 };

/** What the products of experts write, of made-up rows: the second reads what the first has left. */
function run(
  module: typeof PLAN,
  schedule: CudaGemmSchedule,
  options: { multiprocessors?: number; backwards?: boolean } = {},
): readonly (readonly [string, Float64Array])[] {
  for (const kernel of PRODUCTS) expect(isLegalCuda(kernel, module, schedule, FACTS)).toBe(true);
  const dice = randomSource(5);
  const starts = [0, ...COUNTS.map((_, i) => COUNTS.slice(0, i + 1).reduce<number>((sum, each) => sum + each, 0))];
  const read = PRODUCTS.flatMap((kernel) => parametersOf(kernel, module));
  const inputs = new Map(
    module.buffers
      .filter(({ name }) => read.includes(name))
      .map(({ name, rows, columns }): [string, Float64Array] => {
        if (name === PRODUCTS[0]!.experts!.starts) return [name, Float64Array.from(starts)];
        const count = typeof rows === 'number' ? rows : extentIn(rows, SIZES);
        return [name, Float64Array.from({ length: count * Number(columns) }, () => dice() - 0.5)];
      }),
  );
  const own = { ...module, kernels: PRODUCTS };
  const schedules = PRODUCTS.map(() => schedule);
  const { values } = emulateModule(own, { sizes: SIZES, inputs, tensors: TENSORS, schedules, ...options });
  return OUTPUTS.map((name) => [name, values.get(name)!]);
}

const OUTPUTS = PRODUCTS.flatMap(({ segments }) =>
  segments.flatMap(({ outputs }) => outputs.map(({ buffer }) => buffer)),
);

describe('microscaled weights of experts', () => {
  let reference: ReturnType<typeof run> = [];
  beforeAll(() => {
    expect(PRODUCTS).toHaveLength(2);
    reference = run(DECODED, MMA);
    for (const [, values] of reference) {
      expect(values.every((x) => Number.isFinite(x))).toBe(true);
      expect(new Set(values).size).toBeGreaterThan(1000);
    }
  });
  const CASES = [
    ['sixteen rows, few blocks', micro(16, 96, 64, 4), { multiprocessors: 2, backwards: true }],
    ['eight rows', micro(8, 48, 192, 2), { multiprocessors: 7 }],
    ['all rows', micro(64, 208, 128, 2), {}],
  ] as const;
  it.each(casesHere<(typeof CASES)[number]>(CASES, 1))('have the bits of bf16: %s', (_, schedule, options) => {
    expect(run(PLAN, schedule, options)).toEqual(reference);
  });
  thorough('are near what CUDA cores compute', () => {
    run(PLAN, SIMT).forEach(([, values], at) => {
      const [, wanted] = reference[at]!;
      const most = wanted.reduce((all, x) => Math.max(all, Math.abs(x)), 0);
      values.forEach((x, i) => expect(Math.abs(x - wanted[i]!)).toBeLessThan(most * 2 ** -6));
    });
  });
});

describe('the text', () => {
  it('is golden', async () => {
    await expectGolden(emitCudaKernel(PRODUCTS[0]!, PLAN, micro(8, 48, 192, 2), PLAN.capacity.extents).source, 'micro');
  });
});
