import type { Node } from '../ir/graph/graph.js';
import type { Mask } from '../ir/kernel.js';

/** The mask of an attention node, whose operands are in `buffers`. */
export function lowerMask({ attributes }: Node, buffers: readonly string[]): Mask {
  const [first, position, key] = buffers as readonly [string, string, string];
  switch (attributes['mask']) {
    case 'column':
      return { kind: 'column', subtreeEnd: first };
    case 'path':
      return { kind: 'path', begin: first, position, key };
    default:
      return { kind: 'bias', buffer: first };
  }
}
