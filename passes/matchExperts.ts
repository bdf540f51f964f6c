/** Finds mixtures of experts as models write them: products with the matrices of all experts one behind another. */
import { MAX_CHOSEN } from '../ir/experts.js';
import { definitions, type Graph, type Node, type NodeOf, type Value } from '../ir/graph/graph.js';
import { OPS } from '../ir/ops/index.js';
import { Matcher } from './match.js';

/** How a row's experts are chosen: those of its k largest probabilities. */
export interface Routing {
  /** f32[rows, experts] */
  readonly logits: Value;
  readonly chosen: number;
  readonly isNormalized: boolean;
}

/** Σ_e w[:, e]·expert_e(x). */
export interface Mixture {
  /** [rows, columns] */
  readonly x: Value;
  /** Elementwise in products of x and the matrices of all experts. */
  readonly inner: Value;
  /** f32[rows, experts], as `inner` is multiplied by it. */
  readonly weights: Value;
  /** Undefined if the weights are not known to be 0 but for a few experts. */
  readonly routing: Routing | undefined;
  readonly experts: number;
  /** The matrices of the second products, by expert. */
  readonly down: readonly Value[];
}

export class MixtureSearch {
  private readonly m: Matcher;
  private readonly defs: ReadonlyMap<Value, Node>;

  constructor(graph: Graph) {
    this.m = new Matcher(graph);
    this.defs = definitions(graph);
  }

  /** The mixture whose sum is the product `node`. */
  match({ operands: { x: flat, w: matrix } }: NodeOf<'linear'>): Mixture | undefined {
    const { m } = this;
    const down = this.concat(matrix, 1);
    const weighted = m.through(flat, 'reshape');
    if (down === undefined || weighted === undefined) return undefined;
    const experts = down.length;
    for (const [left, right] of m.pairs(weighted, 'mul')) {
      const [inner, weights] = [m.through(left, 'reshape'), m.through(right, 'reshape')];
      if (inner === undefined || weights === undefined || !this.isPerExpert(left, right, experts)) continue;
      const lefts = new Set<Value>();
      if (weights.type.shape.length !== 2 || !this.isOfProducts(inner, experts, lefts) || lefts.size !== 1) continue;
      const [x] = lefts;
      const routing = this.routing(weights, experts);
      const known = routing !== undefined && routing.chosen <= MAX_CHOSEN ? routing : undefined;
      if (x?.type.shape.length === 2) return { x, inner, weights, routing: known, experts, down };
    }
    return undefined;
  }

  /** The matrices of one shape that `v` has one behind another along `axis`. */
  private concat(v: Value | undefined, axis: 0 | 1): readonly Value[] | undefined {
    const node = this.m.node(v, 'concat');
    if (node?.attributes.axis !== axis) return undefined;
    const { matrices } = node.operands;
    return new Set(matrices.map(({ type }) => type.shape.join())).size === 1 ? matrices : undefined;
  }

  /** Whether elements [rows, experts, width] are multiplied by one number for each row and expert. */
  private isPerExpert(elements: Value, weights: Value, experts: number): boolean {
    const [rows, count, width] = elements.type.shape;
    const [same, each, one] = weights.type.shape;
    return rows === same && count === experts && each === experts && one === 1 && typeof width === 'number';
  }

  /** Whether `v` is elementwise in x·Wᵀ, where W has a matrix of each expert. The values x are added to `lefts`. */
  private isOfProducts(v: Value, experts: number, lefts: Set<Value>): boolean {
    const node = this.defs.get(v);
    if (v.type.shape.length === 0 && this.m.literal(v) !== undefined) return true;
    if (node?.op === 'linear') {
      lefts.add(node.operands.x);
      return this.concat(node.operands.w, 0)?.length === experts;
    }
    return (
      node !== undefined &&
      OPS[node.op].fuse === 'elementwise' &&
      node.inputs.every((operand) => this.isOfProducts(operand, experts, lefts))
    );
  }

  /** The k largest probabilities of a softmax, or their parts of the sum. */
  private routing(weights: Value, experts: number): Routing | undefined {
    const { m } = this;
    const division = m.node(weights, 'div')?.operands;
    if (division !== undefined && m.through(division.b, 'sum') === division.a) {
      const found = this.kept(division.a, experts);
      return found === undefined ? undefined : { ...found, isNormalized: true };
    }
    const found = this.kept(weights, experts);
    return found === undefined ? undefined : { ...found, isNormalized: false };
  }

  private kept(v: Value, experts: number): Omit<Routing, 'isNormalized'> | undefined {
    const { m } = this;
    for (const [probabilities, mask] of m.pairs(v, 'mul')) {
      const top = m.node(mask, 'top_mask');
      const logits = top?.operands.x === probabilities ? m.softmax(probabilities) : undefined;
      const chosen = top?.attributes.k;
      const shape = logits?.type.shape ?? [];
      if (logits !== undefined && chosen !== undefined && shape.length === 2 && shape[1] === experts)
        return { logits, chosen };
    }
    return undefined;
  }
}
