/** Heads of classes as GPUs run them, over fibres: score and step give what kernel IR means, and the same bits. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { compileModel } from '../../driver/compile/compile.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { CUDA_ARCHS } from '../../ir/cuda.js';
import { fitsIn } from '../../ir/extents.js';
import { SCORE, STEP } from '../../ir/function.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { linkFunction } from '../../ir/plan.js';
import { listPaths } from '../../ir/scoring.js';
import { type CallArrays, extentsOf } from '../../runtime/call.js';
import { distance } from '../passes/modelEnvironment.js';
import { runFolder } from '../support/runFolder.js';
import { compileByNvcc, hasNvcc } from '../support/nvcc.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { below, randomModel, type RandomModel } from '../codegen/cuda/randomModel.js';
import { randomSource } from '../codegen/harness.js';

const CACHE_TOKENS = 128;

/** Wide enough for every skeleton of contractions. */
const LARGE = {
  architectures: ['LlamaForTokenClassification'],
  model_type: 'llama',
  torch_dtype: 'bfloat16',
  hidden_size: 2048,
  intermediate_size: 4096,
  num_hidden_layers: 2,
  num_attention_heads: 16,
  num_key_value_heads: 4,
  vocab_size: 4096,
  max_position_embeddings: 4096,
};

function call({ plan, tensors }: RandomModel, name: string, inputs: CallArrays, isExact = false): Float64Array {
  const fn = linkFunction(plan, name);
  const sizes = extentsOf(fn.interface, inputs);
  const bucket = fn.buckets.findIndex(({ extents }) => fitsIn(sizes, extents));
  const states = fn.buffers
    .filter(({ space }) => space === 'state')
    .map((state) => [state.name, new Float64Array(Number(state.rows) * Number(state.columns))] as const);
  const given = fn.interface.inputs.map((input) => [input.buffer, Float64Array.from(inputs[input.name]!)] as const);
  const buffers = new Map([...given, ...states]);
  const values = isExact
    ? interpretModule(fn, { sizes, buffers, tensors })
    : emulateModule(fn, {
        sizes,
        inputs: buffers,
        tensors,
        schedules: fn.launches.map(({ signature }) => fn.schedules[bucket]![signature]!),
        tokensCapacity: 512,
      }).values;
  const [output, ...others] = fn.interface.outputs;
  expect(others).toEqual([]);
  return values.get(output!.buffer)!;
}

describe.each([
  ['sm_80', 1],
  ['sm_80', 19],
  ['sm_90a', 2],
  ['sm_90a', 3],
] as const)('on %s, %i classes', (arch, labels) => {
  const folder = mkdtempSync(join(runFolder(), 'classes-'));
  const model = randomModel(folder, 3 + labels, 'bf16', TYPICAL_FACTS[arch], { cacheTokens: CACHE_TOKENS, labels });
  const random = randomSource(labels);
  const tokens = Int32Array.from({ length: 37 }, () => below(random, model.vocab));
  const position = Int32Array.from(tokens.keys());
  const row = Int32Array.of(0, 5, 35, 36);

  it('gives what kernel IR means, and the same bits in a step', () => {
    const { begin, key } = listPaths(position);
    const scores = { tokens, position, begin, key, row };
    const found = call(model, SCORE, scores);
    expect(found).toHaveLength(row.length * labels);
    expect(distance(found, call(model, SCORE, scores, true))).toBeLessThan(0.1);
    const slot = position.map((i) => CACHE_TOKENS - 1 - i);
    const step = { tokens, position, slot, begin: position.map(() => 0), key: slot, row };
    expect([...call(model, STEP, step)]).toEqual([...found]);
  });
});

describe.skipIf(!hasNvcc)('kernels of heads of classes, by nvcc', () => {
  it.each([...CUDA_ARCHS])('compile for %s without warnings, in every bucket', (arch) => {
    const folder = mkdtempSync(join(runFolder(), 'classes-'));
    const kernels = [1, 2, 3, 19].flatMap((labels) => {
      writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...LARGE, num_labels: labels }));
      const { plan } = compileModel(
        describeRandomCheckpoint(folder, 1),
        cuda,
        cudaDevice(TYPICAL_FACTS[arch], 'bf16'),
        {
          batchTokens: 4096,
          cacheTokens: 4096,
        },
      );
      // A head is the last kernel of its functions.
      const { kernels: texts } = emitCudaPlan(plan);
      return [SCORE, STEP].flatMap((name) => {
        const last = linkFunction(plan, name).kernels.at(-1);
        expect([last?.anchor, last?.path]).toEqual(['gemm', 'head']);
        return texts[name]!.map((bucket) => bucket.at(-1)!);
      });
    });
    const distinct = [...new Map(kernels.map((kernel) => [kernel.symbol, kernel])).values()];
    expect(distinct.length).toBeGreaterThan(4);
    compileByNvcc(distinct, arch);
  });
});
