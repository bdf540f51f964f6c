import { rewrite, type Graph, type Rewriter, type Value } from '../ir/graph/graph.js';
import { evaluateOperands } from '../ir/ops/elementwise.js';
import { OPS } from '../ir/ops/index.js';
import { sameShape, sameType } from '../ir/types.js';

/**
 * Folds arithmetic on literals, and ops that cancel: a reshape or cast to the same type, a reshape of a reshape, a
 * transpose undone by the next one, x·1 and x+0.
 */
export function foldConstants(graph: Graph): Graph {
  return rewrite(graph, (node, rewriter) => {
    const operands = node.operands.map(rewriter.map);
    const literals = operands.map((v) => literalOf(rewriter, v));
    const scalar = OPS[node.op].scalar;
    if (
      scalar !== undefined &&
      node.op !== 'const' &&
      node.op !== 'cast' &&
      node.result.type.shape.length === 0 &&
      node.result.type.dtype === 'f32' &&
      literals.every((l) => l !== undefined)
    ) {
      const expression = scalar(
        operands.map((_, index) => ({ op: 'arg', index })),
        node.attributes,
      );
      const value = evaluateOperands(expression, literals);
      return Number.isNaN(value) ? undefined : rewriter.add('const', [], { value }, node.result.name);
    }
    const [first, second] = operands;
    if (first === undefined) return undefined;
    const inner = rewriter.definition(first);
    if (node.op === 'cast' && sameType(first.type, node.result.type)) return first;
    if (node.op === 'reshape') {
      if (sameShape(first.type.shape, node.result.type.shape)) return first;
      if (inner?.op === 'reshape') {
        const source = inner.operands[0]!;
        if (sameType(source.type, node.result.type)) return source;
        return rewriter.add('reshape', [source], node.attributes, node.result.name);
      }
    }
    if (node.op === 'transpose' && inner?.op === 'transpose') {
      const [outer, before] = [node.attributes['order'], inner.attributes['order']];
      if (
        Array.isArray(outer) &&
        Array.isArray(before) &&
        outer.every((axis: unknown, i) => before[Number(axis)] === i)
      )
        return inner.operands[0];
    }
    if (second !== undefined && sameType(first.type, node.result.type)) {
      if (node.op === 'mul' && literals[1] === 1) return first;
      if (node.op === 'add' && literals[1] === 0) return first;
    }
    return undefined;
  });
}

function literalOf(rewriter: Rewriter, v: Value): number | undefined {
  const node = rewriter.definition(v);
  const value = node?.op === 'const' ? node.attributes['value'] : undefined;
  return typeof value === 'number' ? value : undefined;
}
