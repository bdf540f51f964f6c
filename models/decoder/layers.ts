/**
 * The layers of a decoder of LLaMA's kind (arXiv:2302.13971; grouped-query attention arXiv:2305.13245) in primitive
 * ops, as the papers write it. Nothing here knows about kernels: recognizing attention, folding norms and fusing are
 * the compiler's work.
 */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { TokenPaths } from '../../ir/paths.js';
import type { Reach } from '../../ir/reach.js';
import { defined } from '../../system/defined.js';
import type { ClassHead, GraphOptions } from '../model/model.js';
import type { DecoderConfig, Differences } from './config.js';
import { buildExperts, hasExperts, QWEN_EXPERTS } from './experts.js';
import { LATENT_EPSILON, latentHeads, type LatentHeads } from './latent.js';
import { activate, capped, type Norm, normOf, softmax, type VectorOf } from './ops.js';
import type { Projection } from './reader.js';
import { buildRecurrent, isRecurrent, previousTokens } from './recurrent.js';
import type { KeptStates } from './recurrentStates.js';
import type { RotaryTable } from './rope.js';
import { alibi, roundedAlibi } from './slopes.js';
import {
  type BranchNorms,
  columnsName,
  gateName,
  LLAMA_NAMES,
  normBefore,
  positionsTensor,
  SINKS,
  type TensorNames,
} from './tensors.js';
import { temperature } from './temperature.js';
import { type LearnedActivation, learnedActivation, xielu } from './xielu.js';

/** What the graph needs to know of a model. */
export type DecoderShape = Pick<
  DecoderConfig,
  | 'hiddenSize'
  | 'intermediateSize'
  | 'layers'
  | 'heads'
  | 'kvHeads'
  | 'headDim'
  | 'vocabSize'
  | 'rmsNormEps'
  | 'tieWordEmbeddings'
  | 'activation'
  | 'rotary'
  | 'head'
  | keyof Differences
>;

export interface LayerOptions extends Pick<GraphOptions, 'dtypeOf'> {
  readonly rotary: RotaryTable;
  /** Of layers with a window, where it is another. */
  readonly windowRotary?: RotaryTable;
  /** Default: those of LLaMA. */
  readonly names?: TensorNames;
  /** What stands before the names of all tensors. Default: nothing. */
  readonly prefix?: string;
}

/** What a function brings to the layers. */
export interface LayerInputs {
  /** i32[T]: token ids, and the depth of each token on its path. */
  readonly tokens: Value;
  readonly position: Value;
  readonly masks: () => PositionMasks;
  /** What says which token is before another, once `masks` was called. Absent where recurrent layers cannot be. */
  readonly paths?: () => TokenPaths<Value>;
  /** What recurrent layers keep between calls. Default: nothing. */
  readonly kept?: KeptStates;
  /** The keys or values [C, g, d] that queries see, made from those of the function's own tokens [T, g, d]. */
  readonly visible: (kind: 'k' | 'v' | 'tail', own: Value, layer: number) => Value;
}

/** What is added to scores of queries and keys, by their positions on a path. */
export interface PositionMasks {
  /** f32[T, C]: 0 where a query sees a key, −∞ elsewhere. */
  readonly bias: (reach: Reach) => Value;
  /** i32[T, C]: how many positions a key is further on than a query. */
  readonly distance: () => Value;
  /** i32[T, C]: the position of a key. */
  readonly keyPosition: () => Value;
}

/** Cosines and sines of the angles of each token, f32[T, 1, d]. */
interface RotaryTurns {
  readonly cos: Value;
  readonly sin: Value;
}

/** x·W for a matrix [out, in]. */
type Linear = (x: Value, matrix: Value, hint: string) => Value;
/** What a block reads: rows, or several whose columns lie beside each other. */
export type BlockInput = Value | readonly Value[];
/**
 * A projection of the layer `layer`: x·W, and its bias if the model has one. `rows` puts the rows of both into another
 * order.
 */
type Project = (x: BlockInput, layer: string, name: Projection, out: number, rows?: (stored: Value) => Value) => Value;

const keyOf = ({ window, chunk }: Reach): string => `${window ?? ''}/${chunk ?? ''}`;

/** The bias of each reach that some layer has. */
const biasesOf = (make: (reach: Reach) => Value, reaches: ReadonlyMap<string, Reach>): ReadonlyMap<string, Value> =>
  new Map([...reaches].map(([key, reach]) => [key, make(reach)]));

/** Embedding and layers, and what is made of their rows. The caller opens the scope of what it does with them. */
export interface Decoder {
  /** f32[T, hidden]: the residual stream behind the last layer. */
  readonly h: Value;
  /** f32[T, hidden]: the stream before each layer. */
  readonly streams: readonly Value[];
  /** f32[n, hidden]: rows of the stream behind the last norm, which scales them as `rounded` has them. */
  readonly normed: (h: Value, rounded: Value) => Value;
  /** Logits f32[n, vocabulary] of rows of the stream. */
  readonly logits: (h: Value) => Value;
  /** f32[n, classes] of rows of the stream, where the head has classes. */
  readonly classLogits: (h: Value, head: ClassHead) => Value;
}

/** The blocks that layers are made of. The caller opens their scopes. */
export interface LayerBlocks {
  /** A tensor of the checkpoint, behind the prefix of the names. */
  readonly weight: (name: string, dims: readonly number[]) => Value;
  readonly toF32: (v: Value, hint: string) => Value;
  readonly linear: Linear;
  readonly norm: Norm;
  /** What the branches of layer `index`, whose modules are below `layer`, give for rows of the stream. */
  readonly attention: (x: BlockInput, layer: string, index: number) => Value;
  readonly recurrent: (x: Value, layer: string) => Value;
  readonly feedForward: (x: Value, layer: string, index: number) => Value;
}

/** Rows of the embedding table, f32[T, hidden]. */
export const embeddedRows = (
  { toF32 }: Pick<LayerBlocks, 'toF32'>,
  b: GraphBuilder,
  table: Value,
  tokens: Value,
): Value => toF32(b.add('gather_rows', { x: table, index: tokens }, {}, 'embedded'), 'h');

export function layerBlocks(
  b: GraphBuilder,
  shape: DecoderShape,
  options: LayerOptions,
  { position, masks, paths, kept, visible }: Omit<LayerInputs, 'tokens'>,
): LayerBlocks {
  const { hiddenSize: hidden, headDim, heads, kvHeads } = shape;
  const { names = LLAMA_NAMES, prefix = '' } = options;
  const scaleOf = (layer: number): number =>
    (shape.factors?.scores ?? 1 / Math.sqrt(headDim)) / (shape.dividesScores === true ? layer + 1 : 1);
  const weight = (name: string, dims: readonly number[]): Value =>
    b.weight(`${prefix}${name}`, options.dtypeOf(`${prefix}${name}`), dims);
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const toF32 = (v: Value, hint: string): Value =>
    v.type.dtype === 'f32' ? v : b.add('cast', { x: v }, { dtype: 'f32' }, hint);
  const linear: Linear = (x, matrix, hint) => b.add('linear', { x, w: matrix }, {}, hint);
  const project: Project = (x, layer, name, out, rows = (stored) => stored) => {
    const module = `${layer}.${names.projections[name]}`;
    const isBiased = shape.biased.includes(name);
    const productOf = (each: Value, tensor: string, hint: string): Value =>
      linear(each, rows(weight(tensor, [out, each.type.shape.at(-1) as number])), hint);
    const hint = isBiased ? `${name}_product` : name;
    const product =
      'kind' in x
        ? productOf(x, `${module}.weight`, hint)
        : x
            .map((each, i) => productOf(each, columnsName(`${module}.weight`, i), `${name}_part`))
            .reduce((sum, part) => b.add('add', { a: sum, b: part }, {}, hint));
    if (!isBiased) return product;
    return b.add('add', { a: product, b: toF32(rows(weight(`${module}.bias`, [out])), `${name}_bias`) }, {}, name);
  };

  const vectorOf: VectorOf = (tensor, width, hint, rows = (stored) => stored) =>
    toF32(rows(weight(tensor, [width])), hint);
  const norm = normOf(b, shape.norm, shape.rmsNormEps, vectorOf);
  const latentNorm = normOf(b, undefined, LATENT_EPSILON, vectorOf);

  /** The factor of cosine and sine, which elements that are not turned go without. */
  const rotaryFactor = (factor: number): Value => {
    const rotated = shape.rotary?.rotated ?? headDim;
    if (rotated === headDim) return constant(factor, 'rotary_factor');
    const half = Array.from({ length: headDim / 2 }, (_, pair) => (pair < rotated / 2 ? Math.fround(factor) : 1));
    return b.add('vector', {}, { label: 'rope_factors', values: [...half, ...half] }, 'rotary_factors');
  };
  const windowOf = (layer: number): number | undefined => shape.windows?.[layer] ?? undefined;
  const reachOf = (layer: number): Reach => ({ window: windowOf(layer), chunk: shape.chunks?.[layer] ?? undefined });
  const turnsBy = ({ inverseFrequencies, factor }: RotaryTable): RotaryTurns => {
    const frequencies = b.add(
      'vector',
      {},
      {
        label: 'rope_inverse_frequencies',
        values: [...inverseFrequencies, ...inverseFrequencies].map(Math.fround),
      },
      'frequencies',
    );
    const angle = b.add(
      'mul',
      { a: b.add('reshape', { x: toF32(position, 'position_f') }, { shape: ['T', 1] }), b: frequencies },
      {},
      'angle',
    );
    const perHead = (v: Value, hint: string): Value => b.add('reshape', { x: v }, { shape: ['T', 1, headDim] }, hint);
    const scaled = (v: Value): Value => (factor === 1 ? v : b.add('mul', { a: v, b: rotaryFactor(factor) }));
    return {
      cos: perHead(scaled(b.add('cos', { x: angle })), 'cos_table'),
      sin: perHead(scaled(b.add('sin', { x: angle })), 'sin_table'),
    };
  };
  const { turns, windowTurns, biases, sloped, heat, previous } = b.scope('prepare', () => {
    const all = turnsBy(options.rotary);
    const own = masks();
    const reaches = Array.from({ length: shape.layers }, (_, layer) => reachOf(layer));
    const biases = biasesOf(own.bias, new Map(reaches.map((reach) => [keyOf(reach), reach])));
    return {
      turns: all,
      windowTurns: options.windowRotary === undefined ? all : turnsBy(options.windowRotary),
      biases,
      heat: shape.temperature && temperature(b, toF32(position, 'position_f'), shape.temperature),
      sloped: shape.slopes && alibiOf(b, shape.slopes, shape.slopeFactor, own),
      previous: shape.recurrent && previousTokens(b, position, paths?.(), shape.recurrent, kept),
    };
  });

  /** Rows of q and k in the order of `rope`. */
  const byPairs = (stored: Value): Value =>
    shape.rotary === undefined
      ? stored
      : b.add(
          'pair_halves',
          { x: stored },
          { headDim, ...shape.rotary },
          `${stored.kind === 'weight' ? 'rows' : 'elements'}_by_pairs`,
        );
  /** Rotary embedding of [T, h, d] (arXiv:2104.09864), whose pairs are half a head apart. */
  const rope = (x: Value, { cos, sin }: RotaryTurns): Value =>
    b.add(
      'add',
      { a: b.add('mul', { a: x, b: cos }), b: b.add('mul', { a: b.add('rotate_half', { x }), b: sin }) },
      {},
      'rotated',
    );

  const attention = (x: BlockInput, layer: string, index: number): Value => {
    const { latent } = shape;
    if (latent !== undefined) {
      if (!('kind' in x)) throw new Error(`${layer}: latent attention takes one list of rows.`);
      const narrow = { b, heads, weight, toF32, norm: latentNorm, rope: (of: Value) => rope(of, turns) };
      const own = latentHeads(narrow, latent, x, layer);
      return output(mixed({ q: () => own.q, k: () => own.k }, layer, index, own), x, layer);
    }
    const isTurned = shape.unrotated?.includes(index) !== true;
    const window = windowOf(index);
    const inHeads = (name: 'q' | 'k' | 'v', count: number, rows?: (stored: Value) => Value): Value =>
      b.scope(name, () => {
        const normed = (v: Value, ...of: readonly (typeof shape.qkNorm)[]): Value =>
          name === 'v' || shape.qkNorm === undefined || !of.includes(shape.qkNorm)
            ? v
            : norm(v, `${layer}.${names.qkNorms[name]}`, {
                ...defined({ rows }),
                isOwn: shape.qkNorm === 'own head',
              });
        const row = clipped(b, normed(project(x, layer, name, count * headDim, rows), 'row'), shape.clip);
        return normed(
          b.add('reshape', { x: row }, { shape: ['T', count, headDim] }, `${name}_heads`),
          'head',
          'own head',
        );
      });
    const turned = (name: 'q' | 'k', count: number): Value => {
      if (!isTurned) return inHeads(name, count);
      const heads = inHeads(name, count, byPairs);
      const turn = (x: Value): Value => rope(x, window === undefined ? turns : windowTurns);
      if (shape.qkNorm === 'unit head') return turn(unitHeads(b, heads, shape.rmsNormEps));
      // Turning keeps the length of a head, so that the norm may take it before.
      return shape.qkNorm === 'turned head'
        ? norm(heads, `${layer}.${names.qkNorms[name]}`, { rows: byPairs, between: turn })
        : turn(heads);
    };
    const queries = (): Value => {
      const own = turned('q', heads);
      const isTempered = heat !== undefined && (!isTurned || shape.temperature?.layers === 'all');
      return isTempered ? b.add('mul', { a: own, b: heat }, {}, 'tempered') : own;
    };
    const own = { q: queries, k: () => turned('k', kvHeads), v: () => inHeads('v', kvHeads) };
    return output(mixed(own, layer, index), x, layer);
  };

  /** Attention of queries over the keys and values that they see, [T, h, d] each: [T, h·d]. No values: keys are. */
  const mixed = (
    own: Readonly<Record<'q' | 'k', () => Value>> & { readonly v?: () => Value },
    layer: string,
    index: number,
    latent?: Pick<LatentHeads, 'tail' | 'values'>,
  ): Value => {
    const headsFirst = (v: Value, hint: string): Value => b.add('transpose', { x: v }, { order: [1, 0, 2] }, hint);
    const shared = (v: Value): Value => {
      const [count] = v.type.shape;
      return heads === count ? v : b.add('repeat', { x: v }, { times: heads / Number(count) }, 'shared');
    };
    const q = headsFirst(own.q(), 'q_by_head');
    const k = shared(headsFirst(visible('k', own.k(), index), 'k_by_head'));
    const v = own.v === undefined ? k : shared(headsFirst(visible('v', own.v(), index), 'v_by_head'));
    const dot = (a: Value, keys: Value, hint: string): Value =>
      b.add('matmul', { a, b: b.add('transpose', { x: keys }, { order: [0, 2, 1] }, 'k_transposed') }, {}, hint);
    const scoresOf = (tails: LatentHeads['tail']): Value => {
      const keys = shared(headsFirst(visible('tail', tails.k, index), 'k_tail_by_head'));
      const [plain, turnedScores] = [
        dot(q, k, 'plain_scores'),
        dot(headsFirst(tails.q, 'q_tail_by_head'), keys, 'turned_scores'),
      ];
      return b.add('add', { a: plain, b: turnedScores }, {}, 'scores');
    };
    const scores = latent === undefined ? dot(q, k, 'scores') : scoresOf(latent.tail);
    const scaled = b.add('mul', { a: scores, b: constant(scaleOf(index), 'scale') });
    const bounded = capped(b, scaled, shape.caps?.scores);
    const leaning = sloped === undefined ? bounded : b.add('add', { a: bounded, b: sloped }, {}, 'leaning');
    const biased = b.add('add', { a: leaning, b: biases.get(keyOf(reachOf(index)))! }, {}, 'biased');
    const probabilities = softmax(
      b,
      biased,
      shape.sinks === true ? toF32(weight(`${layer}.${names.sinks ?? SINKS}`, [heads]), 'sinks') : undefined,
    );
    const byToken = b.add(
      'transpose',
      { x: b.add('matmul', { a: probabilities, b: v }, {}, 'mixed') },
      { order: [1, 0, 2] },
      'by_token',
    );
    const attended = latent === undefined ? byToken : latent.values(byToken);
    const width = heads * Number(attended.type.shape[2]);
    return b.add('reshape', { x: attended }, { shape: ['T', width] }, 'attended');
  };

  /** What a layer's attention gives for rows `x`, of what its heads give. */
  const output = (flat: Value, x: BlockInput, layer: string): Value => {
    if (shape.isOutputGated !== true) return b.scope('o', () => project(flat, layer, 'o', hidden));
    const gated = b.scope('gate', () => {
      const name = gateName(`${layer}.${names.projections.q}`);
      if ('length' in x) throw new Error(`${layer}: a gate of several inputs is not supported`);
      const product = linear(x, weight(`${name}.weight`, [heads * headDim, x.type.shape.at(-1) as number]), 'gate');
      const bias = shape.biased.includes('q')
        ? toF32(weight(`${name}.bias`, [heads * headDim]), 'gate_bias')
        : undefined;
      const sum = bias === undefined ? product : b.add('add', { a: product, b: bias }, {}, 'gate');
      const one = constant(1, 'one');
      const share = b.add('add', { a: one, b: b.add('exp', { x: b.add('neg', { x: sum }) }) }, {}, 'share');
      return b.add('div', { a: flat, b: share }, {}, 'gated');
    });
    return b.scope('o', () => project(gated, layer, 'o', hidden));
  };

  const recurrent = (x: Value, layer: string): Value => {
    const { activation = 'silu' } = shape;
    if (shape.recurrent === undefined || previous === undefined || activation === 'xielu')
      throw new Error(`${layer} is not recurrent`);
    return buildRecurrent(
      { b, hidden, epsilon: shape.rmsNormEps, activation, weight, toF32, previous },
      shape.recurrent,
      x,
      layer,
    );
  };

  /** f(x·up)·down, or with a gate (f(x·gate) ∘ x·up)·down (SwiGLU and its kin, arXiv:2002.05202). */
  const feedForward = (x: Value, layer: string, index: number): Value => {
    const { experts, activation = 'silu' } = shape;
    if (hasExperts(experts, index)) {
      if (activation === 'xielu') throw new Error(`${layer}: experts whose activation is learned are not supported`);
      return buildExperts(
        { b, names: names.experts ?? QWEN_EXPERTS, hidden, activation, weight, toF32 },
        experts,
        x,
        layer,
      );
    }
    const inner = (name: 'gate' | 'up'): Value =>
      b.scope(name, () => project(x, layer, name, shape.denseWidth ?? shape.intermediateSize));
    const learned = (): LearnedActivation =>
      learnedActivation(layer, (tensor, hint) => toF32(weight(tensor, [1]), hint));
    const active = (product: Value): Value =>
      activation === 'xielu' ? xielu(b, product, learned()) : activate(b, activation, product);
    if (shape.isGated === false) {
      const activated = active(inner('up'));
      return b.scope('down', () => project(activated, layer, 'down', hidden));
    }
    const [gate, up] = [inner('gate'), inner('up')];
    const activated = active(gate);
    return b.scope('down', () =>
      project(b.add('mul', { a: activated, b: up }, {}, 'activated'), layer, 'down', hidden),
    );
  };

  return { weight, toF32, linear, norm, attention, recurrent, feedForward };
}

/** Heads divided by the root of their mean square. */
function unitHeads(b: GraphBuilder, x: Value, epsilon: number): Value {
  const square = b.add('mean', { x: b.add('mul', { a: x, b: x }, {}, 'square') }, {}, 'mean_square');
  const eps = b.add('const', {}, { value: epsilon }, 'eps');
  const scale = b.add('rsqrt', { x: b.add('add', { a: square, b: eps }) }, {}, 'rms_scale');
  return b.add('mul', { a: x, b: scale }, {}, 'unit');
}

const alibiOf = (b: GraphBuilder, slopes: readonly number[], factor: number | undefined, masks: PositionMasks): Value =>
  factor === undefined ? alibi(b, slopes, masks.distance()) : roundedAlibi(b, slopes, masks.keyPosition(), factor);

/** x, no further from 0 than `most`. */
function clipped(b: GraphBuilder, x: Value, most: number | undefined): Value {
  if (most === undefined) return x;
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const below = b.add('min', { a: x, b: constant(most, 'most') }, {}, 'below_most');
  return b.add('max', { a: below, b: constant(-most, 'least') }, {}, 'clipped');
}

export function buildLayers(
  b: GraphBuilder,
  shape: DecoderShape,
  options: LayerOptions,
  { tokens, ...inputs }: LayerInputs,
): Decoder {
  const { names = LLAMA_NAMES } = options;
  const { hiddenSize: hidden } = shape;
  const factors = { embedding: 1, residual: 1, logits: 1, ...shape.factors };
  const blocks = layerBlocks(b, shape, options, inputs);
  const { weight, toF32, linear, norm, attention, recurrent, feedForward } = blocks;
  const times = (x: Value, by: number, hint: string): Value =>
    by === 1 ? x : b.add('mul', { a: x, b: b.add('const', {}, { value: by }, `${hint}_factor`) }, {}, hint);
  const { embeddingWidth: narrow = hidden } = shape;
  const embedding = weight(`${names.embedding}.weight`, [shape.vocabSize, narrow]);
  /** Rows of embeddings as rows of the stream, and the other way before the head, where their widths differ. */
  const between = (x: Value, way: 'into' | 'out', out: number, hint: string): Value => {
    const module = names.widths?.[way];
    if (narrow === hidden || module === undefined) return x;
    return linear(x, weight(`${module}.weight`, [out, x.type.shape.at(-1) as number]), hint);
  };
  let h = b.scope('embed', () => {
    const rows = between(embeddedRows(blocks, b, embedding, tokens), 'into', hidden, 'widened');
    const own = times(rows, factors.embedding, 'h_scaled');
    if (names.embeddingNorm !== undefined) return norm(own, names.embeddingNorm);
    if (shape.positionRows === undefined) return own;
    const table = weight(positionsTensor(names), [shape.positionRows, hidden]);
    const of = b.add('gather_rows', { x: table, index: inputs.position }, {}, 'position_embedded');
    return b.add('add', { a: own, b: toF32(of, 'position_h') }, {}, 'h');
  });
  const streams: Value[] = [];
  /** The residual stream `x` and what a branch adds to it. */
  const joined = (x: Value, branch: Value): Value =>
    b.add('add', { a: x, b: times(branch, factors.residual, 'branch') }, {}, 'h');
  for (let i = 0; i < shape.layers; i++) {
    streams.push(h);
    const layer = `${names.layers}.${i}`;
    const normed = (x: Value, module?: string): Value => (module === undefined ? x : norm(x, module));
    /** `sum` and what the branch `f` adds to it for the stream `x`. */
    const branch = (sum: Value, x: Value, own: BranchNorms, f: (x: Value) => Value): Value => {
      const input = normed(x, normBefore(own, names, i));
      const { after } = own;
      return joined(shape.keepsNormed === true ? input : sum, normed(f(input), after && `${layer}.${after}`));
    };
    const { attention: own, ffn } = names.norms;
    const shared = shape.parallel === 'one norm' && own.before !== undefined ? { before: own.before } : {};
    h = b.scope(`layers.${i}`, () => {
      const mid = b.scope('attention', () =>
        branch(h, h, own, (x) => (isRecurrent(shape, i) ? recurrent(x, layer) : attention(x, layer, i))),
      );
      if (shape.recurrent?.kind === 'mamba') return mid;
      const stream = shape.parallel === undefined ? mid : h;
      return b.scope('ffn', () => branch(mid, stream, { ...ffn, ...shared }, (x) => feedForward(x, layer, i)));
    });
  }

  const head = `${shape.tieWordEmbeddings ? names.embedding : names.head}.weight`;
  const lastNorm = (x: Value, rounded = x, factor = 1): Value =>
    shape.hasFinalNorm === false ? times(rounded, factor, 'scaled') : norm(x, names.finalNorm, { rounded, factor });
  const logits = (last: Value): Value => {
    const normed = lastNorm(last, last, factors.logits);
    const rows = between(normed, 'out', narrow, 'narrowed');
    const isBiased = shape.hasHeadBias === true;
    const product = linear(rows, weight(head, [shape.vocabSize, narrow]), isBiased ? 'head_product' : 'logits');
    if (!isBiased) return capped(b, product, shape.caps?.logits);
    const bias = toF32(weight(`${names.head}.bias`, [shape.vocabSize]), 'head_bias');
    return capped(b, b.add('add', { a: product, b: bias }, {}, 'logits'), shape.caps?.logits);
  };
  // Factors and caps of logits are those of the vocabulary's, as in transformers.
  const classLogits = (last: Value, { layers }: ClassHead): Value =>
    layers.reduce((x, { module, rows, isBiased }, i) => {
      const isLast = i === layers.length - 1;
      const matrix = weight(`${module}.weight`, [rows, x.type.shape.at(-1) as number]);
      const product = linear(x, matrix, isLast && !isBiased ? 'class_logits' : 'class_product');
      const bias = isBiased ? toF32(weight(`${module}.bias`, [rows]), 'class_bias') : undefined;
      const sum = bias === undefined ? product : b.add('add', { a: product, b: bias }, {}, 'class_logits');
      return isLast ? sum : b.add('max', { a: sum, b: b.add('const', {}, { value: 0 }, 'zero') }, {}, 'rectified');
    }, lastNorm(last));
  return { h, streams, normed: lastNorm, logits, classLogits };
}
