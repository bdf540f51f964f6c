/** LLaMA models of random shapes, lowered by the passes, and random numbers for everything that they read. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CudaFacts } from '../../../codegen/cuda/index.js';
import { compileModel } from '../../../driver/compile/compile.js';
import type { KvCache } from '../../../driver/precision.js';
import { cuda } from '../../../driver/targets/cuda.js';
import { cudaDevice } from '../../../driver/targets/cudaDevice.js';
import type { RawTensor } from '../../../ir/kernelInterpreter.js';
import type { CudaPlan } from '../../../ir/plan.js';
import { listPaths } from '../../../ir/scoring.js';
import { roundUp } from '../../../ir/types.js';
import { describeRandomCheckpoint } from '../../../models/randomCheckpoint.js';
import { randomArray, randomSource } from '../harness.js';
import { randomTrees } from '../modules.js';

/** Whole numbers in [0, n) from numbers in [−1, 1). */
export const below = (random: () => number, n: number): number => Math.min(n - 1, Math.floor(((random() + 1) / 2) * n));

/**
 * Random values, in the ranges of a trained model, for everything that the plan's weights read from a checkpoint.
 * Constants keep their values.
 */
export function randomTensors(
  { weights, constants }: Pick<CudaPlan, 'weights' | 'constants'>,
  random: () => number,
): Map<string, RawTensor> {
  const tensors = new Map<string, RawTensor>(
    (constants ?? []).map(({ name, values }) => [
      name,
      { rows: values.length, columns: 1, data: Float64Array.from(values) },
    ]),
  );
  const sources = new Set(weights.flatMap((weight) => weight.sources.map(({ tensor }) => tensor)));
  for (const { sources: own, k, columnScale } of weights) {
    for (const { tensor, rows } of own) {
      if (!tensors.has(tensor))
        tensors.set(tensor, { rows, columns: k, data: randomArray(random, rows * k, 2 / Math.sqrt(k)) });
    }
    // Some are tables as well.
    if (columnScale !== undefined && !tensors.has(columnScale) && !sources.has(columnScale)) {
      tensors.set(columnScale, {
        rows: 1,
        columns: k,
        data: randomArray(random, k, 0.5).map((x) => Math.fround(1 + x)),
      });
    }
  }
  return tensors;
}

/** A micro-batch of T tokens and R rows by the plan's names: trees, with scored rows in order. */
export function randomBatch(
  { T, R }: { readonly T: number; readonly R: number },
  vocab: number,
  seed: number,
): { readonly sizes: { T: number; C: number; R: number }; readonly inputs: ReadonlyMap<string, Float64Array> } {
  const random = randomSource(seed);
  const { position } = randomTrees(T, seed + 1);
  const { begin, key } = listPaths(Int32Array.from(position));
  const inputs = new Map([
    ['tokens', Float64Array.from({ length: T }, () => below(random, vocab))],
    ['position', position],
    ['begin', Float64Array.from(begin)],
    ['key', Float64Array.from(key)],
    ['row', Float64Array.from({ length: R }, () => below(random, T)).sort()],
    ['target', Float64Array.from({ length: R }, () => below(random, vocab))],
  ]);
  return { sizes: { T, C: key.length, R }, inputs };
}

export interface RandomModel {
  /** For messages. */
  readonly name: string;
  readonly vocab: number;
  readonly plan: CudaPlan;
  readonly tensors: ReadonlyMap<string, RawTensor>;
}

interface RandomModelOptions {
  readonly scale?: number;
  readonly step?: number;
  readonly hasBiases?: boolean;
  readonly cacheTokens?: number;
  /** Rows of its states. Default: so many. */
  readonly cacheRows?: number;
  readonly feeds?: boolean;
  readonly logits?: boolean;
  readonly mask?: typeof cuda.compiler.mask;
  readonly kvCache?: KvCache;
  /** In place of a vocabulary's head: so many labels. */
  readonly labels?: number;
}

/**
 * A model of two layers: one over all tokens, and one pruned to scored rows. Writes its config.json to `folder`.
 * `scale` bounds widths; `hasBiases` gives every projection a bias. Widths are multiples of `step`: with 2 they hardly
 * fill any tile, with 64 they fill many. With `cacheTokens`, the model has the function step.
 */
export function randomModel(
  folder: string,
  seed: number,
  dtype: 'bf16' | 'f16',
  facts: CudaFacts,
  options: RandomModelOptions = {},
): RandomModel {
  const { scale = 1, step = 2, hasBiases = false, cacheTokens = 0, feeds = false, logits = false } = options;
  const { cacheRows = cacheTokens } = options;
  const { mask = cuda.compiler.mask, kvCache = '16bit', labels } = options;
  const random = randomSource(seed);
  const pick = <T>(list: readonly T[]): T => list[below(random, list.length)]!;
  const headDim = pick(step > 2 ? [32, 64, 128] : [32, 48, 64, 80, 96, 128]);
  const kvHeads = 1 + below(random, 3);
  const heads = kvHeads * Math.max(1, Math.min(1 + below(random, 4), Math.floor((400 * scale) / headDim / kvHeads)));
  const width = (from: number, to: number): number =>
    roundUp(from, step) + step * below(random, Math.floor(((to - from) * scale) / step));
  const [hidden, inter] = [width(50, 350), width(66, 450)];
  const vocab = 530 + below(random, 1000 * scale);
  writeFileSync(
    join(folder, 'config.json'),
    JSON.stringify({
      architectures: [labels === undefined ? 'LlamaForCausalLM' : 'LlamaForTokenClassification'],
      ...(labels === undefined ? {} : { num_labels: labels }),
      model_type: 'llama',
      torch_dtype: dtype === 'f16' ? 'float16' : 'bfloat16',
      hidden_size: hidden,
      intermediate_size: inter,
      num_hidden_layers: 2,
      num_attention_heads: heads,
      num_key_value_heads: kvHeads,
      head_dim: headDim,
      vocab_size: vocab,
      max_position_embeddings: 512,
      rms_norm_eps: 1e-5,
      rope_theta: 10_000,
      tie_word_embeddings: seed % 2 === 0,
      ...(hasBiases ? { attention_bias: true, mlp_bias: true } : {}),
    }),
  );
  const model = compileModel(describeRandomCheckpoint(folder, seed), cuda, cudaDevice(facts, dtype), {
    batchTokens: 512,
    mask,
    ...(cacheTokens === 0 ? {} : { cacheTokens, cacheRows, feeds, logits, kvCache }),
  });
  return {
    name:
      `seed ${seed}, ${dtype}: hidden ${hidden}, ${heads}/${kvHeads} heads of ${headDim}, inner ` +
      `${inter}, vocabulary ${vocab}`,
    vocab,
    plan: model.plan,
    tensors: randomTensors(model.plan, random),
  };
}
