/**
 * LLaMA (arXiv:2302.13971; grouped-query attention arXiv:2305.13245) in primitive ops, as the papers write it.
 * Nothing here knows about kernels: recognising attention, folding norms and fusing are the compiler's work.
 */
import { GraphBuilder, type Graph, type Value } from '../ir/graph.js';
import type { DType } from '../ir/types.js';
import { buildMask, type MaskKind } from './mask.js';

/** What the graph needs to know of a model. `LlamaConfig` of models/config satisfies it. */
export interface LlamaShape {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabSize: number;
  readonly rmsNormEps: number;
  readonly tieWordEmbeddings: boolean;
}

export interface LlamaOptions {
  readonly mask: MaskKind;
  /** f64[headDim/2] rotary inverse frequencies, scaling applied. */
  readonly inverseFrequencies: Float64Array;
  /** Stored element type of a checkpoint tensor. */
  readonly dtypeOf: (tensor: string) => DType;
  /** Keys a query sees under a sliding-window mask. */
  readonly window?: number;
}

/** x·w for a Linear stored as [out, in]. */
type Linear = (x: Value, tensor: string, out: number, hint: string) => Value;

/**
 * score(tokens i32[T], position i32[T], mask inputs, row i32[R], target i32[R]) → (f32[R] log-probability of
 * target[r] after token row[r], i32[R] 1 where the target is the most likely token).
 */
export function buildLlama(shape: LlamaShape, options: LlamaOptions): Graph {
  const b = new GraphBuilder('score');
  const { hiddenSize: hidden, headDim, heads, kvHeads } = shape;
  const tokens = b.param('tokens', 'i32', ['T']);
  const position = b.param('position', 'i32', ['T']);
  const weight = (name: string, dims: readonly number[]): Value => b.weight(name, options.dtypeOf(name), dims);
  const constant = (value: number, hint: string): Value => b.add('const', [], { value }, hint);
  const toF32 = (v: Value, hint: string): Value =>
    v.type.dtype === 'f32' ? v : b.add('cast', [v], { dtype: 'f32' }, hint);
  const linear: Linear = (x, tensor, out, hint) =>
    b.add('linear', [x, weight(tensor, [out, x.type.shape.at(-1) as number])], {}, hint);

  /** x · 1/√(mean x² + ε) · w  (arXiv:1910.07467) */
  const rmsNorm = (x: Value, tensor: string): Value =>
    b.scope('norm', () => {
      const meanSquare = b.add('mean', [b.add('mul', [x, x], {}, 'square')], {}, 'mean_square');
      const scale = b.add('rsqrt', [b.add('add', [meanSquare, constant(shape.rmsNormEps, 'eps')])], {}, 'rms_scale');
      return b.add(
        'mul',
        [b.add('mul', [x, scale], {}, 'unit'), toF32(weight(tensor, [hidden]), 'norm_weight')],
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
        values: [...options.inverseFrequencies, ...options.inverseFrequencies].map(Math.fround),
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
    return {
      cos: perHead(b.add('cos', [angle]), 'cos_table'),
      sin: perHead(b.add('sin', [angle]), 'sin_table'),
      bias: buildMask(b, options.mask, options.window),
    };
  });

  /** Rotary embedding of [T, h, d] (arXiv:2104.09864), split-half layout. */
  const rope = (x: Value): Value =>
    b.add('add', [b.add('mul', [x, cos]), b.add('mul', [b.add('rotate_half', [x]), sin])], {}, 'rotated');

  const attention = (x: Value, layer: string): Value => {
    const project = (name: string, count: number): Value =>
      b.scope(name, () =>
        b.add(
          'reshape',
          [linear(x, `${layer}.self_attn.${name}_proj.weight`, count * headDim, name)],
          { shape: ['T', count, headDim] },
          `${name}_heads`,
        ),
      );
    const headsFirst = (v: Value, hint: string): Value => b.add('transpose', [v], { order: [1, 0, 2] }, hint);
    const shared = (v: Value): Value =>
      heads === kvHeads ? v : b.add('repeat', [v], { times: heads / kvHeads }, 'shared');
    const q = headsFirst(rope(project('q', heads)), 'q_by_head');
    const k = shared(headsFirst(rope(project('k', kvHeads)), 'k_by_head'));
    const v = shared(headsFirst(project('v', kvHeads), 'v_by_head'));
    const scores = b.add('matmul', [q, b.add('transpose', [k], { order: [0, 2, 1] }, 'k_transposed')], {}, 'scores');
    const biased = b.add(
      'add',
      [b.add('mul', [scores, constant(1 / Math.sqrt(headDim), 'scale')]), bias],
      {},
      'biased',
    );
    const exp = b.add('exp', [b.add('sub', [biased, b.add('reduce_max', [biased], {}, 'top')])], {}, 'exp');
    const probabilities = b.add('div', [exp, b.add('sum', [exp], {}, 'total')], {}, 'probabilities');
    const mixed = b.add(
      'transpose',
      [b.add('matmul', [probabilities, v], {}, 'mixed')],
      { order: [1, 0, 2] },
      'by_token',
    );
    const flat = b.add('reshape', [mixed], { shape: ['T', heads * headDim] }, 'attended');
    return b.scope('o', () => linear(flat, `${layer}.self_attn.o_proj.weight`, hidden, 'o'));
  };

  /** SwiGLU (arXiv:2002.05202): (silu(x·gate) ∘ x·up)·down */
  const feedForward = (x: Value, layer: string): Value => {
    const gate = b.scope('gate', () => linear(x, `${layer}.mlp.gate_proj.weight`, shape.intermediateSize, 'gate'));
    const up = b.scope('up', () => linear(x, `${layer}.mlp.up_proj.weight`, shape.intermediateSize, 'up'));
    const one = constant(1, 'one');
    const silu = b.add('div', [gate, b.add('add', [one, b.add('exp', [b.add('neg', [gate])])])], {}, 'silu');
    return b.scope('down', () =>
      linear(b.add('mul', [silu, up], {}, 'activated'), `${layer}.mlp.down_proj.weight`, hidden, 'down'),
    );
  };

  const embedding = weight('model.embed_tokens.weight', [shape.vocabSize, hidden]);
  let h = b.scope('embed', () => toF32(b.add('gather_rows', [embedding, tokens], {}, 'embedded'), 'h'));
  for (let i = 0; i < shape.layers; i++) {
    const layer = `model.layers.${i}`;
    h = b.scope(`layers.${i}`, () => {
      const mid = b.scope('attention', () =>
        b.add('add', [h, attention(rmsNorm(h, `${layer}.input_layernorm.weight`), layer)], {}, 'h'),
      );
      return b.scope('ffn', () =>
        b.add('add', [mid, feedForward(rmsNorm(mid, `${layer}.post_attention_layernorm.weight`), layer)], {}, 'h'),
      );
    });
  }

  return b.scope('head', () => {
    const logits = linear(
      rmsNorm(h, 'model.norm.weight'),
      shape.tieWordEmbeddings ? 'model.embed_tokens.weight' : 'lm_head.weight',
      shape.vocabSize,
      'logits',
    );
    const shifted = b.add('sub', [logits, b.add('reduce_max', [logits], {}, 'top')], {}, 'shifted');
    const logProbs = b.add('sub', [shifted, b.add('log', [b.add('sum', [b.add('exp', [shifted])])])], {}, 'log_probs');
    const row = b.param('row', 'i32', ['R']);
    const target = b.param('target', 'i32', ['R']);
    const picked = b.add('gather_last', [b.add('gather_rows', [logProbs, row]), target], {}, 'log_prob');
    const best = b.add(
      'reshape',
      [b.add('gather_rows', [b.add('argmax', [logits], {}, 'best'), row])],
      { shape: ['R'] },
      'best',
    );
    const isArgmax = b.add('cast', [b.add('eq', [best, target])], { dtype: 'i32' }, 'is_argmax');
    return b.finish([picked, isArgmax]);
  });
}
