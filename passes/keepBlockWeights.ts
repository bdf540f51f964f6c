import { definitions, type Graph, loadTimeValues, type Node, rewrite, uses, type Value } from '../ir/graph/graph.js';
import { isScoreOp } from '../ir/ops/fused.js';
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
  const formatOf = (node: Node): BlockName | undefined => {
    const matrix = node.operands[1]!;
    if (!loaded.has(matrix)) return undefined;
    const own = defs.get(matrix);
    const parts = own?.op === 'concat' ? own.operands : [matrix];
    const formats = new Set(parts.map((part) => stored.get(checkpointTensor(defs, part)?.tensor.name ?? '')));
    const [first] = formats;
    return formats.size === 1 && first !== undefined && isBlockFormat(first) ? first : undefined;
  };
  const chosen = new Map<Value, boolean>();
  const isRounded = (x: Value): boolean => {
    const known = chosen.get(x);
    if (known !== undefined) return known;
    const products = (readers.get(x) ?? []).filter((node) => isProduct(node) && node.operands[0] === x);
    const formats = products.map(formatOf);
    const [first, second, third] = products;
    const mayMeet = second !== undefined && third === undefined && widthOf(first!) === widthOf(second);
    const isOne = !products.some((node) => isScoreOp(node.op)) && mayMeet;
    const answer = formats.every((format) => format !== undefined) && (!isOne || new Set(formats).size === 1);
    chosen.set(x, answer);
    return answer;
  };
  return rewrite(graph, (node, rewriter) => {
    if (!isProduct(node)) return undefined;
    const [x, matrix] = node.operands as [Value, Value];
    const format = formatOf(node);
    if (format === undefined || !isRounded(x)) return undefined;
    const own = defs.get(matrix);
    const keep = (v: Value): Value =>
      rewriter.add('blocks', [rewriter.map(v)], { format }, `${node.result.name}_blocks`);
    const blocks =
      own?.op === 'concat'
        ? rewriter.add('concat', own.operands.map(keep), own.attributes, `${node.result.name}_blocks`)
        : keep(matrix);
    const operands = [rewriter.map(x), blocks, ...node.operands.slice(2).map(rewriter.map)];
    return rewriter.add(node.op, operands, { ...node.attributes, rounding: GROUP }, node.result.name);
  });
}

const isProduct = ({ op }: Node): boolean => op === 'linear' || op === 'expert_linear' || isScoreOp(op);

const widthOf = ({ result }: Node): unknown => result.type.shape.at(-1);
