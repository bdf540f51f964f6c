/** Small helpers for recognizing structure in a graph. */
import { definitions, isOp, type Graph, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import type { BinaryOpName, OpName, UnaryOpName } from '../ir/ops/index.js';
import { roundToDType } from '../ir/round.js';

export class Matcher {
  private readonly defs: ReadonlyMap<Value, Node>;

  constructor(graph: Graph) {
    this.defs = definitions(graph);
  }

  /** The node that defines `v`, if it is an `op`. */
  node<Op extends OpName>(v: Value | undefined, op: Op): NodeOf<Op> | undefined {
    const node = v === undefined ? undefined : this.defs.get(v);
    return isOp(node, op) ? node : undefined;
  }

  /** The operand of `v` if `v` is a one-operand `op`. */
  through(v: Value | undefined, op: UnaryOpName): Value | undefined {
    return this.node(v, op)?.operands.x;
  }

  /** Both orders of the operands of `v` if it is a commutative two-operand `op`. */
  pairs(v: Value | undefined, op: BinaryOpName): readonly (readonly [Value, Value])[] {
    const node = this.node(v, op);
    if (node === undefined) return [];
    const { a, b } = node.operands;
    return [
      [a, b],
      [b, a],
    ];
  }

  /** The value of a literal, seen through casts. */
  literal(v: Value | undefined): number | undefined {
    const cast = this.through(v, 'cast');
    if (v !== undefined && cast !== undefined) {
      const wide = this.literal(cast);
      return wide === undefined ? undefined : roundToDType(wide, v.type.dtype);
    }
    return this.node(v, 'const')?.attributes.value;
  }

  /**
   * x, factor and cap if `v` is cap·tanh(x·factor / cap) with literals, of which the cap is above 0. Rounding may keep
   * the factor from being 1 exactly.
   */
  softCap(v: Value): { readonly of: Value; readonly factor: number; readonly cap: number } | undefined {
    for (const [bounded, limit] of this.pairs(v, 'mul')) {
      const [cap, inner] = [this.literal(limit), this.through(bounded, 'tanh')];
      if (cap === undefined || !(cap > 0 && cap < Infinity) || inner === undefined) continue;
      for (const [of, by] of this.pairs(inner, 'mul')) {
        const inverse = this.literal(by);
        const factor = (inverse ?? 0) * cap;
        if (factor > 0) return { of, factor: Math.abs(factor - 1) < 1e-12 ? 1 : factor, cap };
      }
    }
    return undefined;
  }

  /** The x for which softmax(x) = v, if `v` is exp(x − max x) / Σ exp(x − max x). */
  softmax(v: Value): Value | undefined {
    const division = this.node(v, 'div')?.operands;
    const exp = division?.a;
    if (exp === undefined || this.through(division?.b, 'sum') !== exp) return undefined;
    const shifted = this.node(this.through(exp, 'exp'), 'sub')?.operands;
    return shifted !== undefined && this.through(shifted.b, 'reduce_max') === shifted.a ? shifted.a : undefined;
  }

  /** The x of which `v` is the sigmoid, 1 / (1 + exp(−x)). */
  sigmoid(v: Value): Value | undefined {
    const division = this.node(v, 'div')?.operands;
    if (division === undefined || this.literal(division.a) !== 1) return undefined;
    for (const [one, exp] of this.pairs(division.b, 'add')) {
      const x = this.literal(one) === 1 ? this.through(this.through(exp, 'exp'), 'neg') : undefined;
      if (x !== undefined) return x;
    }
    return undefined;
  }

  /** The operand of `v` if `v` is a transpose with exactly this axis order. */
  transposed(v: Value | undefined, order: readonly number[]): Value | undefined {
    const node = this.node(v, 'transpose');
    const actual = node?.attributes.order ?? [];
    const isSame = actual.length === order.length && order.every((axis, i) => axis === actual[i]);
    return isSame ? node?.operands.x : undefined;
  }
}
