/** The tensors of a decoder's checkpoint, under their Hugging Face names. */
import type { ExpectedTensor } from '../family/tensors.js';
import type { DecoderConfig, Projection } from './config.js';

export const EMBEDDING = 'model.embed_tokens.weight';
export const HEAD = 'lm_head.weight';
const UNTIED = 'a model whose head is tied says "tie_word_embeddings": true in config.json';

/** The module of a projection, below its layer. */
export const MODULES: Readonly<Record<Projection, string>> = {
  q: 'self_attn.q_proj',
  k: 'self_attn.k_proj',
  v: 'self_attn.v_proj',
  o: 'self_attn.o_proj',
  gate: 'mlp.gate_proj',
  up: 'mlp.up_proj',
  down: 'mlp.down_proj',
};

/** The module of a norm of heads, below its layer. */
export const HEAD_NORMS = { q: 'self_attn.q_norm', k: 'self_attn.k_norm' } as const;

/** Every tensor that the model reads, in the order of the computation. A tied model has no lm_head.weight. */
export function decoderTensors(config: DecoderConfig): readonly ExpectedTensor[] {
  const { hiddenSize: hidden, intermediateSize: inter } = config;
  const queries = config.heads * config.headDim;
  const keys = config.kvHeads * config.headDim;
  const norm = (name: string, width = hidden): ExpectedTensor => ({
    name: `${name}.weight`,
    shape: [width],
    role: 'norm',
  });
  const headNorm = (layer: string, name: 'q' | 'k'): ExpectedTensor[] =>
    config.headNorms === true ? [norm(`${layer}.${HEAD_NORMS[name]}`, config.headDim)] : [];
  const projection = (layer: string, name: Projection, rows: number, columns: number): ExpectedTensor[] => {
    const module = `${layer}.${MODULES[name]}`;
    return [
      { name: `${module}.weight`, shape: [rows, columns], role: 'matrix' },
      ...(config.biased.includes(name) ? [{ name: `${module}.bias`, shape: [rows], role: 'bias' } as const] : []),
    ];
  };
  const layerTensors = (layer: string): ExpectedTensor[] => [
    norm(`${layer}.input_layernorm`),
    ...projection(layer, 'q', queries, hidden),
    ...headNorm(layer, 'q'),
    ...projection(layer, 'k', keys, hidden),
    ...headNorm(layer, 'k'),
    ...projection(layer, 'v', keys, hidden),
    ...projection(layer, 'o', hidden, queries),
    norm(`${layer}.post_attention_layernorm`),
    ...projection(layer, 'gate', inter, hidden),
    ...projection(layer, 'up', inter, hidden),
    ...projection(layer, 'down', hidden, inter),
  ];
  return [
    { name: EMBEDDING, shape: [config.vocabSize, hidden], role: 'matrix' },
    ...Array.from({ length: config.layers }, (_, i) => layerTensors(`model.layers.${i}`)).flat(),
    norm('model.norm'),
    ...(config.tieWordEmbeddings
      ? []
      : [{ name: HEAD, shape: [config.vocabSize, hidden], role: 'matrix', missingHint: UNTIED } as const]),
  ];
}

/**
 * Tensors that checkpoints contain but the model does not read: rotary tables, and the copy of the head in a tied
 * model.
 */
export const isIgnoredTensor = (name: string, config: Pick<DecoderConfig, 'tieWordEmbeddings'>): boolean =>
  name.endsWith('rotary_emb.inv_freq') || (config.tieWordEmbeddings && name === HEAD);
