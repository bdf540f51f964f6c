import { rewrite, type Graph, type Value } from '../ir/graph/graph.js';
import { Matcher } from './match.js';

/**
 * mean((x − mean x)²) = mean(x²) − (mean x)². The left side reads a row twice, one time after the other: it needs the
 * mean before it can begin. Sums of x and of x² are left by the kernel that computes x, so that one more kernel, which
 * writes the normed row, is all that a LayerNorm needs (docs/decisions/0003-norms.md). What rounding makes less
 * than 0 is 0.
 */
export function splitVariance(graph: Graph): Graph {
  const m = new Matcher(graph);
  return rewrite(graph, (node, rewriter) => {
    const row = node.op === 'mean' ? matchCentredSquare(m, node.operands.x) : undefined;
    if (row === undefined) return undefined;
    const [x, mean] = [rewriter.map(row.x), rewriter.map(row.mean)];
    const square = rewriter.add('mul', { a: x, b: x }, {}, `${row.x.name}_square`);
    const ofSquares = rewriter.add('mean', { x: square }, {}, `${node.result.name}_of_squares`);
    const ofMean = rewriter.add('mul', { a: mean, b: mean }, {}, 'mean_square');
    const difference = rewriter.add('sub', { a: ofSquares, b: ofMean }, {}, `${node.result.name}_difference`);
    return rewriter.add(
      'max',
      { a: difference, b: rewriter.add('const', {}, { value: 0 }, 'zero') },
      {},
      node.result.name,
    );
  });
}

/** x and its mean, if `v` is (x − mean x)². */
function matchCentredSquare(m: Matcher, v: Value): { readonly x: Value; readonly mean: Value } | undefined {
  const square = m.node(v, 'mul')?.operands;
  const centred = square?.a === square?.b ? m.node(square?.a, 'sub')?.operands : undefined;
  return centred !== undefined && m.through(centred.b, 'mean') === centred.a
    ? { x: centred.a, mean: centred.b }
    : undefined;
}
