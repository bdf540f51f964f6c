import {
  definitions,
  type Graph,
  isOp,
  loadTimeValues,
  type Node,
  type NodeOf,
  rewrite,
  type Rewriter,
  uses,
  type Value,
} from '../ir/graph/graph.js';
import { OPS } from '../ir/ops/index.js';
import { FORMATS } from '../ir/storage.js';
import { isFloat } from '../ir/types.js';
import type { StoredFormats } from './keepBlockWeights.js';
import type { WeightStorage } from './lowerWeights.js';
import { Matcher } from './match.js';

/**
 * linear((x·s)·w, W) = linear(x, W·w)·s for a scale s of each row [rows, 1] and a norm weight w [K]. W·w is computed
 * once, when the weights are loaded; s = 1/rms moves from the contraction's operand to its epilogue. Since fuseGroups
 * sums x² where x is produced, no norm kernel remains. Applies if every reader of the normed value is a linear. Where
 * one of their matrices takes no factor for each column, w stays with x, and the kernel that produces x multiplies:
 * linear(x·w, W)·s. So do matrices that stay as they are stored (`format`): W·w has more digits than 16 bits hold, and
 * answers do not depend on how equal weights are stored. Nor do codes that are `stored` take a factor.
 *
 * Rows that are gathered for experts are normed as they are gathered: the kernel that makes x then waits for no whole
 * rows, and the router reads them as they are.
 */
export function foldNormWeights(
  graph: Graph,
  format: WeightStorage['format'],
  stored: StoredFormats = new Map(),
): Graph {
  const m = new Matcher(graph);
  const defs = definitions(graph);
  const readers = uses(graph);
  const loaded = loadTimeValues(graph);
  return rewrite(graph, (node, rewriter) => {
    const product = node.op === 'linear' && loaded.has(node.operands.w) ? node : undefined;
    const gather = isForExperts(node, defs) ? node : undefined;
    const reader = product ?? gather;
    if (reader === undefined) return undefined;
    const normed = reader.operands.x;
    const users = readers.get(normed) ?? [];
    const products = users.filter((user) => isOp(user, 'linear'));
    const gathers = users.filter((user) => isForExperts(user, defs));
    const isKnown =
      products.length > 0 &&
      products.length + gathers.length === users.length &&
      !graph.results.includes(normed) &&
      normed.type.dtype === 'f32';
    const parts = isKnown ? matchNorm(m, normed, loaded) : undefined;
    if (parts === undefined || (gathers.length > 0 && !isOfRow(parts.scale, defs))) return undefined;
    if (gather !== undefined) return normGathered(gather, parts, defs, rewriter);
    if (product === undefined) return undefined;
    const takesScale = products.every(({ operands }) => takesColumnScale(m, operands.w, format, stored));
    return takesScale ? foldIntoMatrix(product, parts, rewriter) : foldIntoOperand(product, parts, rewriter);
  });
}

/** Whether `node` gathers rows in the order of their experts. */
const isForExperts = (node: Node, defs: ReadonlyMap<Value, Node>): node is NodeOf<'gather_rows'> =>
  node.op === 'gather_rows' && defs.get(node.operands.index)?.op === 'expert_rows';

/** Whether a value for each row is computed from sums of the row, and from what is the same for all rows. */
function isOfRow(v: Value, defs: ReadonlyMap<Value, Node>): boolean {
  if (v.type.shape.length < 2 || v.type.shape[0] === 1) return true;
  const node = defs.get(v);
  if (node === undefined || v.type.shape.at(-1) !== 1) return false;
  if (isOp(node, 'sum', 'mean')) return true;
  return OPS[node.op].fuse === 'elementwise' && node.inputs.every((each) => isOfRow(each, defs));
}

/** gather((x·s)·w) = (gather(x)·gather(s))·w, where sums of rows are gathered and what follows from them computed. */
function normGathered(
  { operands: { index }, result, path }: NodeOf<'gather_rows'>,
  { x, scale, weight }: NormParts,
  defs: ReadonlyMap<Value, Node>,
  rewriter: Rewriter,
): Value {
  const rows = rewriter.map(index);
  const gathered = (v: Value): Value =>
    rewriter.add('gather_rows', { x: rewriter.map(v), index: rows }, {}, v.name, path);
  const ofRow = (v: Value): Value => {
    const node = defs.get(v);
    if (node === undefined || v.type.shape.length < 2 || v.type.shape[0] === 1) return rewriter.map(v);
    return isOp(node, 'sum', 'mean') ? gathered(v) : rewriter.copy(node, ofRow, v.name, path);
  };
  const unit = rewriter.add('mul', { a: gathered(x), b: ofRow(scale) }, {}, `${result.name}_unit`, path);
  return rewriter.add('mul', { a: unit, b: rewriter.map(weight) }, {}, result.name, path);
}

/** Whether columns of the packed matrix can be multiplied by factors, at the cost of one rounding at most. */
function takesColumnScale(m: Matcher, matrix: Value, format: WeightStorage['format'], stored: StoredFormats): boolean {
  const tensor = m.through(matrix, 'cast') ?? matrix;
  if (m.node(matrix, 'grouped') !== undefined || stored.has(tensor.name)) return false;
  const { dtype } = tensor.type;
  return isFloat(dtype) && FORMATS[dtype].takesColumnScale && format !== 'stored';
}

interface NormParts {
  readonly x: Value;
  /** [rows, 1] */
  readonly scale: Value;
  /** [K] of the checkpoint; absent if the value is only scaled. */
  readonly weight: Value;
}

function matchNorm(m: Matcher, normed: Value, loaded: ReadonlySet<Value>): NormParts | undefined {
  for (const [unit, weight] of m.pairs(normed, 'mul')) {
    if (!loaded.has(weight) || weight.type.shape.length !== 1) continue;
    for (const [x, scale] of m.pairs(unit, 'mul')) {
      // With one column, either factor may be the scale.
      if (scale.type.shape.at(-1) === 1) return { x, scale, weight };
    }
  }
  return undefined;
}

function foldIntoOperand(node: NodeOf<'linear'>, parts: NormParts, rewriter: Rewriter): Value {
  const weighted = rewriter.add(
    'mul',
    { a: rewriter.map(parts.x), b: rewriter.map(parts.weight) },
    {},
    `${parts.x.name}_weighted`,
  );
  const product = rewriter.add(
    'linear',
    { x: weighted, w: rewriter.map(node.operands.w) },
    {},
    `${node.result.name}_unscaled`,
  );
  return rewriter.add('mul', { a: product, b: rewriter.map(parts.scale) }, {}, node.result.name);
}

function foldIntoMatrix(node: NodeOf<'linear'>, parts: NormParts, rewriter: Rewriter): Value {
  const [x, scale, weight] = [rewriter.map(parts.x), rewriter.map(parts.scale), rewriter.map(parts.weight)];
  const matrix = rewriter.map(node.operands.w);
  const matrixF32 =
    matrix.type.dtype === 'f32'
      ? matrix
      : rewriter.add('cast', { x: matrix }, { dtype: 'f32' }, `${node.result.name}_matrix`);
  const folded = rewriter.add('mul', { a: matrixF32, b: weight }, {}, `${node.result.name}_folded`);
  const product = rewriter.add('linear', { x, w: folded }, {}, `${node.result.name}_unscaled`);
  return rewriter.add('mul', { a: product, b: scale }, {}, node.result.name);
}
