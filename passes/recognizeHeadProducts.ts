import { rewrite, type Graph, type Node, type Value } from '../ir/graph/graph.js';
import { Matcher } from './match.js';

const HEADS_FIRST = [1, 0, 2];

/**
 * Finds products of heads with matrices of their own: a·b, where a is [h, T, K] and b the transpose, by heads, of the
 * matrices [N, K] of h heads. They become `head_linear`, whose rows are tokens.
 */
export function recognizeHeadProducts(graph: Graph): Graph {
  const m = new Matcher(graph);
  return rewrite(graph, (node, rewriter) => {
    const w = matrixOf(m, node);
    if (node.op !== 'matmul' || w === undefined) return undefined;
    const { a } = node.operands;
    const tokens = m.transposed(a, HEADS_FIRST);
    const x =
      tokens === undefined
        ? rewriter.add('transpose', { x: rewriter.map(a) }, { order: HEADS_FIRST }, `${a.name}_by_token`)
        : rewriter.map(tokens);
    const product = rewriter.add('head_linear', { x, w: rewriter.map(w) }, {}, `${node.result.name}_by_token`);
    return rewriter.add('transpose', { x: product }, { order: HEADS_FIRST }, node.result.name);
  });
}

/** The matrices of heads, one behind another. */
function matrixOf(m: Matcher, node: Node): Value | undefined {
  if (node.op !== 'matmul') return undefined;
  const stacked = m.node(m.through(m.transposed(node.operands.b, [0, 2, 1]), 'reshape'), 'concat');
  const [heads] = node.operands.b.type.shape;
  const isOfHeads =
    stacked?.attributes.axis === 0 &&
    stacked.operands.matrices.length === heads &&
    stacked.operands.matrices.every(({ kind, type }) => kind === 'weight' && type.shape.length === 2);
  return isOfHeads ? stacked.result : undefined;
}
