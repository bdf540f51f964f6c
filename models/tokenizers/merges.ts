/** Merges of a byte-pair encoding that has a rank for each piece and no list of merges. */

/** Twice those of the largest published vocabularies. */
const MAX_MERGES = 1 << 20;
/** Characters that are compared to find them: 50 times those of the largest published vocabularies. */
const MAX_COMPARED = 1 << 30;

/**
 * Every way to form a piece from two others, in the order of `ranked`, best first; within a piece by left id, then
 * right id. Splits fall between UTF-16 units; no vocabulary contains half of a surrogate pair. Fails if there are too
 * many.
 *
 * To merge by this list is to merge by rank. When the pair of the best rank is merged, the leftmost of equals, a piece
 * comes to be in one way only: nothing has crossed its ends until then, so all happened that happens to its text alone.
 * Pairs of other splits never stand side by side.
 */
export function findMerges(
  ranked: Iterable<string>,
  ids: ReadonlyMap<string, number>,
  fail: (what: string) => never,
): [left: string, right: string][] {
  const merges: [string, string][] = [];
  let compared = 0;
  for (const piece of ranked) {
    if ((compared += piece.length ** 2) > MAX_COMPARED) fail('its pieces are too long to be searched for merges');
    const splits: { left: number; right: number; pair: [string, string] }[] = [];
    for (let at = 1; at < piece.length; at++) {
      const leftText = piece.slice(0, at);
      const left = ids.get(leftText);
      if (left === undefined) continue;
      const rightText = piece.slice(at);
      const right = ids.get(rightText);
      if (right !== undefined) splits.push({ left, right, pair: [leftText, rightText] });
    }
    splits.sort((a, b) => a.left - b.left || a.right - b.right);
    for (const { pair } of splits) merges.push(pair);
    if (merges.length > MAX_MERGES) fail(`more than ${MAX_MERGES} merges`);
  }
  return merges;
}
