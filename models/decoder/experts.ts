/** A mixture of experts in primitive ops, as the papers write it, and its tensors. */
import type { ExpertGroups } from '../../ir/experts.js';
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { ExpectedTensor, ShapeOf, TensorPart } from '../model/tensors.js';
import { biasedExpertTensors, biasOfExperts, clampedSwiglu, downBias } from './biasedExperts.js';
import type { RoutingConfig, ExpertsConfig, ExpertNames, ExpertContext } from './expertTypes.js';
import { activate, softmax } from './ops.js';

export type { RoutingConfig, ExpertsConfig, ExpertNames, ExpertContext } from './expertTypes.js';

export const MIXTRAL_EXPERTS: ExpertNames = {
  router: 'block_sparse_moe.gate',
  expert: 'block_sparse_moe.experts',
  matrices: { gate: 'w1', up: 'w3', down: 'w2' },
  shared: 'block_sparse_moe.shared_expert',
  sharedGate: 'block_sparse_moe.shared_expert_gate',
  elsewhere: { router: 'mlp.gate', expert: 'mlp.experts' },
};

export const GRANITE_EXPERTS: ExpertNames = {
  router: 'block_sparse_moe.router.layer',
  expert: 'block_sparse_moe',
  matrices: { gate: 'gate_proj', up: 'up_proj', down: 'down_proj' },
  shared: 'shared_mlp',
  sharedGate: 'shared_mlp.gate',
  inOne: ['input_linear.weight', 'output_linear.weight'],
};

export const QWEN_EXPERTS: ExpertNames = {
  router: 'mlp.gate',
  expert: 'mlp.experts',
  matrices: { gate: 'gate_proj', up: 'up_proj', down: 'down_proj' },
  shared: 'mlp.shared_expert',
  sharedGate: 'mlp.shared_expert_gate',
};

/** Whether a layer has experts. */
export const hasExperts = (experts: ExpertsConfig | undefined, layer: number): experts is ExpertsConfig =>
  experts !== undefined && experts.dense?.includes(layer) !== true;

/**
 * The tensors of the experts of a layer. Checkpoints that transformers 5 does not write in the old form hold
 * gate_up_proj [E, 2·width, hidden] and down_proj [E, hidden, width], or both with their last dimensions exchanged.
 */
export function expertTensors(
  config: ExpertsConfig,
  names: ExpertNames,
  layer: string,
  hidden: number,
  shapeOf: ShapeOf,
): readonly ExpectedTensor[] {
  const { count, width, sharedWidth, isBiased } = config;
  if (isBiased === true) return biasedExpertTensors(config, names, layer, hidden, shapeOf);
  const fused = [names, ...(names.elsewhere === undefined ? [] : [names.elsewhere])].find(({ expert }) =>
    (names.inOne ?? FUSED).some((name) => shapeOf(`${layer}.${expert}.${name}`) !== undefined),
  );
  const matrix = (module: string, rows: number, columns: number): ExpectedTensor => ({
    name: `${layer}.${module}.weight`,
    shape: [rows, columns],
    role: 'matrix',
  });
  const expert = (at: number): ExpectedTensor[] => [
    matrix(`${names.expert}.${at}.${names.matrices.gate}`, width, hidden),
    matrix(`${names.expert}.${at}.${names.matrices.up}`, width, hidden),
    matrix(`${names.expert}.${at}.${names.matrices.down}`, hidden, width),
  ];
  const router = matrix(names.router, count, hidden);
  const { bias } = config.routing ?? {};
  const biases: readonly ExpectedTensor[] =
    bias === undefined ? [] : [biasOfChoice(`${layer}.${bias}`, count, names.isBiasOfOneRow)];
  const shared = (name: string, rows: number, columns: number): ExpectedTensor[] => [
    matrix(`${names.shared}.${name}`, rows, columns),
    ...(config.hasSharedBiases === true
      ? [{ name: `${layer}.${names.shared}.${name}.bias`, shape: [rows], role: 'bias' } as const]
      : []),
  ];
  return [
    ...(fused === undefined
      ? [router, ...Array.from({ length: count }, (_, at) => expert(at)).flat()]
      : [
          { ...matrix(fused.router, count, hidden), parts: [wholeAs(router.name, count)] },
          ...fusedExperts(config, names, layer, hidden, fused.expert, shapeOf),
        ]),
    ...biases,
    ...(sharedWidth === undefined
      ? []
      : [
          ...shared('gate_proj', sharedWidth, hidden),
          ...shared('up_proj', sharedWidth, hidden),
          ...shared('down_proj', hidden, sharedWidth),
          ...(config.hasSharedGate === false ? [] : [matrix(names.sharedGate, 1, hidden)]),
        ]),
  ];
}

const biasOfChoice = (name: string, count: number, isOfOneRow = false): ExpectedTensor =>
  isOfOneRow
    ? { name, shape: [1, count], role: 'bias', partOf: { name, first: 0, rows: count } }
    : { name, shape: [count], role: 'bias' };

/** Tensors with the matrices of all experts of a layer. */
const FUSED = ['gate_up_proj', 'down_proj'] as const;

/** A tensor of `rows` rows under another name. */
const wholeAs = (name: string, rows: number): TensorPart => ({ name, first: 0, rows, stride: rows, count: 1 });

/** The tensors of `module` with all experts of a layer, and the matrices in them. */
function fusedExperts(
  { count, width }: ExpertsConfig,
  { expert, matrices, inOne = FUSED }: ExpertNames,
  layer: string,
  hidden: number,
  module: string,
  shapeOf: ShapeOf,
): readonly ExpectedTensor[] {
  const [inner, outer] = inOne.map((name) => `${layer}.${module}.${name}`) as [string, string];
  const isShaped = (tensor: string, ...shape: readonly number[]): boolean => shapeOf(tensor)?.join() === shape.join();
  const isTurned = isShaped(inner, count, hidden, 2 * width) && isShaped(outer, count, width, hidden);
  const name = (at: number, matrix: 'gate' | 'up' | 'down'): string =>
    `${layer}.${expert}.${at}.${matrices[matrix]}.weight`;
  const parts = (of: (at: number) => readonly TensorPart[]): readonly TensorPart[] =>
    Array.from({ length: count }, (_, at) => of(at)).flat();
  /** Matrix `which` of `rows` rows of those of an expert, which have `all` in one tensor. */
  const part = (
    at: number,
    matrix: 'gate' | 'up' | 'down',
    which: number,
    all: number,
    columns: number,
  ): TensorPart => {
    const rows = matrix === 'down' ? hidden : width;
    return isTurned
      ? { name: name(at, matrix), first: at * columns, columns, from: which * rows, rows }
      : { name: name(at, matrix), first: at * all + which * rows, rows, stride: rows, count: 1 };
  };
  return [
    {
      name: inner,
      shape: isTurned ? [count, hidden, 2 * width] : [count, 2 * width, hidden],
      role: 'matrix',
      parts: parts((at) => [part(at, 'gate', 0, 2 * width, hidden), part(at, 'up', 1, 2 * width, hidden)]),
    },
    {
      name: outer,
      shape: isTurned ? [count, width, hidden] : [count, hidden, width],
      role: 'matrix',
      parts: parts((at) => [part(at, 'down', 0, hidden, width)]),
    },
  ];
}

/**
 * Σ_e w[:, e]·(f(x·gate_e) ∘ x·up_e)·down_e: one product with the matrices of all experts one behind another, whose
 * columns are multiplied by the weights of their experts, of which all but the chosen ones are 0.
 */
export function buildExperts(context: ExpertContext, experts: ExpertsConfig, x: Value, layer: string): Value {
  const { b, names, hidden, activation } = context;
  const { count, width, sharedWidth } = experts;
  const all = (name: 'gate' | 'up' | 'down', shape: readonly number[]): Value => {
    const tensors = Array.from({ length: count }, (_, at) =>
      context.weight(`${layer}.${names.expert}.${at}.${names.matrices[name]}.weight`, shape),
    );
    const isAlike = new Set(tensors.map(({ type }) => type.dtype)).size === 1;
    const matrices = isAlike ? tensors : tensors.map((v) => context.toF32(v, `${name}_wide`));
    return b.add('concat', { matrices }, { axis: name === 'down' ? 1 : 0 }, `${name}_of_all`);
  };
  const linear = (from: Value, matrix: Value, name: string): Value =>
    b.scope(name, () => b.add('linear', { x: from, w: matrix }, {}, name));
  const { weights, total, mask } = b.scope('router', () => routing(context, experts, x, layer));
  const isScaled = experts.scalesInputs === true;
  const read = isScaled && total !== undefined ? b.add('mul', { a: x, b: total }, {}, 'scaled') : x;
  /** Of several experts each reads x times its own weight: its products are multiplied by that. */
  const scales = isScaled && total === undefined ? weights : undefined;
  const shares = scales === undefined ? weights : mask;
  const byRow = (v: Value, columns: number, hint: string): Value =>
    b.add('reshape', { x: v }, { shape: ['T', count, columns] }, hint);
  const mixed = b.scope('experts', () => {
    const inner = (name: 'gate' | 'up'): Value => {
      const plain = linear(read, all(name, [width, hidden]), name);
      const product = scales === undefined ? plain : b.scope(name, () => scaledBy(b, plain, scales, byRow));
      return experts.isBiased === true ? biasOfExperts(context, experts, product, layer, name) : product;
    };
    const [gate, up] = [inner('gate'), inner('up')];
    const activated =
      experts.clamped === undefined
        ? b.add('mul', { a: activate(b, activation, gate), b: up }, {}, 'activated')
        : clampedSwiglu(b, experts.clamped, gate, up);
    const byExpert = byRow(activated, width, 'by_expert');
    const perExpert = byRow(shares, 1, 'weight_by_expert');
    const weighted = b.add('mul', { a: byExpert, b: perExpert }, {}, 'weighted');
    const flat = b.add('reshape', { x: weighted }, { shape: ['T', count * width] }, 'weighted');
    const down = linear(flat, all('down', [hidden, width]), 'down');
    return experts.isBiased === true ? downBias(context, experts, down, shares, layer) : down;
  });
  if (sharedWidth === undefined) return mixed;
  const shared = b.scope('shared', () => {
    const own = (name: 'gate' | 'up' | 'down', from: Value, rows: number, columns: number): Value => {
      const module = `${layer}.${names.shared}.${name}_proj`;
      const matrix = context.weight(`${module}.weight`, [rows, columns]);
      if (experts.hasSharedBiases !== true) return linear(from, matrix, name);
      return b.scope(name, () => {
        const product = b.add('linear', { x: from, w: matrix }, {}, `${name}_product`);
        const bias = context.toF32(context.weight(`${module}.bias`, [rows]), `${name}_bias`);
        return b.add('add', { a: product, b: bias }, {}, name);
      });
    };
    const gate = own('gate', x, sharedWidth, hidden);
    const up = own('up', x, sharedWidth, hidden);
    const out = own(
      'down',
      b.add('mul', { a: activate(b, activation, gate), b: up }, {}, 'activated'),
      hidden,
      sharedWidth,
    );
    if (experts.hasSharedGate === false) return out;
    const score = linear(x, context.weight(`${layer}.${names.sharedGate}.weight`, [1, hidden]), 'share');
    const one = b.add('const', {}, { value: 1 }, 'one');
    const sigmoid = b.add(
      'div',
      { a: one, b: b.add('add', { a: one, b: b.add('exp', { x: b.add('neg', { x: score }) }) }) },
      {},
      'sigmoid',
    );
    return b.add('mul', { a: out, b: sigmoid }, {}, 'shared');
  });
  return b.add('add', { a: mixed, b: shared }, {}, 'mixed');
}

/** `product` [T, E·width], the columns of each expert times its column of `scales` [T, E]. */
function scaledBy(
  b: GraphBuilder,
  product: Value,
  scales: Value,
  byRow: (v: Value, columns: number, hint: string) => Value,
): Value {
  const [[, count], [, columns]] = [scales.type.shape, product.type.shape];
  const byExpert = byRow(product, Number(columns) / Number(count), 'product_by_expert');
  const scaled = b.add('mul', { a: byExpert, b: byRow(scales, 1, 'scale_by_expert') }, {}, 'scaled_by_expert');
  return b.add('reshape', { x: scaled }, { shape: product.type.shape }, 'scaled');
}

/** The router's scores of its logits [T, E]. */
function routerScores(b: GraphBuilder, logits: Value, { scores }: RoutingConfig): Value {
  if (scores === 'sigmoid') {
    const one = b.add('const', {}, { value: 1 }, 'one');
    const exp = b.add('exp', { x: b.add('neg', { x: logits }) });
    return b.add('div', { a: one, b: b.add('add', { a: one, b: exp }) }, {}, 'scores');
  }
  const top = b.add('reduce_max', { x: logits }, {}, 'top');
  const exp = b.add('exp', { x: b.add('sub', { a: logits, b: top }) }, {}, 'exp');
  return b.add('div', { a: exp, b: b.add('sum', { x: exp }, {}, 'total') }, {}, 'probabilities');
}

/** `compared` [T, E] in the groups that are kept, and −∞ elsewhere. */
function inKeptGroups(b: GraphBuilder, compared: Value, experts: number, { count, kept, best }: ExpertGroups): Value {
  const reshaped = (x: Value, shape: readonly (number | string)[], hint: string): Value =>
    b.add('reshape', { x }, { shape: ['T', ...shape] }, hint);
  const byGroup = reshaped(compared, [count, experts / count], 'by_group');
  const ofBest = b.add('mul', { a: byGroup, b: b.add('top_mask', { x: byGroup }, { k: best }, 'is_best') }, {}, 'best');
  const worth = reshaped(b.add('sum', { x: ofBest }, {}, 'worth'), [count], 'worth_of_groups');
  const isKept = reshaped(b.add('top_mask', { x: worth }, { k: kept }, 'is_kept'), [count, 1], 'is_kept_by_group');
  const condition = b.add('eq', { a: isKept, b: b.add('const', {}, { value: 1 }, 'one') }, {}, 'is_open');
  const hidden = b.add('const', {}, { value: -Infinity }, 'hidden');
  return reshaped(b.add('select', { condition, a: byGroup, b: hidden }, {}, 'open'), [experts], 'open_to_rows');
}

/**
 * Experts in turn: of those that are open the one with the largest logit m, by its part of a softmax over the open ones
 * whose logits z are near it, (m − z) / max(|z|, m) ≤ within.
 */
function weightsInTurn(b: GraphBuilder, logits: Value, chosen: number, within: number): Routed {
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const [hidden, none, limit] = [constant(-Infinity, 'hidden'), constant(0, 'none'), constant(within, 'within')];
  const size = b.add('max', { a: logits, b: b.add('neg', { x: logits }) }, {}, 'size');
  let routed: Routed | undefined;
  for (let turn = 0; turn < chosen; turn++) {
    const isFree = routed && b.add('eq', { a: routed.mask, b: none }, {}, 'is_free');
    const open =
      isFree === undefined ? logits : b.add('select', { condition: isFree, a: logits, b: hidden }, {}, 'open');
    const top = b.add('reduce_max', { x: open }, {}, 'top');
    const most = b.add('max', { a: size, b: top }, {}, 'most');
    const distance = b.add('div', { a: b.add('sub', { a: top, b: logits }), b: most }, {}, 'distance');
    const condition = b.add('lt', { a: limit, b: distance }, {}, 'is_far');
    const near = b.add('select', { condition, a: hidden, b: open }, {}, 'near');
    const mask = b.add('top_mask', { x: open }, { k: 1 }, 'is_chosen');
    const weights = b.add('mul', { a: softmax(b, near, undefined), b: mask }, {}, 'weight');
    routed =
      routed === undefined
        ? { weights, mask, total: undefined }
        : {
            weights: b.add('add', { a: routed.weights, b: weights }, {}, 'weights'),
            mask: b.add('add', { a: routed.mask, b: mask }, {}, 'are_chosen'),
            total: undefined,
          };
  }
  if (routed === undefined) throw new Error('a token is sent to no expert');
  return routed;
}

interface Routed {
  /** f32[T, E]: weights of the chosen experts, and 0 for all others. */
  readonly weights: Value;
  /** f32[T, E]: 1 for those that are chosen, and 0 for all others. */
  readonly mask: Value;
  /** f32[T, 1]: what scores were divided by, if they were. */
  readonly total: Value | undefined;
}

/** The scores of the chosen experts, or their shares of the sum. */
function routing(
  { b, names, hidden, weight, toF32 }: ExpertContext,
  { count, chosen, isNormalized, isBiased, routing: rule = {} }: ExpertsConfig,
  x: Value,
  layer: string,
): Routed {
  const product = b.add(
    'linear',
    { x, w: weight(`${layer}.${names.router}.weight`, [count, hidden]) },
    {},
    isBiased === true ? 'router_product' : 'router_logits',
  );
  const routerBias = (): Value => toF32(weight(`${layer}.${names.router}.bias`, [count]), 'router_bias');
  const logits = isBiased === true ? b.add('add', { a: product, b: routerBias() }, {}, 'router_logits') : product;
  const { bias, groups, factor = 1, inTurn } = rule;
  if (inTurn !== undefined) return weightsInTurn(b, logits, chosen, inTurn);
  const scores = routerScores(b, logits, rule);
  const compared =
    bias === undefined
      ? scores
      : b.add('add', { a: scores, b: toF32(weight(`${layer}.${bias}`, [count]), 'bias') }, {}, 'compared');
  const open = groups === undefined ? compared : inKeptGroups(b, compared, count, groups);
  const mask = b.add('top_mask', { x: open }, { k: chosen }, 'is_chosen');
  const kept = b.add('mul', { a: scores, b: mask }, {}, 'chosen');
  const total = isNormalized ? b.add('sum', { x: kept }, {}, 'share') : undefined;
  const shares = total === undefined ? kept : b.add('div', { a: kept, b: total }, {}, 'shares');
  const weights =
    factor === 1 ? shares : b.add('mul', { a: shares, b: b.add('const', {}, { value: factor }) }, {}, 'weights');
  return { weights, total, mask };
}
