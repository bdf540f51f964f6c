/** Names for people: no more of a path than tells it apart from the others on a page. */

const SEPARATORS = /[\\/]+/;
const partsOf = (path: string): readonly string[] =>
  path.split(SEPARATORS).filter((part) => part !== '' && part !== '.');

/** The last parts of each path: one, and more only where another path ends alike. Equal paths have equal names. */
export function shortNames(paths: readonly string[]): readonly string[] {
  const all = paths.map(partsOf);
  const tail = (parts: readonly string[], length: number): string => parts.slice(-length).join('/');
  return all.map((parts, i) => {
    const whole = parts.join('/');
    const others = all.filter((other, j) => j !== i && other.join('/') !== whole);
    let length = 1;
    while (length < parts.length && others.some((other) => tail(other, length) === tail(parts, length))) length++;
    return tail(parts, length) || paths[i]!;
  });
}

/** A text in which paths of files stand by their short names. */
export function withShortNames(text: string, paths: readonly string[]): string {
  const names = shortNames(paths);
  // A path that another one begins with is replaced after it.
  const order = paths.map((_, i) => i).sort((a, b) => paths[b]!.length - paths[a]!.length);
  return order.reduce((said, i) => (paths[i] === '' ? said : said.replaceAll(paths[i]!, () => names[i]!)), text);
}
