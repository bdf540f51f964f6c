/**
 * The layers of a decoder of LLaMA's kind (arXiv:2302.13971; grouped-query attention arXiv:2305.13245) in primitive
 * ops, as the papers write it. Nothing here knows about kernels: recognising attention, folding norms and fusing are
 * the compiler's work.
 */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { GraphOptions } from '../family/model.js';
import type { DecoderConfig, Projection } from './config.js';
import type { RotaryTable } from './rope.js';
import { activate } from './activation.js';
import { normOf } from './norms.js';
import { LLAMA_NAMES, type NormPlace, type TensorNames } from './tensors.js';

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
  | 'norm'
  | 'activation'
  | 'isGated'
  | 'parallel'
  | 'rotary'
  | 'headNorms'
  | 'unrotated'
  | 'factors'
>;

export interface LayerOptions extends Pick<GraphOptions, 'dtypeOf'> {
  readonly rotary: RotaryTable;
  /** Default: those of LLaMA. */
  readonly names?: TensorNames;
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

/** x·W for a matrix [out, in]. */
type Linear = (x: Value, matrix: Value, hint: string) => Value;
/**
 * A projection of the layer `layer`: x·W, and its bias if the model has one. `rows` puts the rows of both into another
 * order.
 */
type Project = (x: Value, layer: string, name: Projection, out: number, rows?: (stored: Value) => Value) => Value;

/** Embedding, layers and head: the logits f32[T, vocabulary]. The caller opens the scope of what it does with them. */
export function buildLayers(
  b: GraphBuilder,
  shape: DecoderShape,
  options: LayerOptions,
  { tokens, position, bias: buildBias, visible }: LayerInputs,
): { readonly h: Value; readonly logits: (h: Value) => Value } {
  const { hiddenSize: hidden, headDim, heads, kvHeads } = shape;
  const { inverseFrequencies, factor } = options.rotary;
  const { names = LLAMA_NAMES } = options;
  const factors = { embedding: 1, residual: 1, scores: 1 / Math.sqrt(headDim), logits: 1, ...shape.factors };
  const weight = (name: string, dims: readonly number[]): Value => b.weight(name, options.dtypeOf(name), dims);
  const constant = (value: number, hint: string): Value => b.add('const', [], { value }, hint);
  const toF32 = (v: Value, hint: string): Value =>
    v.type.dtype === 'f32' ? v : b.add('cast', [v], { dtype: 'f32' }, hint);
  const linear: Linear = (x, matrix, hint) => b.add('linear', [x, matrix], {}, hint);
  const project: Project = (x, layer, name, out, rows = (stored) => stored) => {
    const module = `${layer}.${names.projections[name]}`;
    const matrix = rows(weight(`${module}.weight`, [out, x.type.shape.at(-1) as number]));
    if (!shape.biased.includes(name)) return linear(x, matrix, name);
    const product = linear(x, matrix, `${name}_product`);
    return b.add('add', [product, toF32(rows(weight(`${module}.bias`, [out])), `${name}_bias`)], {}, name);
  };

  const times = (x: Value, by: number, hint: string): Value =>
    by === 1 ? x : b.add('mul', [x, constant(by, `${hint}_factor`)], {}, hint);

  const norm = normOf(b, shape.norm, shape.rmsNormEps, (tensor, width, hint) => toF32(weight(tensor, [width]), hint));

  /** The factor of cosine and sine, which elements that are not turned go without. */
  const rotaryFactor = (): Value => {
    const rotated = shape.rotary?.rotated ?? headDim;
    if (rotated === headDim) return constant(factor, 'rotary_factor');
    const half = Array.from({ length: headDim / 2 }, (_, pair) => (pair < rotated / 2 ? Math.fround(factor) : 1));
    return b.add('vector', [], { label: 'rope_factors', values: [...half, ...half] }, 'rotary_factors');
  };
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
    const scaled = (v: Value): Value => (factor === 1 ? v : b.add('mul', [v, rotaryFactor()]));
    return {
      cos: perHead(scaled(b.add('cos', [angle])), 'cos_table'),
      sin: perHead(scaled(b.add('sin', [angle])), 'sin_table'),
      bias: buildBias(),
    };
  });

  /** Rows of q and k in the order of `rope`. */
  const byPairs = (stored: Value): Value =>
    shape.rotary === undefined
      ? stored
      : b.add(
          'pair_halves',
          [stored],
          { headDim, ...shape.rotary },
          `${stored.kind === 'weight' ? 'rows' : 'elements'}_by_pairs`,
        );
  /** Rotary embedding of [T, h, d] (arXiv:2104.09864), whose pairs are half a head apart. */
  const rope = (x: Value): Value =>
    b.add('add', [b.add('mul', [x, cos]), b.add('mul', [b.add('rotate_half', [x]), sin])], {}, 'rotated');

  const attention = (x: Value, layer: string, index: number): Value => {
    const isTurned = shape.unrotated?.includes(index) !== true;
    const inHeads = (name: 'q' | 'k' | 'v', count: number, rows?: (stored: Value) => Value): Value =>
      b.scope(name, () => {
        const product = project(x, layer, name, count * headDim, rows);
        return b.add('reshape', [product], { shape: ['T', count, headDim] }, `${name}_heads`);
      });
    const turned = (name: 'q' | 'k', count: number): Value => {
      const plain = inHeads(name, count, isTurned ? byPairs : undefined);
      const normed =
        shape.headNorms === true ? b.scope(name, () => norm(plain, `${layer}.${names.headNorms[name]}`)) : plain;
      return isTurned ? rope(normed) : normed;
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

  /** f(x·up)·down, or with a gate (f(x·gate) ∘ x·up)·down (SwiGLU and its kin, arXiv:2002.05202). */
  const feedForward = (x: Value, layer: string): Value => {
    const inner = (name: 'gate' | 'up'): Value => b.scope(name, () => project(x, layer, name, shape.intermediateSize));
    const active = (product: Value): Value => activate(b, shape.activation ?? 'silu', product);
    if (shape.isGated === false) {
      const activated = active(inner('up'));
      return b.scope('down', () => project(activated, layer, 'down', hidden));
    }
    const [gate, up] = [inner('gate'), inner('up')];
    const activated = active(gate);
    return b.scope('down', () => project(b.add('mul', [activated, up], {}, 'activated'), layer, 'down', hidden));
  };

  const embedding = weight(`${names.embedding}.weight`, [shape.vocabSize, hidden]);
  let h = b.scope('embed', () => {
    const embedded = toF32(b.add('gather_rows', [embedding, tokens], {}, 'embedded'), 'h');
    return times(embedded, factors.embedding, 'h_scaled');
  });
  /** The residual stream `x` and what a branch adds to it. */
  const joined = (x: Value, branch: Value): Value =>
    b.add('add', [x, times(branch, factors.residual, 'branch')], {}, 'h');
  for (let i = 0; i < shape.layers; i++) {
    const layer = `${names.layers}.${i}`;
    const normed = (x: Value, place: NormPlace): Value => norm(x, `${layer}.${names.norms[place]}`);
    const attended = (x: Value): Value =>
      b.scope('attention', () => joined(x, attention(normed(x, 'attention'), layer, i)));
    const fed = (sum: Value, x: Value): Value =>
      b.scope('ffn', () =>
        joined(sum, feedForward(normed(x, shape.parallel === 'one norm' ? 'attention' : 'ffn'), layer)),
      );
    h = b.scope(`layers.${i}`, () => {
      const mid = attended(h);
      return fed(mid, shape.parallel === undefined ? mid : h);
    });
  }

  const head = `${shape.tieWordEmbeddings ? names.embedding : names.head}.weight`;
  const logits = (last: Value): Value =>
    linear(norm(last, names.finalNorm, factors.logits), weight(head, [shape.vocabSize, hidden]), 'logits');
  return { h, logits };
}
