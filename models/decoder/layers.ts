/**
 * The layers of a decoder of LLaMA's kind (arXiv:2302.13971; grouped-query attention arXiv:2305.13245) in primitive
 * ops, as the papers write it. Nothing here knows about kernels: recognising attention, folding norms and fusing are
 * the compiler's work.
 */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { GraphOptions } from '../family/model.js';
import type { DecoderConfig, Projection } from './config.js';
import type { RotaryTable } from './rope.js';
import { EMBEDDING, HEAD, HEAD_NORMS, MODULES } from './tensors.js';

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
  | 'biased'
  | 'headNorms'
  | 'unrotated'
  | 'factors'
>;

export interface LayerOptions extends Pick<GraphOptions, 'dtypeOf'> {
  readonly rotary: RotaryTable;
}

/** What a function brings to the layers. */
export interface LayerInputs {
  /** i32[T]: token ids, and the depth of each token on its path. */
  readonly tokens: Value;
  readonly position: Value;
  /** Makes the f32[T, C] bias of the attention scores. */
  readonly bias: () => Value;
  /** The keys or values [C, g, d] that queries see, made from those of the function's own tokens [T, g, d]. */
  readonly visible: (kind: 'k' | 'v', own: Value, layer: number) => Value;
}

/** x·W for a Linear stored as [out, in]. */
type Linear = (x: Value, tensor: string, out: number, hint: string) => Value;
/** A projection of the layer `layer`: x·W, and its bias if the model has one. */
type Project = (x: Value, layer: string, name: Projection, out: number) => Value;

/** Embedding, layers and head: the logits f32[T, vocabulary]. The caller opens the scope of what it does with them. */
export function buildLayers(
  b: GraphBuilder,
  shape: DecoderShape,
  options: LayerOptions,
  { tokens, position, bias: buildBias, visible }: LayerInputs,
): { readonly h: Value; readonly logits: (h: Value) => Value } {
  const { hiddenSize: hidden, headDim, heads, kvHeads } = shape;
  const { inverseFrequencies, factor } = options.rotary;
  const factors = shape.factors ?? { embedding: 1, residual: 1, scores: 1 / Math.sqrt(headDim), logits: 1 };
  const weight = (name: string, dims: readonly number[]): Value => b.weight(name, options.dtypeOf(name), dims);
  const constant = (value: number, hint: string): Value => b.add('const', [], { value }, hint);
  const toF32 = (v: Value, hint: string): Value =>
    v.type.dtype === 'f32' ? v : b.add('cast', [v], { dtype: 'f32' }, hint);
  const linear: Linear = (x, tensor, out, hint) =>
    b.add('linear', [x, weight(tensor, [out, x.type.shape.at(-1) as number])], {}, hint);
  const project: Project = (x, layer, name, out) => {
    const module = `${layer}.${MODULES[name]}`;
    if (!shape.biased.includes(name)) return linear(x, `${module}.weight`, out, name);
    const product = linear(x, `${module}.weight`, out, `${name}_product`);
    return b.add('add', [product, toF32(weight(`${module}.bias`, [out]), `${name}_bias`)], {}, name);
  };

  const times = (x: Value, by: number, hint: string): Value =>
    by === 1 ? x : b.add('mul', [x, constant(by, `${hint}_factor`)], {}, hint);

  /** x · factor/√(mean x² + ε) · w over the last dimension (arXiv:1910.07467) */
  const rmsNorm = (x: Value, tensor: string, factor = 1): Value =>
    b.scope('norm', () => {
      const meanSquare = b.add('mean', [b.add('mul', [x, x], {}, 'square')], {}, 'mean_square');
      const inverse = b.add('rsqrt', [b.add('add', [meanSquare, constant(shape.rmsNormEps, 'eps')])], {}, 'rms_scale');
      const scale = times(inverse, factor, 'scaled_rms');
      return b.add(
        'mul',
        [b.add('mul', [x, scale], {}, 'unit'), toF32(weight(tensor, [x.type.shape.at(-1) as number]), 'norm_weight')],
        {},
        'normed',
      );
    });

  const { cos, sin, bias } = b.scope('prepare', () => {
    const frequencies = b.add(
      'vector',
      [],
      {
        label: 'rope_inverse_frequencies',
        values: [...inverseFrequencies, ...inverseFrequencies].map(Math.fround),
      },
      'frequencies',
    );
    const angle = b.add(
      'mul',
      [b.add('reshape', [toF32(position, 'position_f')], { shape: ['T', 1] }), frequencies],
      {},
      'angle',
    );
    const perHead = (v: Value, hint: string): Value => b.add('reshape', [v], { shape: ['T', 1, headDim] }, hint);
    const scaled = (v: Value): Value => (factor === 1 ? v : b.add('mul', [v, constant(factor, 'rotary_factor')]));
    return {
      cos: perHead(scaled(b.add('cos', [angle])), 'cos_table'),
      sin: perHead(scaled(b.add('sin', [angle])), 'sin_table'),
      bias: buildBias(),
    };
  });

  /** Rotary embedding of [T, h, d] (arXiv:2104.09864), split-half layout. */
  const rope = (x: Value): Value =>
    b.add('add', [b.add('mul', [x, cos]), b.add('mul', [b.add('rotate_half', [x]), sin])], {}, 'rotated');

  const attention = (x: Value, layer: string, index: number): Value => {
    const inHeads = (name: 'q' | 'k' | 'v', count: number): Value =>
      b.scope(name, () =>
        b.add('reshape', [project(x, layer, name, count * headDim)], { shape: ['T', count, headDim] }, `${name}_heads`),
      );
    const turned = (name: 'q' | 'k', count: number): Value => {
      const plain = inHeads(name, count);
      const normed =
        shape.headNorms === true ? b.scope(name, () => rmsNorm(plain, `${layer}.${HEAD_NORMS[name]}.weight`)) : plain;
      return shape.unrotated?.includes(index) === true ? normed : rope(normed);
    };
    const headsFirst = (v: Value, hint: string): Value => b.add('transpose', [v], { order: [1, 0, 2] }, hint);
    const shared = (v: Value): Value =>
      heads === kvHeads ? v : b.add('repeat', [v], { times: heads / kvHeads }, 'shared');
    const q = headsFirst(turned('q', heads), 'q_by_head');
    const k = shared(headsFirst(visible('k', turned('k', kvHeads), index), 'k_by_head'));
    const v = shared(headsFirst(visible('v', inHeads('v', kvHeads), index), 'v_by_head'));
    const scores = b.add('matmul', [q, b.add('transpose', [k], { order: [0, 2, 1] }, 'k_transposed')], {}, 'scores');
    const biased = b.add('add', [b.add('mul', [scores, constant(factors.scores, 'scale')]), bias], {}, 'biased');
    const exp = b.add('exp', [b.add('sub', [biased, b.add('reduce_max', [biased], {}, 'top')])], {}, 'exp');
    const probabilities = b.add('div', [exp, b.add('sum', [exp], {}, 'total')], {}, 'probabilities');
    const mixed = b.add(
      'transpose',
      [b.add('matmul', [probabilities, v], {}, 'mixed')],
      { order: [1, 0, 2] },
      'by_token',
    );
    const flat = b.add('reshape', [mixed], { shape: ['T', heads * headDim] }, 'attended');
    return b.scope('o', () => project(flat, layer, 'o', hidden));
  };

  /** SwiGLU (arXiv:2002.05202): (silu(x·gate) ∘ x·up)·down */
  const feedForward = (x: Value, layer: string): Value => {
    const gate = b.scope('gate', () => project(x, layer, 'gate', shape.intermediateSize));
    const up = b.scope('up', () => project(x, layer, 'up', shape.intermediateSize));
    const one = constant(1, 'one');
    const silu = b.add('div', [gate, b.add('add', [one, b.add('exp', [b.add('neg', [gate])])])], {}, 'silu');
    return b.scope('down', () => project(b.add('mul', [silu, up], {}, 'activated'), layer, 'down', hidden));
  };

  const embedding = weight(EMBEDDING, [shape.vocabSize, hidden]);
  let h = b.scope('embed', () => {
    const embedded = toF32(b.add('gather_rows', [embedding, tokens], {}, 'embedded'), 'h');
    return times(embedded, factors.embedding, 'h_scaled');
  });
  /** The residual stream `x` and what a branch adds to it. */
  const joined = (x: Value, branch: Value): Value =>
    b.add('add', [x, times(branch, factors.residual, 'branch')], {}, 'h');
  for (let i = 0; i < shape.layers; i++) {
    const layer = `model.layers.${i}`;
    h = b.scope(`layers.${i}`, () => {
      const mid = b.scope('attention', () =>
        joined(h, attention(rmsNorm(h, `${layer}.input_layernorm.weight`), layer, i)),
      );
      return b.scope('ffn', () =>
        joined(mid, feedForward(rmsNorm(mid, `${layer}.post_attention_layernorm.weight`), layer)),
      );
    });
  }

  const logits = (last: Value): Value =>
    linear(
      rmsNorm(last, 'model.norm.weight', factors.logits),
      shape.tieWordEmbeddings ? EMBEDDING : HEAD,
      shape.vocabSize,
      'logits',
    );
  return { h, logits };
}
