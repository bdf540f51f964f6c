/** Values of 16 bits that readers widen. */
import type { Node, NodeOf, Value } from '../ir/graph/graph.js';

/**
 * Whether `node` widens a value that was rounded to 16 bits. Readers widen what they load, so 16 bits are stored.
 * Values of other origin (tables) are no part of it: their own readers widen them.
 */
export function isWidening(node: Node, defs: ReadonlyMap<Value, Node>): node is NodeOf<'cast'> {
  if (node.op !== 'cast' || node.result.type.dtype !== 'f32') return false;
  const { x } = node.operands;
  return (x.type.dtype === 'bf16' || x.type.dtype === 'f16') && defs.get(x)?.op === 'cast';
}
