/** Values that are no data of their own: reshapes of stored values, what widens them, and gathers of their rows. */
import type { Node, Value } from '../ir/graph/graph.js';
import { CompileError } from './compileError.js';
import { readsState, type FusedGraph } from './fuseGroups.js';

/** A stored value as it is read: `via` lists the rows that a gather reads of it. */
export interface View {
  readonly base: Value;
  readonly via: Value | undefined;
}

/**
 * Whether `node` widens a value that was rounded to 16 bits. Readers widen what they load, so 16 bits are stored.
 * Values of other origin (tables) are no part of it: their own readers widen them.
 */
export function isWidening(node: Node, defs: ReadonlyMap<Value, Node>): boolean {
  const [from] = node.operands;
  return (
    node.op === 'cast' &&
    node.result.type.dtype === 'f32' &&
    (from?.type.dtype === 'bf16' || from?.type.dtype === 'f16') &&
    defs.get(from)?.op === 'cast'
  );
}

/**
 * The stored value behind reshapes, widening casts and at most one gather of rows. Rows that are read of a state are
 * stored.
 */
export function viewOf(v: Value, defs: ReadonlyMap<Value, Node>, { versions }: Pick<FusedGraph, 'versions'>): View {
  const node = defs.get(v);
  if (node !== undefined && (node.op === 'reshape' || isWidening(node, defs)))
    return viewOf(node.operands[0]!, defs, { versions });
  if (node?.op === 'gather_rows' && !readsState(node, versions)) {
    const inner = viewOf(node.operands[0]!, defs, { versions });
    if (inner.via !== undefined) throw new CompileError(`%${v.name}: a gather of a gather is not supported`);
    return { base: inner.base, via: node.operands[1]! };
  }
  return { base: v, via: undefined };
}
