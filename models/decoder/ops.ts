/** Norms, activations and bounds of scores of a decoder, in primitive ops as the papers write them. */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';

// Norms of a decoder, in primitive ops as the papers write them.

/** What a norm computes. */
export interface NormKind {
  readonly kind: 'rms' | 'layer';
  /** Added to the weight. */
  readonly offset: number;
  readonly hasBias: boolean;
  /** Whether there are no weights, and no bias. Default: there are. */
  readonly isBare?: true;
}

/** Puts the elements of a stored vector into another order. */
type RowOrder = (stored: Value) => Value;

/** What a norm reads of a checkpoint, as f32 vectors. */
export type VectorOf = (tensor: string, width: number, hint: string, rows?: RowOrder) => Value;

export interface NormOptions {
  /** Multiplies the result. */
  readonly factor?: number;
  /** The order of the elements of x. */
  readonly rows?: RowOrder;
  /** Scaled in place of x, whose mean and squares count: x, rounded. */
  readonly rounded?: Value;
  /** Moves the elements of a row that has been scaled, before weights multiply it. It keeps the length of a row. */
  readonly between?: (unit: Value) => Value;
  /** True if each head of x [T, heads, width] has weights of its own, which follow one another, and no bias. */
  readonly isOwn?: boolean;
}

/** Builds norms over the last dimension. */
export type Norm = (x: Value, module: string, options?: NormOptions) => Value;

const RMS: NormKind = { kind: 'rms', offset: 0, hasBias: false };

/**
 * RMSNorm: x/√(mean x² + ε) · w (arXiv:1910.07467). LayerNorm: (x − mean x)/√(mean (x − mean x)² + ε) · w + b
 * (arXiv:1607.06450), where b may be absent. `offset` is added to w.
 */
export function normOf(
  b: GraphBuilder,
  { kind, offset, hasBias, isBare }: NormKind = RMS,
  epsilon: number,
  vector: VectorOf,
): Norm {
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const inverseRoot = (x: Value, mean: string, root: string): Value => {
    const square = b.add('mean', { x: b.add('mul', { a: x, b: x }, {}, 'square') }, {}, mean);
    return b.add('rsqrt', { x: b.add('add', { a: square, b: constant(epsilon, 'eps') }) }, {}, root);
  };
  return (x, module, { factor = 1, rows, rounded = x, isOwn = false, between = (unit: Value): Value => unit } = {}) =>
    b.scope('norm', () => {
      const [tokens, heads, last] = x.type.shape;
      const width = isOwn ? (heads as number) * (last as number) : (x.type.shape.at(-1) as number);
      const weighted = (unit: Value, name: string): Value => {
        if (isBare === true) return unit;
        const weight = vector(`${module}.weight`, width, 'norm_weight', rows);
        if (isOwn) {
          const row = b.add('reshape', { x: unit }, { shape: [tokens!, width] }, 'unit_row');
          return b.add(
            'reshape',
            { x: b.add('mul', { a: row, b: weight }, {}, `${name}_row`) },
            { shape: x.type.shape },
            name,
          );
        }
        const by =
          offset === 0 ? weight : b.add('add', { a: weight, b: constant(offset, 'norm_offset') }, {}, 'norm_factor');
        return b.add('mul', { a: unit, b: by }, {}, name);
      };
      const times = (scale: Value): Value =>
        factor === 1 ? scale : b.add('mul', { a: scale, b: constant(factor, 'scaled_rms_factor') }, {}, 'scaled_rms');
      if (kind === 'rms') {
        const scale = times(inverseRoot(x, 'mean_square', 'rms_scale'));
        return weighted(between(b.add('mul', { a: rounded, b: scale }, {}, 'unit')), 'normed');
      }
      const mean = b.add('mean', { x }, {}, 'mean');
      const centred = b.add('sub', { a: x, b: mean }, {}, 'centred');
      const scale = times(inverseRoot(centred, 'variance', 'deviation_scale'));
      const own = rounded === x ? centred : b.add('sub', { a: rounded, b: mean }, {}, 'centred_rounded');
      const unit = b.add('mul', { a: own, b: scale }, {}, 'unit');
      if (!hasBias || isOwn) return weighted(unit, 'normed');
      const scaled = weighted(unit, 'weighted');
      const bias = vector(`${module}.bias`, width, 'norm_bias', rows);
      const added =
        factor === 1 ? bias : b.add('mul', { a: bias, b: constant(factor, 'bias_factor') }, {}, 'scaled_bias');
      return b.add('add', { a: scaled, b: added }, {}, 'normed');
    });
}

// Activations of feed-forward blocks, in primitive ops.

/** `geluTanh`: the approximation of GELU by tanh. `relu2`: the square of ReLU. */
export type PlainActivation = 'silu' | 'gelu' | 'geluTanh' | 'relu' | 'relu2';
/** `xielu`: with numbers that each layer has learned. */
export type Activation = PlainActivation | 'xielu';

/** transformers' names of activations that any family may have. */
export const ACTIVATIONS: Readonly<Record<string, PlainActivation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'geluTanh',
  gelu_fast: 'geluTanh',
  gelu_pytorch_tanh: 'geluTanh',
  relu: 'relu',
  relu2: 'relu2',
};

/** How a summary calls them. */
export const ACTIVATION_NAMES: Readonly<Record<Activation, string>> = {
  silu: 'SiLU',
  gelu: 'GELU',
  geluTanh: 'GELU by tanh',
  relu: 'ReLU',
  relu2: 'ReLU²',
  xielu: 'xIELU',
};

/**
 * SiLU: x·σ(x) (arXiv:1702.03118). GELU: x·Φ(x) = x·(1 + erf(x/√2))/2 (arXiv:1606.08415). Its approximation
 * x·(1 + tanh u)/2 with u = √(2/π)·(x + 0.044715·x³) is x·σ(2u), because (1 + tanh u)/2 = σ(2u).
 * ReLU: max(x, 0), and its square (arXiv:2109.08668).
 */
export function activate(b: GraphBuilder, kind: PlainActivation, x: Value): Value {
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const one = constant(1, 'one');
  /** x·σ(y), for −y. */
  const gated = (negative: Value, name: string): Value =>
    b.add('div', { a: x, b: b.add('add', { a: one, b: b.add('exp', { x: negative }) }) }, {}, name);
  switch (kind) {
    case 'silu':
      return gated(b.add('neg', { x }), 'silu');
    case 'gelu': {
      const erf = b.add('erf', { x: b.add('mul', { a: x, b: constant(Math.SQRT1_2, 'inverse_root') }) });
      return b.add(
        'mul',
        { a: b.add('mul', { a: x, b: constant(0.5, 'half') }), b: b.add('add', { a: one, b: erf }) },
        {},
        'gelu',
      );
    }
    case 'geluTanh': {
      const cubic = b.add('add', {
        a: b.add('mul', { a: b.add('mul', { a: x, b: x }), b: constant(0.044715, 'cubic') }),
        b: one,
      });
      const factor = constant(-2 * Math.sqrt(2 / Math.PI), 'slope');
      return gated(b.add('mul', { a: b.add('mul', { a: x, b: cubic }), b: factor }, {}, 'exponent'), 'gelu');
    }
    case 'relu':
      return rectified(b, x);
    case 'relu2': {
      const positive = rectified(b, x);
      return b.add('mul', { a: positive, b: positive }, {}, 'rectified_square');
    }
    default:
      return kind satisfies never;
  }
}

const rectified = (b: GraphBuilder, x: Value): Value =>
  b.add('max', { a: x, b: b.add('const', {}, { value: 0 }, 'zero') }, {}, 'rectified');

// Scores and logits.

/** The softmax of scores [h, T, C]. A sink [h] is one more score of each row, whose column is left out. */
export function softmax(b: GraphBuilder, scores: Value, sinks: Value | undefined): Value {
  const sink = sinks && b.add('reshape', { x: sinks }, { shape: [scores.type.shape[0]!, 1, 1] }, 'sink');
  const most = b.add('reduce_max', { x: scores }, {}, sink === undefined ? 'top' : 'most');
  const top = sink === undefined ? most : b.add('max', { a: most, b: sink }, {}, 'top');
  const exp = b.add('exp', { x: b.add('sub', { a: scores, b: top }) }, {}, 'exp');
  const sum = b.add('sum', { x: exp }, {}, sink === undefined ? 'total' : 'sum');
  const total =
    sink === undefined
      ? sum
      : b.add('add', { a: sum, b: b.add('exp', { x: b.add('sub', { a: sink, b: top }) }) }, {}, 'total');
  return b.add('div', { a: exp, b: total }, {}, 'probabilities');
}

/** cap·tanh(x / cap) */
export function capped(b: GraphBuilder, x: Value, cap: number | undefined): Value {
  if (cap === undefined) return x;
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const bounded = b.add('tanh', { x: b.add('mul', { a: x, b: constant(1 / cap, 'inverse_cap') }) }, {}, 'bounded');
  return b.add('mul', { a: bounded, b: constant(cap, 'cap') }, {}, 'capped');
}
