import { type Graph, loadTimeValues, type Node, rewrite, type Rewriter, uses, type Value } from '../ir/graph/graph.js';
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
    if (node.op !== 'linear' || !loaded.has(node.operands[1]!)) return undefined;
    const normed = node.operands[0]!;
    const users = readers.get(normed) ?? [];
    const isOnlyMultiplied =
      users.every((reader) => reader.op === 'linear') && !graph.results.includes(normed) && normed.type.dtype === 'f32';
    const parts = isOnlyMultiplied ? matchNorm(m, normed, loaded) : undefined;
    if (parts === undefined) return undefined;
    const takesScale = users.every((reader) => takesColumnScale(m, reader.operands[1]!, format, stored));
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

function foldIntoOperand(node: Node, parts: NormParts, rewriter: Rewriter): Value {
  const weighted = rewriter.add(
    'mul',
    [rewriter.map(parts.x), rewriter.map(parts.weight)],
    {},
    `${parts.x.name}_weighted`,
  );
  const product = rewriter.add(
    'linear',
    [weighted, rewriter.map(node.operands[1]!)],
    {},
    `${node.result.name}_unscaled`,
  );
  return rewriter.add('mul', [product, rewriter.map(parts.scale)], {}, node.result.name);
}

function foldIntoMatrix(node: Node, parts: NormParts, rewriter: Rewriter): Value {
  const [x, scale, weight, matrix] = [parts.x, parts.scale, parts.weight, node.operands[1]!].map(rewriter.map) as [
    Value,
    Value,
    Value,
    Value,
  ];
  const matrixF32 =
    matrix.type.dtype === 'f32'
      ? matrix
      : rewriter.add('cast', [matrix], { dtype: 'f32' }, `${node.result.name}_matrix`);
  const folded = rewriter.add('mul', [matrixF32, weight], {}, `${node.result.name}_folded`);
  const product = rewriter.add('linear', [x, folded], {}, `${node.result.name}_unscaled`);
  return rewriter.add('mul', [product, scale], {}, node.result.name);
}
