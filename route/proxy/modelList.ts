/** `/v1/models` of all replicas together. Adapters have the names that clients use, whichever revision is served. */
import { type AdapterBook, parseHeldName } from './adapterBook.js';
import type { Fleet } from './fleet.js';

type ModelEntry = Readonly<Record<string, unknown>> & { readonly id: string };

export function mergedModels(fleet: Fleet, book: AdapterBook, isServed: (name: string) => boolean): ModelEntry[] {
  const merged = new Map<string, ModelEntry>();
  for (const replica of fleet.replicas.values()) {
    if (replica.phase !== 'ready') continue;
    for (const { id, entry } of replica.models) {
      const name = parseHeldName(id)?.name;
      const own = name === undefined ? undefined : book.configOf(name);
      if (own === undefined && !merged.has(id)) merged.set(id, { ...entry, id });
      // Paths of replicas are nobody's business.
      if (own !== undefined && !merged.has(own.name))
        merged.set(own.name, { ...entry, id: own.name, root: own.name, parent: own.base });
    }
  }
  for (const name of book.names) {
    const own = book.configOf(name)!;
    if (merged.has(name) || !isServed(name)) continue;
    const base = merged.get(own.base);
    if (base !== undefined) merged.set(name, { ...base, id: name, root: name, parent: own.base });
  }
  return [...merged.values()];
}
