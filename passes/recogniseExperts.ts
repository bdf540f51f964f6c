import { productName } from '../ir/extents.js';
import { MOST_CHOSEN } from '../ir/experts.js';
import { definitions, rewrite, type Graph, type Node, type Rewriter, type Value } from '../ir/graph/graph.js';
import { OPS } from '../ir/ops/index.js';
import { isSymbol } from '../ir/types.js';
import { Matcher } from './match.js';

/**
 * Σ_e w[:, e]·expert_e(x), where a row of w is 0 but for its k largest probabilities, multiplies each row by the
 * matrices of its own k experts only. Rows of x are gathered in order of experts, two products per expert follow, and
 * the results are added up in the order of their weights: nothing of a row depends on the other rows.
 * In primitive ops it is ((f(x·Gᵀ) ∘ x·Uᵀ) ∘ w)·Dᵀ, where G, U and D have the matrices of all experts one behind
 * another.
 */
export function recogniseExperts(graph: Graph): Graph {
  const search = new Search(graph);
  const products = new Set<string>();
  const next = rewrite(graph, (node, rewriter) => {
    const parts = node.op === 'linear' ? search.match(node) : undefined;
    if (parts === undefined) return undefined;
    const [rows] = parts.x.type.shape;
    if (rows === undefined || !isSymbol(rows)) return undefined;
    products.add(productName(rows, parts.routing.chosen));
    return build(parts, node, rewriter);
  });
  const missing = [...products].filter((name) => graph.extents.every((extent) => extent.name !== name));
  return missing.length === 0
    ? next
    : { ...next, extents: [...graph.extents, ...missing.map((name) => ({ name, counts: 'pairs' }))] };
}

interface Routing {
  /** f32[rows, experts] */
  readonly logits: Value;
  readonly chosen: number;
  readonly isNormalised: boolean;
}

interface Parts {
  readonly x: Value;
  /** Elementwise in products of x and the matrices of all experts. */
  readonly inner: Value;
  readonly routing: Routing;
  readonly experts: number;
  readonly down: Node;
}

class Search {
  private readonly m: Matcher;
  private readonly defs: ReadonlyMap<Value, Node>;

  constructor(graph: Graph) {
    this.m = new Matcher(graph);
    this.defs = definitions(graph);
  }

  match({ operands: [flat, matrix] }: Node): Parts | undefined {
    const { m } = this;
    const down = this.concat(matrix, 1);
    const weighted = m.through(flat, 'reshape');
    if (down === undefined || weighted === undefined) return undefined;
    const experts = down.operands.length;
    for (const [left, right] of m.pairs(weighted, 'mul')) {
      const [inner, weights] = [m.through(left, 'reshape'), m.through(right, 'reshape')];
      if (inner === undefined || weights === undefined || !this.isPerExpert(left, right, experts)) continue;
      const routing = this.routing(weights, experts);
      const lefts = new Set<Value>();
      if (routing === undefined || !this.isOfProducts(inner, experts, lefts) || lefts.size !== 1) continue;
      const [x] = [...lefts];
      if (x!.type.shape.length === 2 && routing.chosen <= MOST_CHOSEN) return { x: x!, inner, routing, experts, down };
    }
    return undefined;
  }

  /** A node that puts matrices of one shape one behind another along `axis`. */
  private concat(v: Value | undefined, axis: 0 | 1): Node | undefined {
    const node = this.m.node(v, 'concat');
    if (node?.attributes['axis'] !== axis) return undefined;
    const shapes = new Set(node.operands.map(({ type }) => type.shape.join()));
    return shapes.size === 1 ? node : undefined;
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
      lefts.add(node.operands[0]!);
      return this.concat(node.operands[1], 0)?.operands.length === experts;
    }
    return (
      node !== undefined &&
      OPS[node.op].fuse === 'elementwise' &&
      node.operands.every((operand) => this.isOfProducts(operand, experts, lefts))
    );
  }

  /** The k largest probabilities of a softmax, or their parts of the sum. */
  private routing(weights: Value, experts: number): Routing | undefined {
    const { m } = this;
    const division = m.node(weights, 'div');
    const kept = division?.operands[0];
    if (kept !== undefined && m.through(division!.operands[1], 'sum') === kept) {
      const found = this.kept(kept, experts);
      return found === undefined ? undefined : { ...found, isNormalised: true };
    }
    const found = this.kept(weights, experts);
    return found === undefined ? undefined : { ...found, isNormalised: false };
  }

  private kept(v: Value, experts: number): Omit<Routing, 'isNormalised'> | undefined {
    const { m } = this;
    for (const [probabilities, mask] of m.pairs(v, 'mul')) {
      const top = m.node(mask, 'top_mask');
      const logits = top?.operands[0] === probabilities ? m.softmax(probabilities) : undefined;
      const chosen = top?.attributes['k'];
      const shape = logits?.type.shape ?? [];
      if (logits !== undefined && typeof chosen === 'number' && shape.length === 2 && shape[1] === experts)
        return { logits, chosen };
    }
    return undefined;
  }
}

function build({ x, inner, routing, experts, down }: Parts, node: Node, rewriter: Rewriter): Value {
  const path = node.path.replace(/\.down$/, '');
  const add: Rewriter['add'] = (op, operands, attributes, hint, at = path) =>
    rewriter.add(op, operands, attributes, hint, at);
  const { logits: scores, chosen: k, isNormalised } = routing;
  const logits = rewriter.map(scores);
  const slots = Array.from({ length: k }, (_, slot) => slot);
  const chosen = add('top_experts', [logits], { k }, 'experts', `${path}.route`);
  const weights = slots.map((slot) =>
    add('expert_weight', [logits, chosen], { slot, normalised: isNormalised }, 'weight', `${path}.route`),
  );
  const order = add('expert_rows', [chosen], { experts }, 'expert_rows', `${path}.arrange`);
  const places = slots.map((slot) => add('expert_place', [chosen], { slot }, 'place', `${path}.arrange`));
  const gathered = add('gather_rows', [rewriter.map(x), order], {}, `${x.name}_by_expert`, `${path}.gather`);
  const grouped = copyOf(inner, gathered, chosen, experts, rewriter);
  const matrices = add('concat', down.operands.map(rewriter.map), { axis: 0 }, 'down_of_each');
  const results = add('expert_linear', [grouped, matrices, chosen], { experts }, node.result.name, node.path);
  const parts = slots.map((slot) =>
    add('mul', [add('gather_rows', [results, places[slot]!], {}, 'part'), weights[slot]!], {}, 'weighted_part'),
  );
  return parts.reduce((sum, part) => add('add', [sum, part], {}, 'mixed'));
}

/** `inner` over rows in order of experts, each multiplied by the matrices of its own expert. */
function copyOf(inner: Value, gathered: Value, chosen: Value, experts: number, rewriter: Rewriter): Value {
  const known = new Map<Value, Value>();
  const copy = (v: Value): Value => {
    const done = known.get(v);
    if (done !== undefined) return done;
    const now = rewriter.map(v);
    const node = rewriter.definition(now);
    const made =
      node === undefined || v.type.shape.length === 0
        ? now
        : node.op === 'linear'
          ? rewriter.add(
              'expert_linear',
              [gathered, node.operands[1]!, chosen],
              { experts },
              `${now.name}_by_expert`,
              node.path,
            )
          : rewriter.add(node.op, node.operands.map(copy), node.attributes, `${now.name}_by_expert`, node.path);
    known.set(v, made);
    return made;
  };
  return copy(inner);
}
