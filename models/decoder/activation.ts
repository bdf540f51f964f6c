/** Activations of feed-forward blocks, in primitive ops. */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';

/** `geluTanh`: the approximation of GELU by tanh. */
export type Activation = 'silu' | 'gelu' | 'geluTanh';

/** transformers' names of activations. */
export const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'geluTanh',
  gelu_fast: 'geluTanh',
  gelu_pytorch_tanh: 'geluTanh',
};

/**
 * SiLU: x·σ(x) (arXiv:1702.03118). GELU: x·Φ(x) = x·(1 + erf(x/√2))/2 (arXiv:1606.08415). Its approximation
 * x·(1 + tanh u)/2 with u = √(2/π)·(x + 0.044715·x³) is x·σ(2u), because (1 + tanh u)/2 = σ(2u).
 */
export function activate(b: GraphBuilder, kind: Activation, x: Value): Value {
  const constant = (value: number, hint: string): Value => b.add('const', [], { value }, hint);
  const one = constant(1, 'one');
  /** x·σ(y), for −y. */
  const gated = (negative: Value, name: string): Value =>
    b.add('div', [x, b.add('add', [one, b.add('exp', [negative])])], {}, name);
  switch (kind) {
    case 'silu':
      return gated(b.add('neg', [x]), 'silu');
    case 'gelu': {
      const erf = b.add('erf', [b.add('mul', [x, constant(Math.SQRT1_2, 'inverse_root')])]);
      return b.add('mul', [b.add('mul', [x, constant(0.5, 'half')]), b.add('add', [one, erf])], {}, 'gelu');
    }
    case 'geluTanh': {
      const cubic = b.add('add', [b.add('mul', [b.add('mul', [x, x]), constant(0.044715, 'cubic')]), one]);
      const factor = constant(-2 * Math.sqrt(2 / Math.PI), 'slope');
      return gated(b.add('mul', [b.add('mul', [x, cubic]), factor], {}, 'exponent'), 'gelu');
    }
    default:
      return kind satisfies never;
  }
}
