/** Places that the program knows to be there. */

interface Indexed<T> {
  readonly length: number;
  readonly [index: number]: T;
}

/** The element at an index, counted from the end if it is negative. Throws if it is not there. */
export function at<T>(list: Indexed<T>, index: number): T {
  const found = list[index < 0 ? list.length + index : index];
  if (found === undefined) throw new Error(`There is no element ${index} in a list of ${list.length}.`);
  return found;
}

/** The elements of two lists in pairs. Throws if the lists are not equally long. */
export function zip<A, B>(a: Indexed<A> & Iterable<A>, b: Indexed<B>): [a: A, b: B][] {
  if (a.length !== b.length) throw new Error(`There are ${a.length} elements beside ${b.length}.`);
  return Array.from(a, (item, i) => [item, b[i] as B]);
}
