/** Values that are no data of their own: reshapes of stored values, what widens them, and gathers of their rows. */
import type { Node, Value } from '../ir/graph/graph.js';
import { CompileError } from './compileError.js';
import type { FusedGraph } from './fuseGroups.js';
import { readsState } from './placedValues.js';
import { isWidening } from './widening.js';

/** A stored value as it is read: `via` lists the rows that a gather reads of it. */
export interface View {
  readonly base: Value;
  readonly via: Value | undefined;
}

/**
 * The stored value behind reshapes, widening casts and at most one gather of rows. Rows that are read of a state are
 * stored.
 */
export function viewOf(v: Value, defs: ReadonlyMap<Value, Node>, { versions }: Pick<FusedGraph, 'versions'>): View {
  const node = defs.get(v);
  if (node !== undefined && (node.op === 'reshape' || isWidening(node, defs)))
    return viewOf(node.operands.x, defs, { versions });
  if (node?.op === 'gather_rows' && !readsState(node, versions)) {
    const inner = viewOf(node.operands.x, defs, { versions });
    if (inner.via !== undefined) throw new CompileError(`%${v.name}: a gather of a gather is not supported`);
    return { base: inner.base, via: node.operands.index };
  }
  return { base: v, via: undefined };
}
