/**
 * Layers that keep a state in place of keys and values, in primitive ops as the papers write them: gated DeltaNet
 * (arXiv:2412.06464), Mamba-2 (arXiv:2405.21060) and gated short convolutions (LFM2). Their tensors are in
 * recurrentTensors.ts.
 */
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import type { TokenPaths } from '../../ir/paths.js';
import { activate, type PlainActivation, normOf } from './ops.js';
import type { ConvConfig, DeltaConfig, MambaConfig, RecurrentConfig } from './recurrentConfig.js';
import type { KeptStates, ScanAttributes, ScanOperands, Seen } from './recurrentStates.js';
import { convVector, DELTA_PARTS } from './recurrentTensors.js';

/** The recurrent layer `layer`, if it is one. */
export const isRecurrent = (
  { recurrent }: { readonly recurrent?: RecurrentConfig | undefined },
  layer: number,
): boolean => recurrent?.layers.includes(layer) === true;

/** Why such models draft for no other. */
export const NO_DRAFTS = 'it keeps states of its recurrent layers, and functions that draft have none';

/** Tokens before others. */
export interface PreviousTokens {
  /** i32[T] */
  readonly position: Value;
  /** i32[T]: the row of the token so many before each on its path, or its own. */
  readonly before: readonly Value[];
  readonly end: Value;
  /** What is kept between calls. Default: nothing, every tree of tokens begins a text. */
  readonly kept?: KeptStates | undefined;
}

/** Adds what recurrent layers read of a call's tokens: those before others, up to `taps` − 1 of them. */
export function previousTokens(
  b: GraphBuilder,
  position: Value,
  paths: TokenPaths<Value> | undefined,
  { taps }: RecurrentConfig,
  kept: KeptStates | undefined,
): PreviousTokens {
  if (paths === undefined)
    throw new UserError(`the model has no function for this: ${NO_DRAFTS}`, 'draft with another model');
  const { kind: mask, ...operands } = paths;
  const before = Array.from({ length: Math.max(2, taps) }, (_, back) =>
    b.add('token_before', operands, { mask, back }, `before_${back}_`),
  );
  const end = paths.kind === 'column' ? paths.subtreeEnd : b.add('subtree_end', { position: paths.position });
  return { position, before, end, kept };
}

export interface RecurrentContext {
  readonly b: GraphBuilder;
  readonly hidden: number;
  readonly epsilon: number;
  /** Behind convolutions. Gates are SiLU. */
  readonly activation: PlainActivation;
  readonly weight: (name: string, dims: readonly number[]) => Value;
  readonly toF32: (v: Value, hint: string) => Value;
  readonly previous: PreviousTokens;
}

/** The ε of the norms of queries and keys. */
const UNIT_EPSILON = 1e-6;

/** What a recurrent layer gives for rows of the stream. */
export function buildRecurrent(context: RecurrentContext, config: RecurrentConfig, x: Value, layer: string): Value {
  const ops = new RecurrentOps(context, layer);
  switch (config.kind) {
    case 'delta':
      return deltaNet(ops, config, x);
    case 'conv':
      return gatedConvolution(ops, config, x);
    case 'mamba':
      return mamba(ops, config, x);
    default:
      return config satisfies never;
  }
}

class RecurrentOps {
  readonly b: GraphBuilder;
  readonly context: RecurrentContext;
  private readonly layer: string;

  constructor(context: RecurrentContext, layer: string) {
    this.b = context.b;
    this.context = context;
    this.layer = layer;
  }

  constant(value: number, hint: string): Value {
    return this.b.add('const', {}, { value }, hint);
  }

  /** A vector of the layer, f32. */
  vector(name: string, width: number, hint: string): Value {
    return this.context.toF32(this.context.weight(`${this.layer}.${name}`, [width]), hint);
  }

  /** The same as it is stored. */
  own(name: string, width: number): Value {
    return this.context.weight(`${this.layer}.${name}`, [width]);
  }

  linear(x: Value, module: string, rows: number, hint: string): Value {
    const columns = x.type.shape.at(-1) as number;
    const matrix = this.context.weight(`${this.layer}.${module}.weight`, [rows, columns]);
    return this.b.add('linear', { x, w: matrix }, {}, hint);
  }

  /** x·W, and the part of a bias if there is one. */
  biased(x: Value, module: string, rows: number, hint: string, isBiased: boolean): Value {
    const product = this.linear(x, module, rows, hint);
    if (!isBiased) return product;
    return this.b.add('add', { a: product, b: this.vector(`${module}.bias`, rows, `${hint}_bias`) }, {}, hint);
  }

  heads(v: Value, count: number, width: number, hint: string): Value {
    return this.b.add('reshape', { x: v }, { shape: ['T', count, width] }, hint);
  }

  sigmoid(x: Value): Value {
    const { b } = this;
    const one = this.constant(1, 'one');
    return b.add(
      'div',
      { a: one, b: b.add('add', { a: one, b: b.add('exp', { x: b.add('neg', { x }) }) }) },
      {},
      'sigmoid',
    );
  }

  /** log(1 + eˣ) = max(x, 0) + log(1 + e^−|x|) */
  softplus(x: Value): Value {
    const { b } = this;
    const negative = b.add('neg', { x });
    const least = b.add('min', { a: x, b: negative });
    const rest = b.add('log', { x: b.add('add', { a: this.constant(1, 'one'), b: b.add('exp', { x: least }) }) });
    return b.add('add', { a: b.add('max', { a: x, b: this.constant(0, 'zero') }), b: rest }, {}, 'softplus');
  }

  /** Σ_i w[:, i]·x of the token `taps` − 1 − i before, where there is one: a causal convolution for each column. */
  convolution(x: Value, module: string, taps: number, hint: string, bias?: Value): Value {
    const { b } = this;
    const { position, before, kept } = this.context.previous;
    const width = x.type.shape.at(-1) as number;
    const depth = b.add(
      'reshape',
      { x: b.add('cast', { x: position }, { dtype: 'f32' }, 'position_f') },
      { shape: ['T', 1] },
      'depth',
    );
    const seenHere: Seen = (back) => b.add('gather_rows', { x, index: before[back]! }, {}, `${hint}_before`);
    const termOf = (seen: Seen, tap: number): Value => {
      const back = taps - 1 - tap;
      const row = seen(back);
      const factor = this.vector(convVector(module, tap), width, `${hint}_tap`);
      const term = b.add('mul', { a: row, b: factor }, {}, `${hint}_term`);
      if (back === 0) return term;
      const condition = b.add('le', { a: this.constant(back, 'back'), b: depth }, {}, 'is_there');
      return b.add('select', { condition, a: term, b: this.constant(0, 'none') }, {}, `${hint}_term`);
    };
    const sumOf = (seen: Seen): Value =>
      Array.from({ length: taps }, (_, tap) => termOf(seen, tap)).reduce((a, c) =>
        b.add('add', { a, b: c }, {}, `${hint}_sum`),
      );
    const sum = kept === undefined ? sumOf(seenHere) : kept.convolve(x, before, hint, sumOf);
    return bias === undefined ? sum : b.add('add', { a: sum, b: bias }, {}, `${hint}_sum`);
  }

  scan(operands: ScanOperands, attributes: ScanAttributes): Value {
    const { before, end, kept } = this.context.previous;
    const all = { ...operands, before: before[1]!, end };
    return kept === undefined ? this.b.add('scan', all, attributes, 'told') : kept.scan(all, attributes);
  }

  /** x/√(mean x² + ε)·w over the last dimension. */
  norm(x: Value, module: string): Value {
    const { b, context } = this;
    return normOf(b, undefined, context.epsilon, (tensor, width, hint) => this.vector(tensor, width, hint))(x, module);
  }
}

/**
 * Gated DeltaNet: S ← αS + k(β(v − (αS)ᵀk))ᵀ with unit keys, what Sᵀq gives normed for each head, times a gate.
 * α = exp(−e^A·softplus(a + dt)), β = σ(b).
 */
function deltaNet(ops: RecurrentOps, config: DeltaConfig, x: Value): Value {
  const { b, context } = ops;
  const { keyHeads, valueHeads, keyDim, valueDim, taps, hasDecays, takesTurns } = config;
  const [keys, values] = [keyHeads * keyDim, valueHeads * valueDim];
  const seen = (name: 'q' | 'k' | 'v', width: number): Value =>
    b.scope(name, () => {
      const product = ops.linear(x, DELTA_PARTS[name], width, `${name}_product`);
      const sum = ops.convolution(product, `linear_attn.conv1d.${name}`, taps, name);
      return activate(b, context.activation, sum);
    });
  const q = ops.heads(seen('q', keys), keyHeads, keyDim, 'q_heads');
  const k = ops.heads(seen('k', keys), keyHeads, keyDim, 'k_heads');
  const v = ops.heads(seen('v', values), valueHeads, valueDim, 'v_heads');
  const beta = b.scope('b', () => ops.sigmoid(ops.linear(x, DELTA_PARTS.b, valueHeads, 'b')));
  const decay = b.scope('a', () => {
    const product = ops.linear(x, DELTA_PARTS.a, valueHeads, 'a');
    const step = ops.softplus(
      b.add('add', { a: product, b: ops.vector('linear_attn.dt_bias', valueHeads, 'dt_bias') }, {}, 'a'),
    );
    const rate = rateOf(ops, 'linear_attn.A_log', valueHeads, hasDecays);
    return b.add('exp', { x: b.add('neg', { x: b.add('mul', { a: step, b: rate }) }) }, {}, 'decay');
  });
  const told = b.scope('state', () =>
    ops.scan(
      { q, k, v, decay, beta },
      { rule: 'delta', scale: 1 / Math.sqrt(keyDim), epsilon: UNIT_EPSILON, ...defined({ takesTurns }) },
    ),
  );
  const gate = b.scope('z', () => activate(b, 'silu', ops.linear(x, DELTA_PARTS.z, values, 'z')));
  const normed = b.scope('norm', () => ops.norm(told, 'linear_attn.norm'));
  const gated = b.add('mul', { a: normed, b: ops.heads(gate, valueHeads, valueDim, 'gate') }, {}, 'gated');
  const flat = b.add('reshape', { x: gated }, { shape: ['T', values] }, 'gated_row');
  return b.scope('o', () => ops.linear(flat, 'linear_attn.out_proj', context.hidden, 'o'));
}

/** e^A_log, of which files may hold what it is below zero. */
const rateOf = (ops: RecurrentOps, name: string, heads: number, hasDecays = false): Value =>
  hasDecays
    ? ops.b.add('neg', { x: ops.vector(name, heads, 'decays') }, {}, 'rate')
    : ops.b.add('exp', { x: ops.vector(name, heads, 'a_log') }, {}, 'rate');

/** C ∘ convolution(B ∘ x), where B, C and x are projections. */
function gatedConvolution(ops: RecurrentOps, { taps, isBiased }: ConvConfig, x: Value): Value {
  const { b, context } = ops;
  const { hidden } = context;
  const part = (name: 'b' | 'c' | 'x'): Value =>
    b.scope(name, () => ops.biased(x, `conv.in_proj.${name}`, hidden, name, isBiased));
  const [before, behind, inner] = [part('b'), part('c'), part('x')];
  const input = b.add('mul', { a: before, b: inner }, {}, 'bx');
  const bias = isBiased ? ops.vector('conv.conv.bias', hidden, 'conv_bias') : undefined;
  const sum = b.scope('conv', () => ops.convolution(input, 'conv.conv', taps, 'conv', bias));
  const gated = b.add('mul', { a: behind, b: sum }, {}, 'gated');
  return b.scope('o', () => ops.biased(gated, 'conv.out_proj', hidden, 'o', isBiased));
}

/**
 * Mamba-2: S ← e^(Δ·A)·S + B(Δx)ᵀ, y = SᵀC + D∘x, norm(y ∘ silu(z)). Δ = softplus(dt + bias) within bounds,
 * A = −e^A_log.
 */
function mamba(ops: RecurrentOps, config: MambaConfig, x: Value): Value {
  const { b, context } = ops;
  const { heads, headDim, groups, stateSize, taps, isBiased, isConvBiased, timeStep, hasDecays } = config;
  const inner = heads * headDim;
  const seen = (name: 'x' | 'b' | 'c', width: number): Value =>
    b.scope(name, () => {
      const product = ops.biased(x, `mixer.in_proj.${name}`, width, `${name}_product`, isBiased);
      const bias = isConvBiased ? ops.vector(`mixer.conv1d.${name}.bias`, width, 'conv_bias') : undefined;
      return activate(b, context.activation, ops.convolution(product, `mixer.conv1d.${name}`, taps, name, bias));
    });
  const [values, k, q] = [seen('x', inner), seen('b', groups * stateSize), seen('c', groups * stateSize)];
  const step = b.scope('dt', () => {
    const product = ops.biased(x, 'mixer.in_proj.dt', heads, 'dt_product', isBiased);
    const own = ops.softplus(
      b.add('add', { a: product, b: ops.vector('mixer.dt_bias', heads, 'dt_bias') }, {}, 'dt_sum'),
    );
    const [min, max] = timeStep;
    const raised = min > 0 ? b.add('max', { a: own, b: ops.constant(min, 'dt_min') }) : own;
    return max === undefined ? raised : b.add('min', { a: raised, b: ops.constant(max, 'dt_max') });
  });
  const decay = b.scope('a', () => {
    const rate = rateOf(ops, 'mixer.A_log', heads, hasDecays);
    return b.add('exp', { x: b.add('neg', { x: b.add('mul', { a: step, b: rate }) }) }, {}, 'decay');
  });
  const told = b.scope('state', () =>
    ops.scan(
      {
        q: ops.heads(q, groups, stateSize, 'c_groups'),
        k: ops.heads(k, groups, stateSize, 'b_groups'),
        v: ops.heads(values, heads, headDim, 'x_heads'),
        decay,
        beta: step,
        skip: ops.own('mixer.D', heads),
      },
      { rule: 'add' },
    ),
  );
  const flat = b.add('reshape', { x: told }, { shape: ['T', inner] }, 'y_row');
  const gate = b.scope('z', () => activate(b, 'silu', ops.biased(x, 'mixer.in_proj.z', inner, 'z', isBiased)));
  const normed = b.scope('norm', () => ops.norm(b.add('mul', { a: flat, b: gate }, {}, 'gated'), 'mixer.norm'));
  return b.scope('o', () => ops.biased(normed, 'mixer.out_proj', context.hidden, 'o', isBiased));
}
