/** A small LLaMA for tests of whole pipelines. */
import type { Graph } from '../../ir/graph/graph.js';
import type { DType } from '../../ir/types.js';
import { buildDecoder, type DecoderShape } from '../../models/decoder/graph.js';
import type { MaskKind } from '../../models/model/model.js';

export const SHAPE: DecoderShape = {
  hiddenSize: 48,
  intermediateSize: 40,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 8,
  vocabSize: 600,
  rmsNormEps: 1e-5,
  tieWordEmbeddings: false,
  biased: [],
};

/** Two layers of 48 columns with 4 query heads and 2 key heads of 8, unless `shape` says otherwise. */
export function llama(shape: Partial<DecoderShape> = {}, mask: MaskKind = 'tree', dtype: DType = 'bf16'): Graph {
  const all = { ...SHAPE, ...shape };
  return buildDecoder(all, {
    mask,
    window: 3,
    rotary: { inverseFrequencies: Float64Array.from({ length: all.headDim / 2 }, (_, i) => 1 / (i + 1)), factor: 1 },
    dtypeOf: () => dtype,
  });
}
