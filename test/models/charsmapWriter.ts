/**
 * Writes a Precompiled normalizer's table of characters with one block of 256 units for each node: simple and wasteful.
 */
interface Node {
  readonly children: Map<number, Node>;
  replacement?: number;
}

/** The parts of a table, for tests that damage one of them. */
export function charsmapParts(rules: Readonly<Record<string, string>>): { units: Uint32Array; replacements: Buffer } {
  const root: Node = { children: new Map() };
  const texts: Buffer[] = [];
  let bytes = 0;
  for (const [from, to] of Object.entries(rules)) {
    let node = root;
    for (const byte of Buffer.from(from)) {
      const next: Node = node.children.get(byte) ?? { children: new Map() };
      node.children.set(byte, next);
      node = next;
    }
    node.replacement = bytes;
    texts.push(Buffer.from(`${to}\0`));
    bytes += texts.at(-1)!.length;
  }
  const nodes: Node[] = [root];
  for (const node of nodes) nodes.push(...node.children.values());
  // A node's children are in its block, at the positions of their labels. Block 0 holds the unit of the root.
  const units = new Uint32Array((nodes.length + 1) * 256);
  const place = (node: Node, at: number, label: number): void => {
    const base = (nodes.indexOf(node) + 1) * 256;
    units[at] = ((((at ^ base) >>> 0) & ~255) << 2) | 0x200 | (node.replacement === undefined ? 0 : 0x100) | label;
    // The offset counts blocks of 256: the children lie at the low byte of `at` xor their label.
    const low = at & 255;
    if (node.replacement !== undefined) units[base ^ low] = (0x8000_0000 | node.replacement) >>> 0;
    for (const [byte, child] of node.children) place(child, base ^ low ^ byte, byte);
  };
  place(root, 0, 0);
  return { units, replacements: Buffer.concat(texts) };
}

export const printCharsmap = ({ units, replacements }: ReturnType<typeof charsmapParts>): string => {
  const table = Buffer.alloc(4 + units.length * 4 + replacements.length);
  table.writeUInt32LE(units.length * 4, 0);
  units.forEach((unit, i) => table.writeUInt32LE(unit, 4 + 4 * i));
  table.set(replacements, 4 + units.length * 4);
  return table.toString('base64');
};

export const charsmapOf = (rules: Readonly<Record<string, string>>): string => printCharsmap(charsmapParts(rules));
