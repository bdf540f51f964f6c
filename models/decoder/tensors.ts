/** The tensors of a decoder's checkpoint. Families that say nothing else have LLaMA's names. */
import type { ExpectedTensor, TensorPart } from '../family/tensors.js';
import type { DecoderConfig, Projection } from './config.js';

/** Names of modules; those of projections and norms are below a layer. */
export interface TensorNames {
  readonly embedding: string;
  readonly head: string;
  readonly finalNorm: string;
  /** What stands before the number of a layer. */
  readonly layers: string;
  readonly projections: Readonly<Record<Projection, string>>;
  /** Where attention and feed-forward stand side by side with one norm, it is that before attention. */
  readonly norms: Readonly<Record<'attention' | 'ffn', BranchNorms>>;
  readonly qkNorms: Readonly<Record<'q' | 'k', string>>;
  /** The module that holds q, k and v: for each head its rows of q, of k and of v. Default: each has its own. */
  readonly fusedByHead?: string;
}

/** Norms of a branch x + f(x): of f's argument, and of its result. */
export interface BranchNorms {
  readonly before?: string;
  readonly after?: string;
}

export const LLAMA_NAMES: TensorNames = {
  embedding: 'model.embed_tokens',
  head: 'lm_head',
  finalNorm: 'model.norm',
  layers: 'model.layers',
  projections: {
    q: 'self_attn.q_proj',
    k: 'self_attn.k_proj',
    v: 'self_attn.v_proj',
    o: 'self_attn.o_proj',
    gate: 'mlp.gate_proj',
    up: 'mlp.up_proj',
    down: 'mlp.down_proj',
  },
  norms: { attention: { before: 'input_layernorm' }, ffn: { before: 'post_attention_layernorm' } },
  qkNorms: { q: 'self_attn.q_norm', k: 'self_attn.k_norm' },
};

/** The names of a model whose norms lie behind attention and feed-forward only. */
export const NAMES_WITH_NORMS_BEHIND: TensorNames = {
  ...LLAMA_NAMES,
  norms: { attention: { after: 'post_attention_layernorm' }, ffn: { after: 'post_feedforward_layernorm' } },
};

const UNTIED = 'a model whose head is tied says "tie_word_embeddings": true in config.json';

/** Every tensor that the model reads, in the order of the computation. A tied model has no head of its own. */
export function decoderTensors(config: DecoderConfig, names: TensorNames): readonly ExpectedTensor[] {
  const { hiddenSize: hidden, intermediateSize: inter } = config;
  const queries = config.heads * config.headDim;
  const keys = config.kvHeads * config.headDim;
  const norm = (module: string, width = hidden): ExpectedTensor[] => [
    { name: `${module}.weight`, shape: [width], role: 'norm', neutral: 1 - (config.norm?.offset ?? 0) },
    ...(config.norm?.hasBias === true ? [{ name: `${module}.bias`, shape: [width], role: 'bias' } as const] : []),
  ];
  const linear = (module: string, rows: number, columns: number, isBiased: boolean): ExpectedTensor[] => [
    { name: `${module}.weight`, shape: [rows, columns], role: 'matrix' },
    ...(isBiased ? [{ name: `${module}.bias`, shape: [rows], role: 'bias' } as const] : []),
  ];
  const projection = (layer: string, name: Projection, rows: number, columns: number): ExpectedTensor[] =>
    linear(`${layer}.${names.projections[name]}`, rows, columns, config.biased.includes(name));
  const qkNorm = (layer: string, name: 'q' | 'k', row: number): ExpectedTensor[] =>
    config.qkNorm === undefined
      ? []
      : norm(`${layer}.${names.qkNorms[name]}`, config.qkNorm === 'head' ? config.headDim : row);
  const branchNorm = (layer: string, name?: string): ExpectedTensor[] =>
    name === undefined ? [] : norm(`${layer}.${name}`);
  const attention = (layer: string): ExpectedTensor[] =>
    names.fusedByHead === undefined
      ? [
          ...projection(layer, 'q', queries, hidden),
          ...qkNorm(layer, 'q', queries),
          ...projection(layer, 'k', keys, hidden),
          ...qkNorm(layer, 'k', keys),
          ...projection(layer, 'v', keys, hidden),
        ]
      : linear(`${layer}.${names.fusedByHead}`, 3 * queries, hidden, config.biased.includes('q')).map((tensor) => ({
          ...tensor,
          parts: partsByHead(tensor, config, names),
        }));
  const layerTensors = (layer: string): ExpectedTensor[] => [
    ...branchNorm(layer, names.norms.attention.before),
    ...attention(layer),
    ...projection(layer, 'o', hidden, queries),
    ...branchNorm(layer, names.norms.attention.after),
    ...(config.parallel === 'one norm' ? [] : branchNorm(layer, names.norms.ffn.before)),
    ...(config.isGated === false ? [] : projection(layer, 'gate', inter, hidden)),
    ...projection(layer, 'up', inter, hidden),
    ...projection(layer, 'down', hidden, inter),
    ...branchNorm(layer, names.norms.ffn.after),
  ];
  return [
    { name: `${names.embedding}.weight`, shape: [config.vocabSize, hidden], role: 'matrix' },
    ...Array.from({ length: config.layers }, (_, i) => layerTensors(`${names.layers}.${i}`)).flat(),
    ...norm(names.finalNorm),
    ...(config.tieWordEmbeddings
      ? []
      : [
          {
            name: `${names.head}.weight`,
            shape: [config.vocabSize, hidden],
            role: 'matrix',
            missingHint: UNTIED,
          } as const,
        ]),
  ];
}

/** q, k and v of a tensor that holds them head by head. */
function partsByHead(
  { name }: ExpectedTensor,
  { heads, headDim }: DecoderConfig,
  { projections, fusedByHead }: TensorNames,
): readonly TensorPart[] {
  return (['q', 'k', 'v'] as const).map((each, i) => ({
    name: name.replace(`.${fusedByHead!}.`, `.${projections[each]}.`),
    first: i * headDim,
    rows: headDim,
    stride: 3 * headDim,
    count: heads,
  }));
}

/**
 * Tensors that checkpoints contain but the model does not read: rotary tables and masks, and the copy of the head in a
 * tied model.
 */
export const isIgnoredTensor = (
  name: string,
  { tieWordEmbeddings }: Pick<DecoderConfig, 'tieWordEmbeddings'>,
  { head }: TensorNames = LLAMA_NAMES,
): boolean =>
  /(?:rotary_emb\.inv_freq|\.attention\.(?:masked_)?bias)$/.test(name) ||
  (tieWordEmbeddings && name === `${head}.weight`);
