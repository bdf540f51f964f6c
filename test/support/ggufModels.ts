/** Small models for tests of GGUF files: as Hugging Face folders, and what they give. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import type { Json } from '../../models/model/model.js';
import { randomOf } from '../fuzz/mutate.js';
import { safetensors, temporaryFolder, writeJson } from '../models/support.js';
import { storedValues } from './checkpoints.js';
import { randomTrees } from './familyTrees.js';
import type { PlainTensor } from './gguf.js';

export const SIZES = {
  dtype: 'bfloat16',
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 96,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
};
export type Draw = (rows: number, columns: number) => Float64Array;

/** Numbers that F16 and BF16 hold exactly, and that stay exact when 1 is added. `draw`: those of matrices. */
export function tensorsOf(json: Json, seed: number, draw?: Draw): PlainTensor[] {
  const random = randomOf(seed);
  return describeModel(json, 'config.json').tensors.map(({ name, shape, role, neutral = 1 }) => {
    const plain = Float64Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => {
      const value = Math.round((random() - 0.5) * 64) / 64;
      return role === 'norm' ? neutral + value : value;
    });
    const isDrawn = role === 'matrix' && !isRouter(name) && draw !== undefined;
    return { name, shape, values: isDrawn ? draw(shape[0]!, shape[1]!) : plain };
  });
}

/** Routers and gates of shared experts are F32. */
const isRouter = (name: string): boolean => /(?:mlp|block_sparse_moe)\.(?:gate|shared_expert_gate)\./.test(name);

export function folder(json: Json, tensors: readonly PlainTensor[]): string {
  const dir = temporaryFolder();
  let at = 0;
  const header = Object.fromEntries(
    tensors.map(({ name, shape, values }) => {
      const begin = at;
      at += 4 * values.length;
      return [name, { dtype: 'F32', shape, data_offsets: [begin, at] }];
    }),
  );
  const data = Buffer.concat(tensors.map(({ values }) => Buffer.from(Float32Array.from(values).buffer)));
  writeFileSync(join(dir, 'model.safetensors'), safetensors(header, data));
  writeJson(dir, 'config.json', json);
  return dir;
}

/** Log-probabilities of trees of tokens, by the graph in float64. */
export function scores({ model, tensors, config }: Checkpoint): Float64Array {
  const graph = model.graph({ mask: 'tree', dtypeOf: (name) => tensors.get(name)?.format ?? config.dtype });
  const inputs = randomTrees(7, 14, config.vocabSize);
  const params = new Map(Object.entries(inputs).map(([name, values]) => [name, Float64Array.from(values)]));
  const weights = new Map(graph.weights.map(({ name }) => [name, storedValues(tensors.get(name)!)]));
  return interpretGraph(graph, { sizes: { T: 14, R: inputs.row.length }, weights, params })[0]!.data;
}
