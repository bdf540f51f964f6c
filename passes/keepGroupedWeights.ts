import { type Graph, loadTimeValues, rewrite, type Value } from '../ir/graph/graph.js';
import type { GroupSize } from '../ir/groups.js';
import { Matcher } from './match.js';

/** The group in which the matrix of a tensor is stored; undefined if it is to be read as floats. */
export type GroupsOf = (tensor: string) => GroupSize | undefined;

/**
 * linear(x, W) = linear(x, grouped(W)) for matrices that are stored in 4 bits with scales for groups of columns,
 * so that kernels read them so. `groupsOf` says which.
 */
export function keepGroupedWeights(graph: Graph, groupsOf: GroupsOf | undefined): Graph {
  if (groupsOf === undefined) return graph;
  const m = new Matcher(graph);
  const loaded = loadTimeValues(graph);
  const tensor = (v: Value): Value => m.through(v, 'cast') ?? v;
  return rewrite(graph, (node, rewriter) => {
    if (node.op !== 'linear') return undefined;
    const { x, w: matrix } = node.operands;
    if (x.type.shape.length !== 2 || !loaded.has(matrix)) return undefined;
    const stored = tensor(matrix);
    const group = stored.kind === 'weight' ? groupsOf(stored.name) : undefined;
    if (group === undefined) return undefined;
    const { name } = node.result;
    const own = rewriter.map(matrix);
    const values =
      own.type.dtype === 'f32' ? own : rewriter.add('cast', { x: own }, { dtype: 'f32' }, `${name}_matrix`);
    const kept = rewriter.add('grouped', { w: values }, { group }, `${name}_grouped`);
    return rewriter.rebuild(node, { w: kept });
  });
}
