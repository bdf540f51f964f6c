/** Names for people: no more of a path than tells it apart from the others on a page. */

const SEPARATORS = /[\\/]+/;
const partsOf = (path: string): readonly string[] =>
  path.split(SEPARATORS).filter((part) => part !== '' && part !== '.');
const tail = (parts: readonly string[], length: number): string => parts.slice(-length).join('/');

/** The last parts of each path: one, and more only where another path ends alike. Equal paths have equal names. */
export function shortNames(paths: readonly string[]): readonly string[] {
  const all = paths.map(partsOf);
  /** By the end of a path: the whole of it, or undefined where several end so. */
  const wholes = new Map<string, string | undefined>();
  for (const parts of all) {
    const whole = parts.join('/');
    for (let length = 1; length <= parts.length; length++) {
      const end = tail(parts, length);
      wholes.set(end, wholes.has(end) && wholes.get(end) !== whole ? undefined : whole);
    }
  }
  return all.map((parts, i) => {
    let length = 1;
    while (length < parts.length && wholes.get(tail(parts, length)) === undefined) length++;
    return tail(parts, length) || paths[i]!;
  });
}

/** Writes texts so that paths of files stand in them by their short names. */
export function shortNamer(paths: readonly string[]): (text: string) => string {
  const names = new Map(shortNames(paths).map((name, i) => [paths[i]!, name]));
  // A path that another one begins with is replaced after it.
  const order = [...names].filter(([path]) => path !== '').sort(([a], [b]) => b.length - a.length);
  return (text) => order.reduce((said, [path, name]) => said.replaceAll(path, () => name), text);
}
