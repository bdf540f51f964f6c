/**
 * Products of experts by warpgroup products, over fibres: row tiles begin where an expert's rows do. Beside kernel IR,
 * and equal to the bit in all schedules.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import { compileModel } from '../../../driver/compile/compile.js';
import { cuda } from '../../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import type { Kernel, RouteKernel } from '../../../ir/kernel.js';
import { interpretKernel } from '../../../ir/kernelInterpreter.js';
import { scoreOf } from '../../../ir/plan.js';
import { describeRandomCheckpoint } from '../../../models/randomCheckpoint.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { randomSource } from '../harness.js';
import { besideCuts } from './besideCuts.js';
import { emulateModule } from './emulate.js';
import { expectGolden } from './golden.js';
import { randomBatch, randomTensors } from './randomModel.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-experts-'));
afterAll(() => rmSync(folder, { recursive: true }));
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
const FACTS = TYPICAL_FACTS.sm_90a;
const PLAN = scoreOf(
  compileModel(describeRandomCheckpoint(folder, 1), cuda, cudaDevice(TYPICAL_FACTS.sm_80, 'bf16'), { batchTokens: 512 })
    .plan,
);
const BATCH = randomBatch({ T: 150, R: 20 }, VOCABULARY, 4);
const TENSORS = randomTensors(PLAN, randomSource(3));
const GROUPED = PLAN.kernels
  .filter((kernel) => kernel.anchor === 'gemm')
  .filter(({ experts }) => experts !== undefined);
const RESULTS = GROUPED.flatMap(({ segments }) =>
  segments.flatMap(({ outputs }) => outputs.map(({ buffer }) => buffer)),
);

const wgmma = (mode: CudaGemmSchedule['mode'], tm: number, tn: number, stages: number): CudaGemmSchedule => ({
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

const known = new Map<CudaGemmSchedule, ReadonlyMap<string, Float64Array>>();

/** Values of all buffers where the products of experts have `schedule`, the other kernels their defaults. */
function valuesOf(schedule: CudaGemmSchedule, options: { multiprocessors?: number; backwards?: boolean }) {
  const schedules = PLAN.kernels.map((kernel, i): CudaSchedule => {
    if (!GROUPED.some((each) => each === kernel)) return PLAN.schedules[0]![PLAN.launches[i]!.signature]!;
    expect(isLegalCuda(kernel, PLAN, schedule, FACTS)).toBe(true);
    return schedule;
  });
  const values =
    known.get(schedule) ??
    emulateModule(PLAN, { ...BATCH, tensors: TENSORS, schedules, tokensCapacity: 512, ...options }).values;
  known.set(schedule, values);
  return values;
}

/** Of bf16 numbers, relative to the largest. */
const ROUNDING = 2 ** -8;

const CASES = [
  ['narrow, few blocks', wgmma('pingpong', 64, 96, 3), { multiprocessors: 2, backwards: true }],
  ['tall', wgmma('pingpong', 128, 64, 4), {}],
  ['wide', wgmma('pingpong', 64, 256, 2), { multiprocessors: 5 }],
  ['tall and wide', wgmma('pingpong', 128, 208, 2), { multiprocessors: 1, backwards: true }],
] as const;

describe('products of experts on Hopper', () => {
  it.each(casesHere<(typeof CASES)[number]>(CASES, 0))('agree with kernel IR: %s', (_, schedule, options) => {
    const values = valuesOf(schedule, options);
    const env = { sizes: BATCH.sizes, buffers: values, tensors: TENSORS, decls: PLAN, round: true };
    for (const kernel of GROUPED)
      for (const [name, wanted] of interpretKernel(kernel, env)) {
        const got = values.get(name)!;
        const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
        expect(largest).toBeGreaterThan(0.1);
        const { low, high } = besideCuts(kernel, env, 2e-5).get(name)!;
        got.forEach((x, i) => {
          expect(Math.max(low[i]! - x, x - high[i]!) / largest).toBeLessThan(ROUNDING);
        });
      }
  });

  it('have golden text', async () => {
    const schedule = wgmma('pingpong', 64, 96, 3);
    await expectGolden(emitCudaKernel(GROUPED[0]!, PLAN, schedule, PLAN.capacity.extents).source, 'wgmmaExperts');
    const mma = { ...schedule, skeleton: 'mma', mode: 'cooperative', tn: 64, tk: 32 } as const;
    await expectGolden(emitCudaKernel(GROUPED[0]!, PLAN, mma, PLAN.capacity.extents).source, 'mmaExperts');
  });

  it.each(['route', 'sortByExpert'] as const)('are chosen and put in order by golden text: %s', async (anchor) => {
    const { pairs, ...route } = PLAN.kernels.find((each): each is RouteKernel => each.anchor === 'route')!;
    const { weights: _, logits, ...own } = route;
    const kernel: Kernel = anchor === 'route' ? { ...route, pairs: pairs! } : { ...own, ...pairs!, anchor };
    const loop = { kind: 'loop', threads: 128 } as const;
    await expectGolden(emitCudaKernel(kernel, PLAN, loop, PLAN.capacity.extents).source, anchor);
  });

  thorough('have the same bits in every schedule', () => {
    const outputs = PLAN.buffers.filter(({ space }) => space === 'output').map(({ name }) => name);
    const [first, ...others] = casesHere<(typeof CASES)[number]>(CASES, 0, 1).map(([, schedule, options]) =>
      valuesOf(schedule, options),
    );
    for (const name of [...outputs, ...RESULTS])
      for (const values of others) expect(values.get(name), name).toEqual(first!.get(name));
  });

  it('take no clusters, and warpgroups in turn', () => {
    for (const illegal of [
      { ...wgmma('pingpong', 64, 64, 2), cluster: 2 } as const,
      wgmma('deferred', 128, 64, 2),
      wgmma('cooperative', 128, 64, 2),
    ])
      expect(isLegalCuda(GROUPED[0]!, PLAN, illegal, FACTS)).toMatch(/expert/);
  });
});
