import {
  type Graph,
  isOp,
  loadTimeValues,
  type NodeOf,
  rewrite,
  type Rewriter,
  uses,
  type Value,
} from '../ir/graph/graph.js';
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
 */
export function foldNormWeights(
  graph: Graph,
  format: WeightStorage['format'],
  stored: StoredFormats = new Map(),
): Graph {
  const m = new Matcher(graph);
  const readers = uses(graph);
  const loaded = loadTimeValues(graph);
  return rewrite(graph, (node, rewriter) => {
    if (node.op !== 'linear' || !loaded.has(node.operands.w)) return undefined;
    const normed = node.operands.x;
    const users = readers.get(normed) ?? [];
    const products = users.filter((reader) => isOp(reader, 'linear'));
    const isOnlyMultiplied =
      products.length === users.length && !graph.results.includes(normed) && normed.type.dtype === 'f32';
    const parts = isOnlyMultiplied ? matchNorm(m, normed, loaded) : undefined;
    if (parts === undefined) return undefined;
    const takesScale = products.every(({ operands }) => takesColumnScale(m, operands.w, format, stored));
    return takesScale ? foldIntoMatrix(node, parts, rewriter) : foldIntoOperand(node, parts, rewriter);
  });
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
