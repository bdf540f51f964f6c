import { isScaled } from '../ir/ops/attention.js';
import { isScoreOp } from '../ir/ops/fused.js';
import { definitions, loadTimeValues, rewrite, uses, type Graph, type Node, type Value } from '../ir/graph/graph.js';
import { isCodeFormat } from '../ir/storage.js';
import type { FloatType } from '../ir/types.js';

/**
 * Makes the rounding of contraction operands explicit. The left operand of every weight contraction is cast to
 * `dtype`: 16 bits for matrix units, f32 otherwise. Where the contraction makes codes of its rows itself, only whole
 * rows are, and only if nothing but contractions reads them. The cast is an ordinary elementwise op, which fuseGroups
 * puts into the epilogue of the kernel that produces the value. Queries, keys and values are cast in the same way if
 * `attention` says so. Accumulation, the residual stream, softmax and sums stay f32. A contraction reads its rows in
 * order. If they are gathered rows that already have the wanted type (of the embedding of an f32 checkpoint, or scored
 * rows of a normed stream that keys and values need in full), the cast writes them to memory one after another. Rows
 * on their way to and from experts are moved in `dtype`: they are read and written as often as a row has experts.
 */
export function assignPrecision(graph: Graph, dtype: FloatType, attention: FloatType = 'f32'): Graph {
  const defs = definitions(graph);
  const loaded = loadTimeValues(graph);
  const readers = uses(graph);
  // Codes of groups are finer than those of whole rows, and what others read is in memory already.
  const isRoundedAsIs = ({ attributes: { rounding } }: Node, x: Value): boolean =>
    rounding !== undefined &&
    x.type.dtype === 'f32' &&
    (rounding !== x.type.shape[1] || (readers.get(x) ?? []).some(({ op }) => op !== 'linear'));
  const casts: Readonly<Record<FloatType, Map<Value, Value>>> = { f32: new Map(), f16: new Map(), bf16: new Map() };
  return rewrite(graph, (node, rewriter) => {
    const narrowed = (v: Value, to: FloatType): Value => {
      const known = casts[to].get(v);
      if (known !== undefined) return known;
      const narrow = rewriter.add('cast', [rewriter.map(v)], { dtype: to }, `${v.name}_${to}`);
      casts[to].set(v, narrow);
      return narrow;
    };
    if (node.op === 'attention') {
      // Codes of keys and values stay as they are.
      const read = isScaled(node.attributes) ? 1 : 3;
      if (attention === 'f32' || node.operands.slice(0, read).every((v) => v.type.dtype === attention))
        return undefined;
      const narrow = node.operands.map((v, i) =>
        i < read && v.type.dtype !== attention ? narrowed(v, attention) : rewriter.map(v),
      );
      return rewriter.add('attention', narrow, node.attributes, node.result.name);
    }
    if (node.op === 'gather_rows' && dtype !== 'f32' && defs.get(node.operands[0]!)?.op === 'expert_linear') {
      const rows = [narrowed(node.operands[0]!, dtype), rewriter.map(node.operands[1]!)];
      const gathered = rewriter.add('gather_rows', rows, node.attributes, node.result.name);
      return rewriter.add('cast', [gathered], { dtype: 'f32' }, `${node.result.name}_f32`);
    }
    const isContraction = node.op === 'linear' || node.op === 'expert_linear' || isScoreOp(node.op);
    const x = node.operands[0];
    if (!isContraction || x === undefined || !loaded.has(node.operands[1]!)) return undefined;
    if (isCodeFormat(x.type.dtype)) return undefined;
    const to = isRoundedAsIs(node, x) ? 'f32' : dtype;
    const gather = defs.get(x);
    if (x.type.dtype === to && gather?.op !== 'gather_rows') return undefined;
    if (node.op === 'expert_linear' && gather?.op === 'gather_rows' && !casts[to].has(x)) {
      const rows = [narrowed(gather.operands[0]!, to), rewriter.map(gather.operands[1]!)];
      const gathered = rewriter.add('gather_rows', rows, gather.attributes, x.name, gather.path);
      casts[to].set(x, rewriter.add('cast', [gathered], { dtype: to }, `${x.name}_${to}`));
    }
    return rewriter.add(
      node.op,
      [narrowed(x, to), ...node.operands.slice(1).map(rewriter.map)],
      node.attributes,
      node.result.name,
    );
  });
}
