/** Calls without adapters on a GPU: they have buckets of their own, whose products know nothing of adapters. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { compileModel } from '../../driver/compile/compile.js';
import { checkPlan, legalityOf } from '../../driver/plan.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import { type LinkedFunction, linkFunction, type Plan } from '../../ir/plan.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { bucketsFor } from '../../runtime/call.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-adapter-buckets-'));
afterAll(() => rmSync(root, { recursive: true }));
const CONFIG = {
  ...{ architectures: ['LlamaForCausalLM'], model_type: 'llama', torch_dtype: 'bfloat16' },
  ...{ hidden_size: 128, intermediate_size: 192, num_hidden_layers: 1, vocab_size: 320 },
  ...{ num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 256, rms_norm_eps: 1e-5 },
};
writeFileSync(join(root, 'config.json'), JSON.stringify(CONFIG));

/** The same stored in 4 bits: blocks of codes have 128 columns. */
const CODES = {
  gptq: { quant_method: 'gptq', bits: 4, group_size: 64, desc_act: false, sym: false },
  awq: { quant_method: 'awq', bits: 4, group_size: 128, zero_point: true, version: 'gemm' },
} as const;
for (const [name, quantization_config] of Object.entries(CODES)) {
  mkdirSync(join(root, name));
  writeFileSync(
    join(root, name, 'config.json'),
    JSON.stringify({ ...CONFIG, intermediate_size: 256, quantization_config }),
  );
}

const DEVICE = cudaDevice(TYPICAL_FACTS.sm_90a, 'bf16');
const compile = (adapters?: { readonly slots: number; readonly rank: number }): Plan<CudaSchedule> =>
  compileModel(describeRandomCheckpoint(root, 1), cuda, DEVICE, {
    ...{ batchTokens: 64, cacheTokens: 256 },
    ...(adapters === undefined ? {} : { adapters }),
  }).plan;

const adapted = compile({ slots: 4, rank: 16 });
const plain = compile();
const [step, plainStep] = [linkFunction(adapted, 'step'), linkFunction(plain, 'step')];

/** The text of each gemm kernel in a bucket, and its schedule, by path. */
const productsOf = (fn: LinkedFunction<CudaSchedule>, bucket: number) =>
  new Map(
    fn.kernels.flatMap((kernel, i) => {
      if (kernel.anchor !== 'gemm') return [];
      const schedule = fn.schedules[bucket]![fn.launches[i]!.signature]!;
      return [[kernel.path, { schedule, text: emitCudaKernel(kernel, fn, schedule, fn.capacity.extents) }] as const];
    }),
  );

const sizeOf = (tokens: number) => ({ T: tokens, C: 64, R: tokens });

describe('buckets of a model with slots for adapters', () => {
  it('hold calls without adapters by themselves', () => {
    for (const tokens of [1, 8, 40]) {
      const [own] = bucketsFor(step.buckets, sizeOf(tokens), 0);
      expect(step.buckets[own!]!.withoutAdapters).toBe(true);
      const others = bucketsFor(step.buckets, sizeOf(tokens), 0, { hasAdapters: true });
      expect(others.some((bucket) => step.buckets[bucket]!.withoutAdapters === true)).toBe(false);
      const [same] = bucketsFor(plainStep.buckets, sizeOf(tokens), 0);
      expect(step.buckets[own!]!.extents).toEqual(plainStep.buckets[same!]!.extents);
    }
    // Others use kernels of calls with adapters while their own are compiled.
    expect(bucketsFor(step.buckets, sizeOf(8), 0).map((bucket) => step.buckets[bucket]!.withoutAdapters)).toContain(
      undefined,
    );
  });

  it('have the products of a model without slots, and no shrink kernel', () => {
    for (const tokens of [1, 40]) {
      const own = productsOf(step, bucketsFor(step.buckets, sizeOf(tokens), 0)[0]!);
      const same = productsOf(plainStep, bucketsFor(plainStep.buckets, sizeOf(tokens), 0)[0]!);
      expect(own.size).toBe(4);
      for (const [path, { schedule, text }] of own) {
        const { schedule: expected, text: wanted } = same.get(path)!;
        expect(schedule).toEqual({ ...expected, adapters: 'none' });
        expect(text.launch).toEqual(wanted.launch);
        expect(text.source).not.toMatch(/Adapted|\.adapter =/);
      }
    }
    const bucket = bucketsFor(step.buckets, sizeOf(1), 0)[0]!;
    step.kernels.forEach((kernel, i) => {
      if (kernel.anchor !== 'shrink') return;
      const schedule = step.schedules[bucket]![step.launches[i]!.signature]!;
      const { launch } = emitCudaKernel(kernel, step, schedule, step.capacity.extents);
      expect(launch.gridX).toEqual({ kind: 'constant', count: 0 });
    });
  });

  it('with adapters have products that shrink few rows themselves', () => {
    for (const tokens of [1, 40]) {
      const bucket = bucketsFor(step.buckets, sizeOf(tokens), 0, { hasAdapters: true })[0]!;
      for (const { schedule, text } of productsOf(step, bucket).values()) {
        expect(schedule).toMatchObject({ skeleton: 'skinnyWgmma', adapters: 'shrinks' });
        expect(text.source).toContain('Shrinking<');
      }
      step.kernels.forEach(({ anchor }, i) => {
        if (anchor === 'shrink')
          expect(step.schedules[bucket]![step.launches[i]!.signature]).toMatchObject({ isIdle: true });
      });
    }
  });

  it('are refused where their kernels disagree', () => {
    const legality = legalityOf(cudaScheduling, DEVICE);
    expect(() => checkPlan(adapted, legality)).not.toThrow();
    const bucket = bucketsFor(step.buckets, sizeOf(8), 0, { hasAdapters: true })[0]!;
    const product = step.launches[step.kernels.findIndex(({ anchor }) => anchor === 'gemm')]!.signature;
    const shrink = step.launches[step.kernels.findIndex(({ anchor }) => anchor === 'shrink')]!.signature;
    const changed = (signature: string, change: object): Plan<CudaSchedule> => {
      const schedules = step.schedules.map((each, i) =>
        i === bucket ? { ...each, [signature]: { ...each[signature]!, ...change } as CudaSchedule } : each,
      );
      const functions = adapted.functions.map((fn) => (fn.interface.name === 'step' ? { ...fn, schedules } : fn));
      return { ...adapted, functions };
    };
    expect(() => checkPlan(changed(product, { adapters: 'none' }), legality)).toThrow('what adapters add');
    expect(() => checkPlan(changed(product, { adapters: undefined }), legality)).toThrow('what adapters add');
    expect(() => checkPlan(changed(shrink, { isIdle: undefined }), legality)).toThrow('what adapters add');
  });
});

describe('a model whose matrices stay in 4 bits', () => {
  const device = cudaDevice(TYPICAL_FACTS.sm_90a, 'int4');
  const compiled = (name: keyof typeof CODES, adapters?: { readonly slots: number; readonly rank: number }) =>
    compileModel(describeRandomCheckpoint(join(root, name), 1), cuda, device, {
      ...{ batchTokens: 64, cacheTokens: 256 },
      ...(adapters === undefined ? {} : { adapters }),
    }).plan;

  it.each(['gptq', 'awq'] as const)('takes adapters beside them: %s', (name) => {
    const plan = compiled(name, { slots: 4, rank: 16 });
    expect(() => checkPlan(plan, legalityOf(cudaScheduling, device))).not.toThrow();
    const [fn, without] = [plan, compiled(name)].map((each) => linkFunction(each, 'step'));
    for (const tokens of [1, 40]) {
      const own = productsOf(fn!, bucketsFor(fn!.buckets, sizeOf(tokens), 0, { hasAdapters: true })[0]!);
      expect(own.size).toBe(4);
      for (const { schedule, text } of own.values()) {
        expect(schedule).toMatchObject({ skeleton: 'grouped' });
        expect(schedule).not.toHaveProperty('adapters');
        expect(text.source).toContain('Adapted<');
      }
      const bucket = bucketsFor(fn!.buckets, sizeOf(tokens), 0)[0]!;
      const same = productsOf(without!, bucketsFor(without!.buckets, sizeOf(tokens), 0)[0]!);
      for (const [path, { schedule }] of productsOf(fn!, bucket))
        expect(schedule).toEqual({ ...same.get(path)!.schedule, adapters: 'none' });
    }
    // Norm weights stay with the rows, so that first factors have none.
    for (const { slots, columnScale } of plan.weights) if (slots !== undefined) expect(columnScale).toBeUndefined();
    expect(plan.weights.filter(({ slots }) => slots?.holds === 'b').map(({ format }) => format)).toEqual(
      Array.from({ length: 6 }, () => 'bf16'),
    );
  });

  it('differs from matrices of 8 bits, which take none', () => {
    const narrow = cudaDevice(TYPICAL_FACTS.sm_90a, 'fp8');
    const adapters = { slots: 1, rank: 16 };
    expect(() => compileModel(describeRandomCheckpoint(root, 1), cuda, narrow, { batchTokens: 64, adapters })).toThrow(
      'adapters are not supported beside matrices of fp8',
    );
  });
});
