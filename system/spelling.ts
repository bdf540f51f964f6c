/** The word that somebody most likely meant. */

const MAX_LETTERS = 100;

/** Edits (insert, delete, replace, swap neighbours) that lead from `a` to `b`. */
function distance(a: string, b: string): number {
  const rows = Array.from({ length: a.length + 1 }, (_, i) =>
    Array.from({ length: b.length + 1 }, (_unused, j) => (i === 0 ? j : j === 0 ? i : 0)),
  );
  for (let i = 1; i <= a.length; i++) {
    for (let j = 1; j <= b.length; j++) {
      const replaced = rows[i - 1]![j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      let best = Math.min(replaced, rows[i - 1]![j]! + 1, rows[i]![j - 1]! + 1);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, rows[i - 2]![j - 2]! + 1);
      rows[i]![j] = best;
    }
  }
  return rows[a.length]![b.length]!;
}

/** Edits by which a word may be missed. A difference in length takes as many. */
const maxEdits = (word: string): number => Math.max(1, Math.floor(word.length * 0.4));

/**
 * The known word that `given` most likely means, of equally near ones one that begins with it; undefined where all are
 * far off. Words of 100 letters at most.
 */
export function nearest(given: string, known: readonly string[]): string | undefined {
  if (given.length > MAX_LETTERS) return undefined;
  const wanted = given.toLowerCase();
  const begins = (word: string): boolean => word.toLowerCase().startsWith(wanted);
  const ranked = known
    .filter((word) => word.length <= MAX_LETTERS && Math.abs(word.length - given.length) <= maxEdits(word))
    .map((word) => ({ word, edits: distance(wanted, word.toLowerCase()) }))
    .sort((a, b) => a.edits - b.edits || Number(begins(b.word)) - Number(begins(a.word)));
  const [best] = ranked;
  return best !== undefined && best.edits <= maxEdits(best.word) ? best.word : undefined;
}
