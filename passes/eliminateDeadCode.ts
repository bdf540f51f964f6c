import type { Graph, Value } from '../ir/graph/graph.js';

/**
 * Removes nodes and weights that no result and no given state depends on. Parameters and states stay, because they are
 * the signature.
 */
export function eliminateDeadCode(graph: Graph): Graph {
  const live = new Set<Value>([...graph.results, ...graph.gives]);
  for (const node of [...graph.nodes].reverse()) {
    if (live.has(node.result)) node.inputs.forEach((v) => live.add(v));
  }
  const nodes = graph.nodes.filter((n) => live.has(n.result));
  const weights = graph.weights.filter((w) => live.has(w));
  if (nodes.length === graph.nodes.length && weights.length === graph.weights.length) return graph;
  return { ...graph, nodes, weights };
}
