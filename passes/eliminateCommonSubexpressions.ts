import { rewrite, type Graph, type Value } from '../ir/graph/graph.js';

/** JSON has no infinities, NaN or −0: numbers become text, so that different numbers have different text. */
const exactNumber = (_key: string, value: unknown): unknown =>
  typeof value === 'number' ? (Object.is(value, -0) ? '-0' : String(value)) : value;

/** Merges nodes with the same op, operands and attributes. The first keeps its name and path. */
export function eliminateCommonSubexpressions(graph: Graph): Graph {
  const ids = new Map<Value, number>();
  const idOf = (v: Value): number => {
    const known = ids.get(v);
    if (known !== undefined) return known;
    ids.set(v, ids.size);
    return ids.size - 1;
  };
  const seen = new Map<string, Value>();
  return rewrite(graph, (node, rewriter) => {
    const inputs = node.inputs.map(rewriter.map);
    const attributes = Object.entries(node.attributes).sort(([a], [b]) => (a < b ? -1 : 1));
    const key = `${node.op}(${inputs.map(idOf).join(',')})${JSON.stringify(attributes, exactNumber)}`;
    const first = seen.get(key);
    if (first !== undefined) return first;
    if (inputs.every((v, i) => v === node.inputs[i])) {
      seen.set(key, node.result);
      return undefined;
    }
    const result = rewriter.copy(node, rewriter.map);
    seen.set(key, result);
    return result;
  });
}
