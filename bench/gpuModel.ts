/** The model whose layer is measured: a plan of a few layers, because all but the last are alike. */
import { join } from 'node:path';
import { contractionOf } from '../autotune/cuda/vendorBaseline.js';
import type { CudaFacts } from '../codegen/cuda/index.js';
import { compileModel } from '../driver/compile/compile.js';
import type { Precision } from '../driver/targets/precision.js';
import { cuda, cudaDevice, type CudaDevice } from '../driver/targets/cuda.js';
import { UserError } from '../errors.js';
import type { CudaSchedule } from '../ir/cuda.js';
import type { Kernel } from '../ir/kernel.js';
import { type Bucket, type LinkedFunction, scoreOf } from '../ir/plan.js';
import { scoringBucket, tokensIn, withKeyRoom } from '../ir/scoring.js';
import { describeModel } from '../models/config.js';
import type { MaskKind } from '../models/model/model.js';
import { describeRandomCheckpoint } from '../models/randomCheckpoint.js';
import type { Finishing } from '../passes/fuseRowNorms.js';
import { defined } from '../system/defined.js';
import { readJsonObject } from '../system/read.js';

export interface BenchModel {
  readonly plan: LinkedFunction<CudaSchedule>;
  readonly facts: CudaFacts;
  /** Kernels of one layer, in the plan's order. Not of the last layer, whose end is over scored rows. */
  readonly layer: readonly Kernel[];
  /** The vocabulary contraction, which is measured where it is asked for by name. */
  readonly head?: Kernel;
}

/** The number of layers that are compiled. The first and the last are special. */
const LAYERS = 3;
const CONFIG_BYTES = 1 << 20;
/** Questions of multiple-choice benchmarks: a stem of 48 tokens and four answers of 32, which are scored. */
const TREE = { longest: 80, tokens: 176, scored: 128 } as const;

/** `attention.qkv` of `layers.1.attention.qkv`. */
export const roleOf = (path: string): string => path.replace(/^layers\.\d+\./, '');

/** A micro-batch of `tokens` tokens in trees like those of benchmarks. */
export const benchBucket = ({ plan }: Pick<BenchModel, 'plan'>, tokens: number): Bucket =>
  withKeyRoom(
    plan.interface,
    scoringBucket({
      tokens,
      rows: Math.max(1, Math.round((tokens * TREE.scored) / TREE.tokens)),
      longest: Math.min(tokens, TREE.longest),
    }),
  );

/**
 * Compiles the model of a config.json, or of the folder that holds it, for micro-batches up to at least `maxTokens`.
 * `finishing`: which products finish their rows.
 */
export function openBenchModel(
  path: string,
  facts: CudaFacts,
  maxTokens: number,
  mask: MaskKind = cuda.mask,
  precision: Precision = 'auto',
  finishing: Finishing = 'deep',
): BenchModel {
  const target = { ...cuda, numerics: (device: CudaDevice) => ({ ...cuda.numerics(device), finishing }) };
  const checkpoint = describeRandomCheckpoint(path, 1);
  const file = path.endsWith('.json') ? path : join(path, 'config.json');
  const { value } = readJsonObject(file, CONFIG_BYTES);
  const model = describeModel({ ...value, num_hidden_layers: Math.min(LAYERS, checkpoint.config.layers) }, file);
  const { config } = model;
  const compile = (batchTokens?: number): LinkedFunction<CudaSchedule> => {
    const device = cudaDevice(facts, precision, config.dtype);
    const options = batchTokens === undefined ? { mask } : { mask, batchTokens };
    return scoreOf(compileModel({ ...checkpoint, model, config }, target, device, options).plan);
  };
  // The default capacity is the tuner's, and signatures depend on it.
  let plan = compile();
  if (tokensIn(plan.capacity) < maxTokens) plan = compile(maxTokens);
  const prefix = `layers.${config.layers > 2 ? 1 : 0}.`;
  const layer = plan.kernels.filter((kernel) => kernel.path.startsWith(prefix));
  if (config.layers < 2 || layer.length === 0)
    throw new UserError(
      `${path}: ${config.layers} layers; a whole layer is measured that is not the last`,
      'name a model of two layers at least: npm run bench:gpu -- --model bench/models/llama-33b',
    );
  const head = plan.kernels.find(({ anchor }) => anchor === 'logprob');
  return { plan, facts, layer, ...defined({ head }) };
}

/** Kernels with a product in 16 bits, which are compared with the vendor's library. */
export const contractions = ({ plan, layer }: BenchModel, bucket: Bucket): readonly Kernel[] =>
  layer.filter((kernel) => contractionOf(kernel, plan, bucket) !== undefined);
