/** Names of kernels and buffers: the model path, reduced to [a-z][a-z0-9_]*. */
import type { Group } from './groups.js';

/** Returns each name once; repeated names get a suffix. */
export class Names {
  private readonly taken = new Set<string>();
  /** The suffix from which on names of a base may be free. */
  private readonly tried = new Map<string, number>();

  /** Keeps `name` for whoever asks for it by other means. */
  reserve(name: string): void {
    this.taken.add(name);
  }

  unique(hint: string): string {
    const cleaned = hint
      .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, '_')
      .replace(/^_+|_+$/g, '');
    const base = /^[a-z]/.test(cleaned) ? cleaned : `v_${cleaned}`;
    for (let i = this.tried.get(base) ?? 0; ; i++) {
      const name = i === 0 ? base : `${base}_${i}`;
      if (this.taken.has(name)) continue;
      this.taken.add(name);
      this.tried.set(base, i + 1);
      return name;
    }
  }
}

/** `layers.0.attention.qkv` for contractions at …q, …k and …v; attention itself is `….attention.mix`. */
export function groupPath(group: Group): string {
  const nodes = group.anchors.length > 0 ? group.anchors : group.members;
  const paths = [...new Set(nodes.map((n) => n.path))];
  // A loop is named for where it begins: its last ops may belong to the scopes around it, or to the next layer.
  if (group.anchors.length === 0) return paths.find((p) => paths.every((q) => !q.startsWith(`${p}.`))) ?? paths[0]!;
  if (group.kind === 'attention') return `${paths[0]!}.mix`;
  if (group.kind === 'logprob' || paths.length === 1) return paths[0]!;
  const split = paths.map((p) => p.split('.'));
  let common = 0;
  while (split.every((s) => s.length > common + 1 && s[common] === split[0]![common])) common++;
  const tails = split.map((s) => s.slice(common).join('_'));
  const tail = tails.join(tails.every((t) => t.length === 1) ? '' : '_');
  return [...split[0]!.slice(0, common), tail].join('.');
}
