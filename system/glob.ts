/** Names that match patterns with `*`, `?`, `[…]` and `**`, as fsspec and Python's fnmatch have them. */

/** A step of a pattern: a character, `?` or `[…]`, or a way on over any number of characters. */
type Step = { readonly one: (character: string) => boolean } | 'star' | 'globstar' | 'folders';

const MAX_PATTERN = 500;

function stepsOf(pattern: string): Step[] {
  const steps: Step[] = [];
  for (let i = 0; i < pattern.length;) {
    const set = /^\[(!?)([^\]/]+)\]/.exec(pattern.slice(i));
    if (pattern.startsWith('**/', i)) {
      steps.push('folders');
      i += 3;
    } else if (pattern.startsWith('**', i)) {
      steps.push('globstar');
      i += 2;
    } else if (set !== null) {
      const expression = new RegExp(`^[${set[1] === '' ? '' : '^'}${set[2]!.replace(/[\\^[]/g, '\\$&')}]$`, 's');
      steps.push({ one: (character) => expression.test(character) });
      i += set[0].length;
    } else {
      const mark = pattern.charAt(i++);
      steps.push(mark === '*' ? 'star' : { one: (c) => (mark === '?' ? c !== '/' : c === mark) });
    }
  }
  return steps;
}

/** Takes time in proportion to the steps times the length of the name, whatever the pattern is. */
function isMatch(steps: readonly Step[], name: string): boolean {
  let ends = new Set([0]);
  for (const step of steps) {
    const next = new Set<number>();
    for (const from of ends) {
      if (typeof step === 'object') {
        if (from < name.length && step.one(name.charAt(from))) next.add(from + 1);
        continue;
      }
      for (let at = from; at <= name.length && !next.has(at); at++) {
        if (step !== 'folders' || at === from || name.charAt(at - 1) === '/') next.add(at);
        if (step === 'star' && name.charAt(at) === '/') break;
      }
    }
    ends = next;
    if (ends.size === 0) return false;
  }
  return ends.has(name.length);
}

/**
 * Those of the files that match one of the patterns: `*` and `?` stay within a name, `**` does not. Hidden files match
 * only patterns that name them. Throws RangeError for a pattern that is too long.
 */
export function matching(patterns: readonly string[], files: readonly string[]): string[] {
  const found = new Set<string>();
  for (const pattern of patterns) {
    const plain = pattern.replace(/^\.\//, '');
    if (plain.length > MAX_PATTERN) throw new RangeError(`a pattern of ${plain.length} characters`);
    const steps = stepsOf(plain);
    const start = /^[^*?[]*/.exec(plain)?.[0] ?? '';
    for (const file of files)
      if (file.startsWith(start) && isMatch(steps, file) && (!isHidden(file) || isHidden(plain))) found.add(file);
  }
  return files.filter((file) => found.has(file));
}

/** Below a folder that starts with a dot or two underscores, or named so itself. */
export const isHidden = (file: string): boolean => /(?:^|\/)(?:\.|__)/.test(file);
