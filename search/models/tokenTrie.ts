/** Lists of tokens, of which each different beginning is kept once. */

interface Node {
  /** Tokens on the way to it, from its parent on. */
  tokens: Int32Array;
  children: Map<number, Node>;
}

export class TokenTrie {
  /** Tokens that are kept. */
  size = 0;
  private readonly root: Node = { tokens: new Int32Array(0), children: new Map() };

  /** The first `length` of `tokens`. */
  add(tokens: readonly number[], length: number): void {
    let node = this.root;
    let at = 0;
    while (at < length) {
      const child = node.children.get(tokens[at]!);
      if (child === undefined) {
        const rest = Int32Array.from({ length: length - at }, (_, i) => tokens[at + i]!);
        node.children.set(rest[0]!, { tokens: rest, children: new Map() });
        this.size += rest.length;
        return;
      }
      let same = 0;
      const most = Math.min(child.tokens.length, length - at);
      while (same < most && child.tokens[same] === tokens[at + same]) same++;
      at += same;
      // It ends within the child, or goes on with what the child has not: the child is parted there.
      if (same < child.tokens.length) {
        const lower: Node = { tokens: child.tokens.subarray(same), children: child.children };
        child.tokens = child.tokens.subarray(0, same);
        child.children = new Map([[lower.tokens[0]!, lower]]);
      }
      node = child;
    }
  }
}
