/**
 * Bounds of consistent hashing with bounded loads: with m items, one more among them, and n nodes, a node takes at most
 * ⌈(1 + ε) · m / n⌉. Nodes of different size have parts of m by their weights. Some node is always below its bound,
 * since the bounds add up to more than the m − 1 items that are there. Source: Mirrokni, Thorup, Zadimoghaddam,
 * "Consistent Hashing with Bounded Loads" (arXiv 1608.01350).
 */

/** `items`: those that are placed, the new one among them. `part`: the node's weight over that of all, 1/n if equal. */
export const boundOf = (epsilon: number, items: number, part: number): number =>
  Math.ceil((1 + epsilon) * items * part - 1e-9);
