/** The tensors of a decoder's checkpoint. Families that say nothing else have LLaMA's names. */
import { at } from '../../system/at.js';
import type { ExpectedTensor, RowsPart, ShapeOf } from '../model/tensors.js';
import type { DecoderConfig } from './config.js';
import { type ExpertNames, expertTensors, hasExperts, QWEN_EXPERTS } from './experts.js';
import { latentTensors } from './latent.js';
import type { Projection } from './reader.js';
import { isRecurrent } from './recurrent.js';
import { recurrentTensors } from './recurrentTensors.js';
import { learnedTensors } from './xielu.js';

/** Names of modules; those of projections and norms are below a layer. */
export interface TensorNames {
  readonly embedding: string;
  /** Of embeddings, before the first layer. Default: there is none. */
  readonly embeddingNorm?: string;
  /** Matrices from the width of embeddings to that of the stream, and back before the head, where these differ. */
  readonly widths?: { readonly into: string; readonly out: string };
  readonly head: string;
  readonly finalNorm: string;
  /** What stands before the number of a layer. */
  readonly layers: string;
  readonly projections: Readonly<Record<Projection, string>>;
  /** Where attention and feed-forward stand side by side with one norm, it is that before attention. */
  readonly norms: Readonly<Record<'attention' | 'ffn', BranchNorms>>;
  readonly qkNorms: Readonly<Record<'q' | 'k', string>>;
  /** True if norms of own heads lie in one tensor [heads, headDim]. Default: each has a tensor. */
  readonly hasNormsInOne?: boolean;
  /** The table of positions, and its rows before that of the first one. Default: there is none. */
  readonly positions?: { readonly module: string; readonly before: number };
  /** True if matrices of layers are stored as [in, out]. Default: as [out, in]. */
  readonly isTurned?: boolean;
  /** The logits of attention without a value. Default: SINKS. */
  readonly sinks?: string;
  /** Modules that hold several projections. Default: each projection has its own. */
  readonly fused?: readonly FusedModule[];
  /** Default: those of Qwen. */
  readonly experts?: ExpertNames;
}

/**
 * A module with the rows of several projections: one after another, or for each head of keys those of each (of queries
 * those of all heads that share it).
 */
export interface FusedModule {
  readonly module: string;
  readonly of: readonly Projection[];
  readonly isByHead?: boolean;
}

/** Norms of a branch x + f(x): of f's argument, and of its result. */
export interface BranchNorms {
  readonly before?: string;
  readonly after?: string;
  /** Whether that before it is a module of the layer before. The first layer has none then. */
  readonly isOfLayerBefore?: true;
}

/** The norm of a branch's argument in layer `index`. */
export const normBefore = (
  { before, isOfLayerBefore }: BranchNorms,
  { layers }: Pick<TensorNames, 'layers'>,
  index: number,
): string | undefined => {
  const layer = isOfLayerBefore === true ? index - 1 : index;
  return before === undefined || layer < 0 ? undefined : `${layers}.${layer}.${before}`;
};

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

export const SINKS = 'self_attn.sinks';

/** The names of a model whose norms lie behind attention and feed-forward only. */
export const NAMES_WITH_NORMS_BEHIND: TensorNames = {
  ...LLAMA_NAMES,
  norms: { attention: { after: 'post_attention_layernorm' }, ffn: { after: 'post_feedforward_layernorm' } },
};

/** The table of positions that the graph reads. */
export const positionsTensor = ({ positions }: TensorNames): string => {
  if (positions === undefined) throw new Error('the family has no name of a table of positions');
  return `${positions.module}.weight`;
};

/** The name of some columns of a matrix, part `i` of several that lie beside each other. */
export const columnsName = (tensor: string, i: number): string => tensor.replace(/weight$/, `${i}.weight`);

/** The module of the gate behind attention, whose rows lie in that of q. */
export const gateName = (q: string): string => `${q}.gate`;

const UNTIED = 'a model whose head is tied says "tie_word_embeddings": true in config.json';

/**
 * Every tensor that the model reads, in the order of the computation. A tied model has no head of its own. `shapeOf`:
 * those of a checkpoint, which may hold all experts of a layer in one tensor.
 */
export function decoderTensors(
  config: DecoderConfig,
  names: TensorNames,
  shapeOf: ShapeOf = () => undefined,
): readonly ExpectedTensor[] {
  const { hiddenSize: hidden, denseWidth: inter = config.intermediateSize } = config;
  const queries = config.heads * config.headDim;
  const keys = config.kvHeads * config.headDim;
  const norm = (module: string, width = hidden): ExpectedTensor[] =>
    config.norm?.isBare === true
      ? []
      : [
          { name: `${module}.weight`, shape: [width], role: 'norm', neutral: 1 - (config.norm?.offset ?? 0) },
          ...(config.norm?.hasBias === true ? [{ name: `${module}.bias`, shape: [width], role: 'bias' } as const] : []),
        ];
  const linear = (module: string, rows: number, columns: number, isBiased: boolean): ExpectedTensor[] => [
    names.isTurned === true && IN_LAYER.test(module)
      ? turned(`${module}.weight`, [{ name: `${module}.weight`, rows }], columns)
      : { name: `${module}.weight`, shape: [rows, columns], role: 'matrix' },
    ...(isBiased ? [{ name: `${module}.bias`, shape: [rows], role: 'bias' } as const] : []),
  ];
  const projection = (layer: string, name: Projection, rows: number, columns: number): ExpectedTensor[] =>
    linear(`${layer}.${names.projections[name]}`, rows, columns, config.biased.includes(name));
  /** Weights of each head, which the graph reads as one vector. */
  const ownNorms = (module: string, heads: number): ExpectedTensor[] =>
    Array.from({ length: heads }, (_, head) => ({
      name: `${module}.norms.${head}.weight`,
      shape: [config.headDim],
      role: 'norm',
      partOf: { name: `${module}.weight`, first: head * config.headDim, rows: heads * config.headDim },
    }));
  const normsInOne = (module: string, heads: number): ExpectedTensor[] => [
    {
      name: `${module}.weight`,
      shape: [heads, config.headDim],
      role: 'norm',
      partOf: { name: `${module}.weight`, first: 0, rows: heads * config.headDim },
    },
  ];
  const qkNorm = (layer: string, name: 'q' | 'k', row: number): ExpectedTensor[] =>
    config.qkNorm === undefined || config.qkNorm === 'unit head'
      ? []
      : config.qkNorm === 'own head'
        ? (names.hasNormsInOne === true ? normsInOne : ownNorms)(
            `${layer}.${names.qkNorms[name]}`,
            row / config.headDim,
          )
        : norm(`${layer}.${names.qkNorms[name]}`, config.qkNorm === 'row' ? row : config.headDim);
  const branchNorm = (module?: string): ExpectedTensor[] => (module === undefined ? [] : norm(module));
  const normBehind = (layer: string, { after }: BranchNorms): ExpectedTensor[] =>
    branchNorm(after && `${layer}.${after}`);
  const rows = { q: queries, k: keys, v: keys, gate: inter, up: inter } as const;
  /** Projections of the stream, with what follows each, where each is a module; or the module that holds them all. */
  const inputs = (
    layer: string,
    list: readonly (keyof typeof rows)[],
    follow: (name: keyof typeof rows) => ExpectedTensor[] = () => [],
  ): ExpectedTensor[] => {
    const fused = names.fused?.find(({ of }) => list.every((name) => of.includes(name)));
    if (fused === undefined)
      return list.flatMap((name) => [...projection(layer, name, rows[name], hidden), ...follow(name)]);
    const all = list.reduce((sum, name) => sum + rows[name], 0);
    return [
      ...linear(`${layer}.${fused.module}`, all, hidden, config.biased.includes(at(list, 0))).map((tensor) => {
        const own = list.map((name) => rows[name]);
        const parts = partsOf(tensor.name, fused, names, own, config.kvHeads);
        return names.isTurned === true && tensor.role === 'matrix'
          ? turned(
              tensor.name,
              parts.map(({ name }, i) => ({ name, rows: at(own, i) })),
              hidden,
            )
          : { ...tensor, parts };
      }),
      ...list.flatMap(follow),
    ];
  };
  const feedForward = (layer: string, index: number): readonly ExpectedTensor[] =>
    hasExperts(config.experts, index)
      ? expertTensors(config.experts, names.experts ?? QWEN_EXPERTS, layer, hidden, shapeOf)
      : [
          ...inputs(layer, config.isGated === false ? ['up'] : ['gate', 'up']),
          ...projection(layer, 'down', hidden, inter),
          ...(config.activation === 'xielu' ? learnedTensors(layer) : []),
        ];
  const attention = (layer: string): readonly ExpectedTensor[] =>
    config.latent === undefined
      ? headTensors(layer)
      : [
          ...latentTensors(config.latent, layer, hidden, config.heads),
          ...projection(layer, 'o', hidden, config.heads * config.latent.values),
        ];
  const headTensors = (layer: string): ExpectedTensor[] => [
    ...inputs(layer, ['q', 'k', 'v'], (name) => (name === 'q' || name === 'k' ? qkNorm(layer, name, rows[name]) : [])),
    ...projection(layer, 'o', hidden, queries),
    ...(config.sinks === true
      ? [{ name: `${layer}.${names.sinks ?? SINKS}`, shape: [config.heads], role: 'bias' } as const]
      : []),
  ];
  /** The tensors of q with those of a gate, whose rows follow the rows of q for each head. */
  const withGate = (tensor: ExpectedTensor, layer: string): ExpectedTensor => {
    const q = `${layer}.${names.projections.q}`;
    const [, suffix] = tensor.name.split(`${q}.`);
    if (config.isOutputGated !== true || suffix === undefined) return tensor;
    const { headDim, heads } = config;
    const part = { rows: headDim, stride: 2 * headDim, count: heads };
    return {
      ...tensor,
      shape: [2 * queries, ...tensor.shape.slice(1)],
      parts: [
        { ...part, name: tensor.name, first: 0 },
        { ...part, name: `${gateName(q)}.${suffix}`, first: headDim },
      ],
    };
  };
  const layerTensors = (layer: string, index: number): ExpectedTensor[] => [
    ...branchNorm(normBefore(names.norms.attention, names, index)),
    ...(config.recurrent !== undefined && isRecurrent(config, index)
      ? recurrentTensors(config.recurrent, layer, hidden)
      : attention(layer).map((tensor) => withGate(tensor, layer))),
    ...normBehind(layer, names.norms.attention),
    ...(config.parallel === 'one norm' ? [] : branchNorm(normBefore(names.norms.ffn, names, index))),
    ...(config.recurrent?.kind === 'mamba' ? [] : feedForward(layer, index)),
    ...normBehind(layer, names.norms.ffn),
  ];
  const { positions, widths } = names;
  const { embeddingWidth: narrow = hidden } = config;
  const between = (module: string | undefined, out: number, width: number): ExpectedTensor[] =>
    module === undefined || narrow === hidden ? [] : linear(module, out, width, false);
  return [
    { name: `${names.embedding}.weight`, shape: [config.vocabSize, narrow], role: 'matrix' },
    ...between(widths?.into, hidden, narrow),
    ...(config.positionRows === undefined || positions === undefined
      ? []
      : [rowsBehind(positionsTensor(names), positions.before, config.positionRows, hidden)]),
    ...(names.embeddingNorm === undefined ? [] : norm(names.embeddingNorm)),
    ...Array.from({ length: config.layers }, (_, i) => layerTensors(`${names.layers}.${i}`, i)).flat(),
    ...(config.hasFinalNorm === false ? [] : norm(names.finalNorm)),
    ...between(widths?.out, narrow, hidden),
    ...(config.head?.layers ?? []).flatMap(({ module, rows: out, isBiased }, i, layers) =>
      linear(module, out, layers[i - 1]?.rows ?? hidden, isBiased),
    ),
    ...(config.tieWordEmbeddings || config.head !== undefined
      ? []
      : [
          {
            name: `${names.head}.weight`,
            shape: [config.vocabSize, narrow],
            role: 'matrix',
            missingHint: UNTIED,
          } as const,
        ]),
    ...(config.hasHeadBias === true && config.head === undefined
      ? [{ name: `${names.head}.bias`, shape: [config.vocabSize], role: 'bias' } as const]
      : []),
  ];
}

const IN_LAYER = /\.\d+\./;

/** A matrix that is stored behind `first` rows of another meaning, under the same name. */
const rowsBehind = (name: string, first: number, rows: number, columns: number): ExpectedTensor => ({
  ...{ name, shape: [first + rows, columns], role: 'matrix' },
  ...(first === 0 ? {} : { parts: [{ name, first, rows, stride: rows, count: 1 }] }),
});

/** A tensor [columns, rows of all] with the columns of matrices beside each other. */
function turned(
  name: string,
  matrices: readonly { readonly name: string; readonly rows: number }[],
  columns: number,
): ExpectedTensor {
  const from = (i: number): number => matrices.slice(0, i).reduce((sum, { rows }) => sum + rows, 0);
  return {
    name,
    shape: [columns, from(matrices.length)],
    role: 'matrix',
    parts: matrices.map((each, i) => ({ ...each, first: 0, columns, from: from(i) })),
  };
}

/** The projections in a tensor of a fused module, with the rows of each. */
function partsOf(
  tensor: string,
  { module, of, isByHead = false }: FusedModule,
  { projections }: TensorNames,
  rows: readonly number[],
  kvHeads: number,
): readonly RowsPart[] {
  const blocks = isByHead ? kvHeads : 1;
  const stride = rows.reduce((sum, count) => sum + count, 0) / blocks;
  return of.map((each, i) => ({
    name: tensor.replace(`.${module}.`, `.${projections[each]}.`),
    first: rows.slice(0, i).reduce((sum, count) => sum + count, 0) / blocks,
    rows: at(rows, i) / blocks,
    stride,
    count: blocks,
  }));
}

/**
 * Tensors that checkpoints contain but the model does not read: rotary tables and masks, the copy of the head in a tied
 * model, the head of the vocabulary beside one of classes, and layers that predict
 * further tokens, which are read for drafts alone.
 */
export const isIgnoredTensor = (
  name: string,
  { tieWordEmbeddings, head: classes }: Pick<DecoderConfig, 'tieWordEmbeddings' | 'head'>,
  { head }: TensorNames = LLAMA_NAMES,
): boolean =>
  /^(?:mtp|model\.mtp_layers)\./.test(name) ||
  /(?:rotary_emb\.inv_freq|^rope\.freqs|\.(?:attention|attn)\.(?:masked_)?bias)$/.test(name) ||
  ((tieWordEmbeddings || classes !== undefined) && name === `${head}.weight`) ||
  (classes !== undefined && name === `${head}.bias`);
