/**
 * Experts whose router and matrices have biases, as gpt-oss has them (arXiv:2508.10925). A file holds gates and ups of
 * all experts of a layer in turns: columns 2i and 2i + 1 of gate_up_proj [E, hidden, 2·width] are gate i and up i, or
 * rows of it where its numbers have 4 bits.
 */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { ExpectedTensor, ShapeOf, TensorPart } from '../model/tensors.js';
import type { ClampedSwiglu, ExpertContext, ExpertNames, ExpertsConfig } from './expertTypes.js';

type Matrix = 'gate' | 'up' | 'down';

/** The tensor with the biases of a matrix of all experts, [E, rows]. */
const biasName = (layer: string, { expert, matrices }: ExpertNames, matrix: Matrix): string =>
  `${layer}.${expert}.${matrices[matrix]}.bias`;

/** Tensors of a layer: as the graph reads them where no file is known, else as the file holds them. */
export function biasedExpertTensors(
  { count, width }: ExpertsConfig,
  names: ExpertNames,
  layer: string,
  hidden: number,
  shapeOf: ShapeOf,
): readonly ExpectedTensor[] {
  const [inner, outer] = [`${layer}.${names.expert}.gate_up_proj`, `${layer}.${names.expert}.down_proj`];
  const router: readonly ExpectedTensor[] = [
    { name: `${layer}.${names.router}.weight`, shape: [count, hidden], role: 'matrix' },
    { name: `${layer}.${names.router}.bias`, shape: [count], role: 'bias' },
  ];
  const name = (at: number, matrix: Matrix): string =>
    `${layer}.${names.expert}.${at}.${names.matrices[matrix]}.weight`;
  const experts = Array.from({ length: count }, (_, at) => at);
  const hasCodes = [inner, outer].some((tensor) =>
    ['_blocks', '_scales'].some((part) => shapeOf(`${tensor}${part}`) !== undefined),
  );
  if (!hasCodes && shapeOf(inner) === undefined && shapeOf(outer) === undefined)
    return [
      ...router,
      ...experts.flatMap((at): ExpectedTensor[] => [
        { name: name(at, 'gate'), shape: [width, hidden], role: 'matrix' },
        { name: name(at, 'up'), shape: [width, hidden], role: 'matrix' },
        { name: name(at, 'down'), shape: [hidden, width], role: 'matrix' },
      ]),
      { name: biasName(layer, names, 'gate'), shape: [count, width], role: 'bias' },
      { name: biasName(layer, names, 'up'), shape: [count, width], role: 'bias' },
      { name: biasName(layer, names, 'down'), shape: [count, hidden], role: 'bias' },
    ];
  const turned = (at: number, matrix: Matrix): TensorPart =>
    matrix === 'down'
      ? { name: name(at, matrix), first: at * width, columns: width, from: 0, rows: hidden }
      : { name: name(at, matrix), first: at * hidden, columns: hidden, from: which(matrix), rows: width, step: 2 };
  const rows = (at: number, matrix: Matrix): TensorPart =>
    matrix === 'down'
      ? { name: name(at, matrix), first: at * hidden, rows: hidden, stride: hidden, count: 1 }
      : { name: name(at, matrix), first: at * 2 * width + which(matrix), rows: 1, stride: 2, count: width };
  const parts = (...matrices: readonly Matrix[]): readonly TensorPart[] =>
    experts.flatMap((at) => matrices.map((matrix) => (hasCodes ? rows : turned)(at, matrix)));
  const matrix = (
    tensor: string,
    shape: readonly [number, number, number],
    ...of: readonly Matrix[]
  ): ExpectedTensor => {
    const [, k, out] = shape;
    return hasCodes
      ? { name: `${tensor}.weight`, shape: [count, out, k], role: 'matrix', parts: parts(...of) }
      : { name: tensor, shape, role: 'matrix', parts: parts(...of) };
  };
  const columns = (each: 'gate' | 'up'): TensorPart => ({
    name: biasName(layer, names, each),
    column: which(each),
    width,
    step: 2,
  });
  return [
    ...router,
    matrix(inner, [count, hidden, 2 * width], 'gate', 'up'),
    {
      name: `${inner}_bias`,
      shape: [count, 2 * width],
      role: 'bias',
      parts: [columns('gate'), columns('up')],
    },
    matrix(outer, [count, width, hidden], 'down'),
    {
      name: `${outer}_bias`,
      shape: [count, hidden],
      role: 'bias',
      parts: [{ name: biasName(layer, names, 'down'), first: 0, rows: count, stride: count, count: 1 }],
    },
  ];
}

/** Where a gate or an up is, of the two that take turns. */
const which = (matrix: 'gate' | 'up'): 0 | 1 => (matrix === 'gate' ? 0 : 1);

/** f32[E, rows]: the biases of a matrix of all experts. */
const table = (
  { names, weight, toF32 }: ExpertContext,
  layer: string,
  matrix: Matrix,
  shape: readonly number[],
): Value => toF32(weight(biasName(layer, names, matrix), shape), `${matrix}_biases`);

/** `product` [T, E·width] with the biases of all experts, one behind another. */
export function biasOfExperts(
  context: ExpertContext,
  { count, width }: ExpertsConfig,
  product: Value,
  layer: string,
  name: 'gate' | 'up',
): Value {
  const { b } = context;
  const all = table(context, layer, name, [count, width]);
  const flat = b.add('reshape', { x: all }, { shape: [count * width] }, `${name}_bias`);
  return b.add('add', { a: product, b: flat }, {}, name);
}

/** Σ_e weights[:, e]·(down_e + bias_e), whose first part is `down`. */
export function downBias(
  context: ExpertContext,
  { count }: ExpertsConfig,
  down: Value,
  weights: Value,
  layer: string,
): Value {
  const { b, hidden } = context;
  const all = table(context, layer, 'down', [count, hidden]);
  const byColumn = b.add('transpose', { x: all }, { order: [1, 0] }, 'down_bias');
  const biases = b.add('linear', { x: weights, w: byColumn }, {}, 'down_biases');
  return b.add('add', { a: down, b: biases }, {}, 'mixed');
}

export function clampedSwiglu(b: GraphBuilder, { limit, slope }: ClampedSwiglu, gate: Value, up: Value): Value {
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const [most, least, one] = [constant(limit, 'limit'), constant(-limit, 'least'), constant(1, 'one')];
  const bounded = b.add('min', { a: gate, b: most }, {}, 'gate_bounded');
  const other = b.add('max', { a: b.add('min', { a: up, b: most }), b: least }, {}, 'up_bounded');
  const scaled = b.add('mul', { a: bounded, b: constant(slope, 'slope') });
  const below = b.add('add', { a: one, b: b.add('exp', { x: b.add('neg', { x: scaled }) }) });
  const glu = b.add('div', { a: bounded, b: below }, {}, 'glu');
  return b.add('mul', { a: b.add('add', { a: other, b: one }), b: glu }, {}, 'activated');
}
