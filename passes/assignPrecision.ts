import {
  definitions,
  isOp,
  loadTimeValues,
  rewrite,
  uses,
  type Graph,
  type NodeOf,
  type Value,
} from '../ir/graph/graph.js';
import { tailOf } from '../ir/ops/attention.js';
import { PRODUCT_OPS, type ProductOp } from '../ir/ops/index.js';
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
 * on their way to and from experts are moved in `dtype`: they are read and written as often as a row has experts. So
 * are those that a convolution reads, and what scans read as attention does. `byHead`: that of products of heads.
 */
export function assignPrecision(
  graph: Graph,
  dtype: FloatType,
  attention: FloatType = 'f32',
  byHead: FloatType = dtype,
): Graph {
  const defs = definitions(graph);
  const loaded = loadTimeValues(graph);
  const readers = uses(graph);
  // Codes of groups are finer than those of whole rows, and what others read is in memory already.
  const isRoundedAsIs = (node: NodeOf<ProductOp>, x: Value): boolean =>
    node.op !== 'head_linear' &&
    node.attributes.rounding !== undefined &&
    x.type.dtype === 'f32' &&
    (node.attributes.rounding !== x.type.shape[1] || (readers.get(x) ?? []).some(({ op }) => op !== 'linear'));
  /** Rows of an expert, and those before others on their paths, which are read several times. */
  const isMoved = ({ operands: { x, index } }: NodeOf<'gather_rows'>): boolean =>
    defs.get(x)?.op === 'expert_linear' || defs.get(index)?.op === 'token_before';
  const casts: Readonly<Record<FloatType, Map<Value, Value>>> = { f32: new Map(), f16: new Map(), bf16: new Map() };
  return rewrite(graph, (node, rewriter) => {
    const narrowed = (v: Value, to: FloatType): Value => {
      const known = casts[to].get(v);
      if (known !== undefined) return known;
      const narrow = rewriter.add('cast', { x: rewriter.map(v) }, { dtype: to }, `${v.name}_${to}`);
      casts[to].set(v, narrow);
      return narrow;
    };
    if (node.op === 'attention') {
      if (attention === 'f32') return undefined;
      const read = (each: Value): Value =>
        each.type.dtype === attention ? rewriter.map(each) : narrowed(each, attention);
      const { q, k, v } = node.operands;
      // Codes of keys and values stay as they are.
      const isScaled = node.attributes.scaled === true;
      const tail = tailOf(node.operands);
      const tails = tail === undefined ? [] : [tail.q, tail.k];
      if ([...(isScaled ? [q] : [q, k, v]), ...tails].every(({ type }) => type.dtype === attention)) return undefined;
      return rewriter.rebuild(node, {
        ...(isScaled ? { q: read(q) } : { q: read(q), k: read(k), v: read(v) }),
        ...(tail === undefined ? {} : { qTail: read(tail.q), kTail: read(tail.k) }),
      });
    }
    if ((node.op === 'scan' || node.op === 'scan_state') && attention !== 'f32') {
      const { k, v } = node.operands;
      const shared = { k: narrowed(k, attention), v: narrowed(v, attention) };
      return node.op === 'scan_state'
        ? rewriter.rebuild(node, shared)
        : rewriter.rebuild(node, { ...shared, q: narrowed(node.operands.q, attention) });
    }
    if (node.op === 'gather_rows' && dtype !== 'f32' && isMoved(node)) {
      if (node.operands.x.type.dtype !== 'f32') return undefined;
      const gathered = rewriter.rebuild(node, { x: narrowed(node.operands.x, dtype) });
      return rewriter.add('cast', { x: gathered }, { dtype: 'f32' }, `${node.result.name}_f32`);
    }
    if (!isOp(node, ...PRODUCT_OPS) || !loaded.has(node.operands.w)) return undefined;
    const { x } = node.operands;
    if (isCodeFormat(x.type.dtype)) return undefined;
    const to = isRoundedAsIs(node, x) ? 'f32' : node.op === 'head_linear' ? byHead : dtype;
    const gather = defs.get(x);
    if (x.type.dtype === to && gather?.op !== 'gather_rows') return undefined;
    if (node.op === 'expert_linear' && gather?.op === 'gather_rows' && !casts[to].has(x)) {
      const rows = { x: narrowed(gather.operands.x, to), index: rewriter.map(gather.operands.index) };
      const gathered = rewriter.add('gather_rows', rows, {}, x.name, gather.path);
      casts[to].set(x, rewriter.add('cast', { x: gathered }, { dtype: to }, `${x.name}_${to}`));
    }
    return rewriter.rebuild(node, { x: narrowed(x, to) });
  });
}
