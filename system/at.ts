/** The element of a list at an index that the program knows to be there. Throws if it is not. */
export function at<T>(list: readonly T[], index: number): T {
  const found = list.at(index);
  if (found === undefined) throw new Error(`There is no element ${index} in a list of ${list.length}.`);
  return found;
}
