/** Conjunctions of schemas, each in a table once: what shapes name their items and properties by. */
import type { JsonObject } from './document.js';
import { FALSE, type NodeId, TRUE } from './shapes.js';

/** What a conjunction consists of. */
export type Part =
  /** A schema of the document; `without` one keyword of it. */
  | { readonly kind: 'schema'; readonly schema: JsonObject; readonly without?: string }
  /** One JSON value. */
  | { readonly kind: 'value'; readonly value: unknown }
  | { readonly kind: 'not'; readonly of: NodeId }
  | { readonly kind: 'or'; readonly of: readonly NodeId[] }
  /** An object that has these properties; no other value. */
  | { readonly kind: 'has'; readonly names: readonly string[] }
  /** No object that has this property. */
  | { readonly kind: 'lacks'; readonly name: string }
  | { readonly kind: 'never' };

const NEVER = 0;

export class NodeTable {
  readonly #parts: Part[] = [{ kind: 'never' }];
  readonly #partIds = new Map<string, number>();
  readonly #schemaIds = new Map<object, number>();
  readonly #nodes: (readonly number[])[] = [[], [NEVER]];
  readonly #nodeIds = new Map<string, NodeId>([
    ['', TRUE],
    [String(NEVER), FALSE],
  ]);

  get size(): number {
    return this.#nodes.length;
  }

  partsOf(node: NodeId): readonly Part[] {
    return (this.#nodes[node] ?? []).flatMap((id) => this.#parts[id] ?? []);
  }

  of(part: Part): NodeId {
    return this.#node([this.#partId(part)]);
  }

  /** What fits all of them. The order is that of their properties. */
  and(...nodes: readonly NodeId[]): NodeId {
    const ids = new Set(nodes.flatMap((node) => this.#nodes[node] ?? []));
    return ids.has(NEVER) ? FALSE : this.#node([...ids]);
  }

  or(...nodes: readonly NodeId[]): NodeId {
    const some = [...new Set(nodes)].filter((node) => node !== FALSE);
    if (some.includes(TRUE)) return TRUE;
    const [only] = some;
    if (only === undefined) return FALSE;
    return some.length === 1 ? only : this.of({ kind: 'or', of: some });
  }

  not(node: NodeId): NodeId {
    if (node === TRUE) return FALSE;
    if (node === FALSE) return TRUE;
    const [part, ...others] = this.partsOf(node);
    return part?.kind === 'not' && others.length === 0 ? part.of : this.of({ kind: 'not', of: node });
  }

  #node(ids: readonly number[]): NodeId {
    const key = ids.join();
    let node = this.#nodeIds.get(key);
    if (node === undefined) this.#nodeIds.set(key, (node = this.#nodes.push(ids) - 1));
    return node;
  }

  #partId(part: Part): number {
    if (part.kind === 'schema' && part.without === undefined) {
      let id = this.#schemaIds.get(part.schema);
      if (id === undefined) this.#schemaIds.set(part.schema, (id = this.#parts.push(part) - 1));
      return id;
    }
    const key = this.#keyOf(part);
    let id = this.#partIds.get(key);
    if (id === undefined) this.#partIds.set(key, (id = this.#parts.push(part) - 1));
    return id;
  }

  #keyOf(part: Part): string {
    switch (part.kind) {
      case 'schema':
        return `-${this.#partId({ kind: 'schema', schema: part.schema })} ${part.without ?? ''}`;
      case 'value':
        return `=${JSON.stringify(part.value)}`;
      case 'not':
        return `!${part.of}`;
      case 'or':
        return `|${part.of.join()}`;
      case 'has':
        return `+${JSON.stringify(part.names)}`;
      case 'lacks':
        return `?${part.name}`;
      case 'never':
        return 'never';
      default:
        return part satisfies never;
    }
  }
}
