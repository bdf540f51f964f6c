/** A small LLaMA for tests of whole pipelines. */
import type { Graph } from '../../ir/graph.js';
import type { DType } from '../../ir/types.js';
import { buildLlama, type LlamaShape } from '../../models/llama.js';
import type { MaskKind } from '../../models/mask.js';

const SHAPE: LlamaShape = {
  hiddenSize: 48,
  intermediateSize: 40,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 8,
  vocabSize: 600,
  rmsNormEps: 1e-5,
  tieWordEmbeddings: false,
};

/** Two layers of 48 columns with 4 query and 2 key heads of 8, unless `shape` says otherwise. */
export function llama(shape: Partial<LlamaShape> = {}, mask: MaskKind = 'tree', dtype: DType = 'bf16'): Graph {
  const all = { ...SHAPE, ...shape };
  return buildLlama(all, {
    mask,
    window: 3,
    inverseFrequencies: Float64Array.from({ length: all.headDim / 2 }, (_, i) => 1 / (i + 1)),
    dtypeOf: () => dtype,
  });
}
