/** Work that is done once for the same data. What the IR says never changes, so an object stands for what it says. */

interface Known<T> {
  next?: WeakMap<object, Known<T>>;
  found?: { readonly value: T };
}

/** `compute`, called once for the same arguments: the same objects. What it returned is forgotten when they are. */
export function oncePer<A extends readonly object[], T>(compute: (...of: A) => T): (...of: A) => T {
  const root: Known<T> = {};
  return (...of) => {
    let at = root;
    for (const each of of) {
      at.next ??= new WeakMap();
      let next = at.next.get(each);
      if (next === undefined) at.next.set(each, (next = {}));
      at = next;
    }
    at.found ??= { value: compute(...of) };
    return at.found.value;
  };
}
