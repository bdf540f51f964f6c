/** Work that is done once for the same data. Everything in the IR is immutable, so an object stands for what it says. */

/** `compute`, called once for the same arguments: the same objects. What it returned is forgotten when they are. */
export function oncePer<A extends readonly object[], T>(compute: (...of: A) => T): (...of: A) => T {
  interface Known {
    readonly next: WeakMap<object, Known>;
    found?: { readonly value: T };
  }
  const known = (): Known => ({ next: new WeakMap() });
  const root = known();
  return (...of) => {
    let at = root;
    for (const each of of) {
      const next = at.next.get(each) ?? known();
      at.next.set(each, next);
      at = next;
    }
    at.found ??= { value: compute(...of) };
    return at.found.value;
  };
}
