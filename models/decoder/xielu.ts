/** xIELU, an activation of which each layer learns four numbers. */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { ExpectedTensor } from '../model/tensors.js';

type Learned = (typeof XIELU)[number]['name'];

/** What a layer has learned of its xIELU, f32[1] each. */
export type LearnedActivation = Readonly<Record<Learned, Value>>;

/** The numbers of a layer's xIELU: whether they are vectors of one, and values that a new layer begins with. */
export const XIELU = [
  { name: 'alpha_p', isVector: true, begin: Math.log(Math.expm1(0.8)) },
  { name: 'alpha_n', isVector: true, begin: Math.log(Math.expm1(0.3)) },
  { name: 'beta', isVector: false, begin: 0.5 },
  { name: 'eps', isVector: false, begin: -1e-6 },
] as const;

/**
 * xIELU (arXiv:2411.13010): β·x + softplus(α_p)·x² where x > 0, else
 * β·x + (β + softplus(α_n))·(exp(min(x, ε)) − 1 − x).
 * Softplus is max(α, 0) + ln(1 + exp(−|α|)).
 */
export function xielu(b: GraphBuilder, x: Value, learned: LearnedActivation): Value {
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const [zero, one] = [constant(0, 'zero'), constant(1, 'one')];
  const softplus = (alpha: Value, hint: string): Value => {
    const size = b.add('max', { a: alpha, b: b.add('neg', { x: alpha }) });
    const rest = b.add('log', { x: b.add('add', { a: one, b: b.add('exp', { x: b.add('neg', { x: size }) }) }) });
    return b.add('add', { a: b.add('max', { a: alpha, b: zero }), b: rest }, {}, hint);
  };
  const { beta } = learned;
  const square = b.add('mul', { a: b.add('mul', { a: x, b: x }), b: softplus(learned.alpha_p, 'slope_above') });
  const below = b.add('exp', { x: b.add('min', { a: x, b: learned.eps }) });
  const bent = b.add(
    'mul',
    {
      a: b.add('sub', { a: b.add('sub', { a: below, b: one }), b: x }),
      b: b.add('add', { a: beta, b: softplus(learned.alpha_n, 'softplus_below') }, {}, 'slope_below'),
    },
    {},
    'bent',
  );
  const curved = b.add('select', { condition: b.add('lt', { a: zero, b: x }), a: square, b: bent }, {}, 'curved');
  return b.add('add', { a: curved, b: b.add('mul', { a: x, b: beta }) }, {}, 'xielu');
}

const nameOf = (layer: string, name: Learned): string => `${layer}.mlp.act_fn.${name}`;

/** Numbers that are stored without dimensions are vectors of one to the graph. */
const vectorOf = (layer: string, { name, isVector }: (typeof XIELU)[number]): string =>
  `${nameOf(layer, name)}${isVector ? '' : '.vector'}`;

/** What the layer `layer` has learned; `vector` makes the f32 of a tensor. */
export const learnedActivation = (
  layer: string,
  vector: (tensor: string, hint: string) => Value,
): LearnedActivation => {
  const [alphaP, alphaN, beta, eps] = XIELU.map((each) => vector(vectorOf(layer, each), each.name));
  if (alphaP === undefined || alphaN === undefined || beta === undefined || eps === undefined)
    throw new Error('xIELU has four numbers');
  return { alpha_p: alphaP, alpha_n: alphaN, beta, eps };
};

export const learnedTensors = (layer: string): readonly ExpectedTensor[] =>
  XIELU.map((each) => ({
    name: nameOf(layer, each.name),
    role: 'norm',
    neutral: each.begin,
    ...(each.isVector ? { shape: [1] } : { shape: [], partOf: { name: vectorOf(layer, each), first: 0, rows: 1 } }),
  }));
