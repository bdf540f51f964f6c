import { definitions, loadTimeValues, rewrite, type Graph, type Value } from '../ir/graph.js';

/** Element type of a contraction's left operand: bf16 where matrix units want it, f32 elsewhere. */
export type ContractionDtype = 'f32' | 'bf16';

/**
 * Makes the rounding of contraction operands explicit: the left operand of every weight contraction is cast to
 * `dtype`. The cast is an ordinary elementwise op that fuseGroups puts into the epilogue of whatever produces the
 * value. Accumulation, the residual stream, softmax and sums stay f32.
 * A contraction reads its rows in order: where they are rows looked up in a table that has the wanted type already (the
 * embedding of an f32 checkpoint), the cast is what writes them down one after another.
 */
export function assignPrecision(graph: Graph, dtype: ContractionDtype): Graph {
  const defs = definitions(graph);
  const loaded = loadTimeValues(graph);
  const casts = new Map<Value, Value>();
  return rewrite(graph, (node, rewriter) => {
    const isContraction = node.op === 'linear' || node.op === 'logprob' || node.op === 'is_argmax';
    const x = node.operands[0];
    if (!isContraction || x === undefined || !loaded.has(node.operands[1]!)) return undefined;
    const lookup = defs.get(x);
    const isTableRow = lookup?.op === 'gather_rows' && loaded.has(lookup.operands[0]!);
    if (x.type.dtype === dtype && !isTableRow) return undefined;
    const narrow = casts.get(x) ?? rewriter.add('cast', [rewriter.map(x)], { dtype }, `${x.name}_${dtype}`);
    casts.set(x, narrow);
    return rewriter.add(node.op, [narrow, ...node.operands.slice(1).map(rewriter.map)], node.attributes, node.result.name);
  });
}
