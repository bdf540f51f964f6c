import {
  definitions,
  isOp,
  loadTimeValues,
  rewrite,
  uses,
  type Graph,
  type Node,
  type NodeOf,
  type Value,
} from '../ir/graph/graph.js';
import { SCORE_OPS } from '../ir/ops/fused.js';
import { PRODUCT_OPS, type ProductOp } from '../ir/ops/index.js';
import { GROUP } from '../ir/quads.js';
import { type BlockName, type CodeFormat, isBlockFormat } from '../ir/storage.js';
import { checkpointTensor } from './lowerWeights.js';

/** Formats of the checkpoint's tensors whose matrices stay as they are stored: blocks, or codes. By name. */
export type StoredFormats = ReadonlyMap<string, BlockName | CodeFormat>;

/**
 * linear(x, W) = linear(x, blocks(W)) {rounding} for matrices that are stored in blocks: kernels read the blocks, and
 * rows of x become codes of 8 bits with a scale for 32 neighbours, as the blocks have them. So do products of experts,
 * and the head. Products with one x are computed by one kernel, so that x is rounded for all of them or for none.
 * Behind a norm that no matrix takes, each has an x of its own. Two products of equal width may meet in one tile, and
 * have one format then.
 */
export function keepBlockWeights(graph: Graph, stored: StoredFormats | undefined): Graph {
  if (stored === undefined || stored.size === 0) return graph;
  const loaded = loadTimeValues(graph);
  const defs = definitions(graph);
  const readers = uses(graph);
  /** The format of all matrices of a contraction. */
  const formatOf = ({ operands: { w: matrix } }: NodeOf<ProductOp>): BlockName | undefined => {
    if (!loaded.has(matrix)) return undefined;
    const own = defs.get(matrix);
    const parts = own?.op === 'concat' ? own.operands.matrices : [matrix];
    const formats = new Set(parts.map((part) => stored.get(checkpointTensor(defs, part)?.tensor.name ?? '')));
    const [first] = formats;
    return formats.size === 1 && first !== undefined && isBlockFormat(first) ? first : undefined;
  };
  const chosen = new Map<Value, boolean>();
  const isRounded = (x: Value): boolean => {
    const known = chosen.get(x);
    if (known !== undefined) return known;
    const products = (readers.get(x) ?? []).filter(isProduct).filter((node) => node.operands.x === x);
    const formats = products.map(formatOf);
    const [first, second, third] = products;
    const mayMeet =
      second !== undefined && third === undefined && first !== undefined && widthOf(first) === widthOf(second);
    const isOne = !products.some((node) => isOp(node, ...SCORE_OPS)) && mayMeet;
    const answer = formats.every((format) => format !== undefined) && (!isOne || new Set(formats).size === 1);
    chosen.set(x, answer);
    return answer;
  };
  return rewrite(graph, (node, rewriter) => {
    if (!isProduct(node)) return undefined;
    const { x, w: matrix } = node.operands;
    const format = formatOf(node);
    if (format === undefined || !isRounded(x)) return undefined;
    const own = defs.get(matrix);
    const keep = (v: Value): Value =>
      rewriter.add('blocks', { w: rewriter.map(v) }, { format }, `${node.result.name}_blocks`);
    const blocks =
      own?.op === 'concat'
        ? rewriter.add(
            'concat',
            { matrices: own.operands.matrices.map(keep) },
            own.attributes,
            `${node.result.name}_blocks`,
          )
        : keep(matrix);
    return rewriter.rebuild(node, { w: blocks }, { rounding: GROUP });
  });
}

const isProduct = (node: Node): node is NodeOf<ProductOp> => isOp(node, ...PRODUCT_OPS);

const widthOf = ({ result }: Node): unknown => result.type.shape.at(-1);
