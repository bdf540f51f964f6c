/** A mixture of experts in primitive ops, as the papers write it, and its tensors. */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { ExpectedTensor } from '../family/tensors.js';
import { activate, type Activation } from './activation.js';
import type { ExpertsConfig } from './expertConfig.js';

/** Names of modules below a layer. `expert` is followed by a number and the name of a matrix. */
export interface ExpertNames {
  readonly router: string;
  readonly expert: string;
  readonly matrices: Readonly<Record<'gate' | 'up' | 'down', string>>;
  /** An expert for all tokens, whose matrices are `gate_proj`, `up_proj` and `down_proj`, and its gate. */
  readonly shared: string;
  readonly sharedGate: string;
}

export const MIXTRAL_EXPERTS: ExpertNames = {
  router: 'block_sparse_moe.gate',
  expert: 'block_sparse_moe.experts',
  matrices: { gate: 'w1', up: 'w3', down: 'w2' },
  shared: 'block_sparse_moe.shared_expert',
  sharedGate: 'block_sparse_moe.shared_expert_gate',
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

/** The tensors of the experts of a layer. */
export function expertTensors(
  { count, width, sharedWidth }: ExpertsConfig,
  names: ExpertNames,
  layer: string,
  hidden: number,
): readonly ExpectedTensor[] {
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
  return [
    matrix(names.router, count, hidden),
    ...Array.from({ length: count }, (_, at) => expert(at)).flat(),
    ...(sharedWidth === undefined
      ? []
      : [
          matrix(`${names.shared}.gate_proj`, sharedWidth, hidden),
          matrix(`${names.shared}.up_proj`, sharedWidth, hidden),
          matrix(`${names.shared}.down_proj`, hidden, sharedWidth),
          matrix(names.sharedGate, 1, hidden),
        ]),
  ];
}

/** What the layers of a decoder bring. */
export interface ExpertContext {
  readonly b: GraphBuilder;
  readonly names: ExpertNames;
  readonly hidden: number;
  readonly activation: Activation;
  readonly weight: (name: string, dims: readonly number[]) => Value;
  readonly toF32: (v: Value, hint: string) => Value;
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
    return b.add('concat', matrices, { axis: name === 'down' ? 1 : 0 }, `${name}_of_all`);
  };
  const linear = (from: Value, matrix: Value, name: string): Value =>
    b.scope(name, () => b.add('linear', [from, matrix], {}, name));
  const weights = b.scope('router', () => routing(context, experts, x, layer));
  const mixed = b.scope('experts', () => {
    const gate = linear(x, all('gate', [width, hidden]), 'gate');
    const up = linear(x, all('up', [width, hidden]), 'up');
    const activated = b.add('mul', [activate(b, activation, gate), up], {}, 'activated');
    const byExpert = b.add('reshape', [activated], { shape: ['T', count, width] }, 'by_expert');
    const perExpert = b.add('reshape', [weights], { shape: ['T', count, 1] }, 'weight_by_expert');
    const weighted = b.add('mul', [byExpert, perExpert], {}, 'weighted');
    const flat = b.add('reshape', [weighted], { shape: ['T', count * width] }, 'weighted');
    return linear(flat, all('down', [hidden, width]), 'down');
  });
  if (sharedWidth === undefined) return mixed;
  const shared = b.scope('shared', () => {
    const own = (name: 'gate' | 'up' | 'down', from: Value, rows: number, columns: number): Value =>
      linear(from, context.weight(`${layer}.${names.shared}.${name}_proj.weight`, [rows, columns]), name);
    const gate = own('gate', x, sharedWidth, hidden);
    const up = own('up', x, sharedWidth, hidden);
    const out = own('down', b.add('mul', [activate(b, activation, gate), up], {}, 'activated'), hidden, sharedWidth);
    const score = linear(x, context.weight(`${layer}.${names.sharedGate}.weight`, [1, hidden]), 'share');
    const one = b.add('const', [], { value: 1 }, 'one');
    const sigmoid = b.add('div', [one, b.add('add', [one, b.add('exp', [b.add('neg', [score])])])], {}, 'sigmoid');
    return b.add('mul', [out, sigmoid], {}, 'shared');
  });
  return b.add('add', [mixed, shared], {}, 'mixed');
}

/** f32[T, E]: the probabilities of the chosen experts, or their shares of the sum, and 0 for all others. */
function routing(
  { b, names, hidden, weight }: ExpertContext,
  { count, chosen, isNormalised }: ExpertsConfig,
  x: Value,
  layer: string,
): Value {
  const logits = b.add('linear', [x, weight(`${layer}.${names.router}.weight`, [count, hidden])], {}, 'router_logits');
  const exp = b.add('exp', [b.add('sub', [logits, b.add('reduce_max', [logits], {}, 'top')])], {}, 'exp');
  const probabilities = b.add('div', [exp, b.add('sum', [exp], {}, 'total')], {}, 'probabilities');
  const mask = b.add('top_mask', [probabilities], { k: chosen }, 'is_chosen');
  const kept = b.add('mul', [probabilities, mask], {}, 'chosen');
  return isNormalised ? b.add('div', [kept, b.add('sum', [kept], {}, 'share')], {}, 'shares') : kept;
}
