import { rewrite, type Graph, type Rewriter, type Value } from '../ir/graph/graph.js';
import { evaluateScalar } from '../ir/evaluateScalar.js';
import { OPS } from '../ir/ops/index.js';
import { nameOperands } from '../ir/ops/opDef.js';
import type { Scalar } from '../ir/scalar.js';
import { sameShape, sameType } from '../ir/types.js';

/**
 * Folds arithmetic on literals, and ops that cancel: a reshape or cast to the same type, a reshape of a reshape, a
 * transpose undone by the next one, x·1 and x+0.
 */
export function foldConstants(graph: Graph): Graph {
  return rewrite(graph, (node, rewriter) => {
    const { scalar } = OPS[node.op];
    const isLiteral = node.result.type.shape.length === 0 && node.result.type.dtype === 'f32';
    if (scalar !== undefined && isLiteral && node.op !== 'const' && node.op !== 'cast') {
      const literals = node.inputs.map((v) => literalOf(rewriter, rewriter.map(v)));
      if (literals.every((literal) => literal !== undefined)) {
        const constants = literals.map((value): Scalar => ({ op: 'const', value }));
        const expression = scalar(nameOperands(OPS[node.op], constants, node.attributes), node.attributes);
        const value = evaluateScalar(expression, { row: 0, column: 0 });
        return Number.isNaN(value) ? undefined : rewriter.add('const', {}, { value }, node.result.name);
      }
    }
    switch (node.op) {
      case 'cast': {
        const x = rewriter.map(node.operands.x);
        return sameType(x.type, node.result.type) ? x : undefined;
      }
      case 'reshape': {
        const x = rewriter.map(node.operands.x);
        if (sameShape(x.type.shape, node.result.type.shape)) return x;
        const inner = rewriter.definition(x);
        if (inner?.op !== 'reshape') return undefined;
        const source = inner.operands.x;
        return sameType(source.type, node.result.type) ? source : rewriter.rebuild(node, { x: source });
      }
      case 'transpose': {
        const inner = rewriter.definition(rewriter.map(node.operands.x));
        if (inner?.op !== 'transpose') return undefined;
        const { order: before } = inner.attributes;
        return node.attributes.order.every((axis, i) => before[axis] === i) ? inner.operands.x : undefined;
      }
      case 'mul':
      case 'add': {
        const [a, b] = [rewriter.map(node.operands.a), rewriter.map(node.operands.b)];
        const neutral = node.op === 'mul' ? 1 : 0;
        return sameType(a.type, node.result.type) && literalOf(rewriter, b) === neutral ? a : undefined;
      }
      default:
        return undefined;
    }
  });
}

function literalOf(rewriter: Rewriter, v: Value): number | undefined {
  const node = rewriter.definition(v);
  return node?.op === 'const' ? node.attributes.value : undefined;
}
