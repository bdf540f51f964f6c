import { productName } from '../ir/extents.js';
import { rewrite, type Graph, type Node, type Rewriter, type Value } from '../ir/graph/graph.js';
import { isSymbol } from '../ir/types.js';
import { MixtureSearch, type Mixture, type Routing } from './matchExperts.js';

/**
 * Σ_e w[:, e]·expert_e(x), where a row of w is 0 but for its k largest probabilities, multiplies each row by the
 * matrices of its own k experts only. Rows of x are gathered in order of experts, two products per expert follow, and
 * the results are added up in the order of their weights: nothing of a row depends on the other rows.
 * In primitive ops it is ((f(x·Gᵀ) ∘ x·Uᵀ) ∘ w)·Dᵀ, where G, U and D have the matrices of all experts one behind
 * another.
 */
export function recognizeExperts(graph: Graph): Graph {
  const search = new MixtureSearch(graph);
  const products = new Set<string>();
  const next = rewrite(graph, (node, rewriter) => {
    const parts = node.op === 'linear' ? search.match(node) : undefined;
    if (parts?.routing === undefined) return undefined;
    const [rows] = parts.x.type.shape;
    if (rows === undefined || !isSymbol(rows)) return undefined;
    products.add(productName(rows, parts.routing.chosen));
    return build(parts, parts.routing, node, rewriter);
  });
  const missing = [...products].filter((name) => graph.extents.every((extent) => extent.name !== name));
  return missing.length === 0
    ? next
    : { ...next, extents: [...graph.extents, ...missing.map((name) => ({ name, counts: 'pairs' }))] };
}

function build({ x, inner, experts, down }: Mixture, routing: Routing, node: Node, rewriter: Rewriter): Value {
  const path = node.path.replace(/\.down$/, '');
  const add: Rewriter['add'] = (op, operands, attributes, hint, at = path) =>
    rewriter.add(op, operands, attributes, hint, at);
  const { logits: scores, chosen: k, isNormalized } = routing;
  const logits = rewriter.map(scores);
  const slots = Array.from({ length: k }, (_, slot) => slot);
  const chosen = add('top_experts', [logits], { k }, 'experts', `${path}.route`);
  const weights = slots.map((slot) =>
    add('expert_weight', [logits, chosen], { slot, normalized: isNormalized }, 'weight', `${path}.route`),
  );
  const order = add('expert_rows', [chosen], { experts }, 'expert_rows', `${path}.sortByExpert`);
  const places = slots.map((slot) => add('expert_place', [chosen], { slot }, 'place', `${path}.sortByExpert`));
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
