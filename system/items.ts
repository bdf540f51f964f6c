/** Places that must be there. */

interface Indexed<T> {
  readonly length: number;
  readonly [place: number]: T;
}

/** The item at `place`, counted from the end where it is negative. Throws where there is none. */
export function elementAt<T>(list: Indexed<T>, place: number): T {
  const index = place < 0 ? list.length + place : place;
  if (index < 0 || index >= list.length) throw new Error(`no item ${place} of ${list.length}`);
  return list[index] as T;
}

/** The items of two lists in pairs. Throws where the lists are not equally long. */
export function zip<A, B>(a: Indexed<A> & Iterable<A>, b: Indexed<B>): [a: A, b: B][] {
  if (a.length !== b.length) throw new Error(`${a.length} items beside ${b.length}`);
  return Array.from(a, (item, i) => [item, b[i] as B]);
}
