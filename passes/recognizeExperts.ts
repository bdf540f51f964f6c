import { productName } from '../ir/extents.js';
import { rewrite, type Graph, type Node, type Rewriter, type Value } from '../ir/graph/graph.js';
import { isSymbol } from '../ir/types.js';
import { at } from '../system/at.js';
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
  const { logits: scores, chosen: k, isNormalized } = routing;
  const logits = rewriter.map(scores);
  const slots = Array.from({ length: k }, (_, slot) => slot);
  const { chosen, weights } = rewriter.scope(`${path}.route`, () => {
    const own = rewriter.add('top_experts', { logits }, { k }, 'experts');
    const weightOf = (slot: number): Value =>
      rewriter.add('expert_weight', { logits, experts: own }, { slot, normalized: isNormalized }, 'weight');
    return { chosen: own, weights: slots.map(weightOf) };
  });
  const { order, places } = rewriter.scope(`${path}.sortByExpert`, () => ({
    order: rewriter.add('expert_rows', { experts: chosen }, { experts }, 'expert_rows'),
    places: slots.map((slot) => rewriter.add('expert_place', { experts: chosen }, { slot }, 'place')),
  }));
  const rows = { x: rewriter.map(x), index: order };
  const gathered = rewriter.add('gather_rows', rows, {}, `${x.name}_by_expert`, `${path}.gather`);
  const grouped = copyOf(inner, gathered, chosen, experts, rewriter);
  return rewriter.scope(path, () => {
    const matrices = rewriter.add('concat', { matrices: down.map(rewriter.map) }, { axis: 0 }, 'down_of_each');
    const product = { x: grouped, w: matrices, experts: chosen };
    const results = rewriter.add('expert_linear', product, { experts }, node.result.name, node.path);
    const parts = places.map((place, slot) => {
      const part = rewriter.add('gather_rows', { x: results, index: place }, {}, 'part');
      return rewriter.add('mul', { a: part, b: at(weights, slot) }, {}, 'weighted_part');
    });
    return parts.reduce((sum, part) => rewriter.add('add', { a: sum, b: part }, {}, 'mixed'));
  });
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
              { x: gathered, w: node.operands.w, experts: chosen },
              { experts },
              `${now.name}_by_expert`,
              node.path,
            )
          : rewriter.copy(node, copy, `${now.name}_by_expert`, node.path);
    known.set(v, made);
    return made;
  };
  return copy(inner);
}
