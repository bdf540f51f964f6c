import { definitions, type Graph, rewrite, type Value } from '../ir/graph/graph.js';
import { checkpointTensor } from './lowerWeights.js';

/**
 * expert_linear(x, W) = expert_linear(x, microscaled(W)) where the matrices of all experts are stored in MXFP4, so that
 * kernels read them so. `microscaled`: such tensors by name. Values do not change, and they are exact in bf16.
 */
export function keepMicroscaledWeights(graph: Graph, microscaled: ReadonlySet<string> | undefined): Graph {
  if (microscaled === undefined || microscaled.size === 0) return graph;
  const defs = definitions(graph);
  const isStored = (v: Value): boolean => microscaled.has(checkpointTensor(defs, v)?.tensor.name ?? '');
  return rewrite(graph, (node, rewriter) => {
    if (node.op !== 'expert_linear') return undefined;
    const own = defs.get(node.operands.w);
    if (own?.op !== 'concat' || !own.operands.matrices.every(isStored)) return undefined;
    const name = `${node.result.name}_microscaled`;
    const keep = (v: Value): Value => {
      const matrix = rewriter.map(v);
      const values =
        matrix.type.dtype === 'f32' ? matrix : rewriter.add('cast', { x: matrix }, { dtype: 'f32' }, `${name}_values`);
      return rewriter.add('microscaled', { w: values }, {}, name);
    };
    const kept = rewriter.add('concat', { matrices: own.operands.matrices.map(keep) }, own.attributes, name);
    return rewriter.rebuild(node, { w: kept });
  });
}
