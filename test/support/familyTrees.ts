/** Random trees for models of families. */
import { Dice } from './dice.js';

/** Trees of `count` tokens in depth-first order, and rows of them that are scored. */
export function randomTrees(
  seed: number,
  count: number,
  vocab: number,
): Readonly<Record<'tokens' | 'position' | 'subtreeEnd' | 'row' | 'target', readonly number[]>> {
  const dice = new Dice(seed);
  const position: number[] = [];
  for (let token = 0; token < count; token++) {
    const before = position.at(-1);
    // Mostly the next token of a path; else a branch of one of its tokens, or a new tree.
    position.push(before === undefined ? 0 : dice.chance(0.8) ? before + 1 : dice.whole(0, before));
  }
  const subtreeEnd = position.map((depth, token) => {
    const next = position.findIndex((other, at) => at > token && other <= depth);
    return next < 0 ? count : next;
  });
  const row = Array.from({ length: count }, (_, token) => token).filter(() => dice.chance(0.6));
  if (row.length === 0) row.push(count - 1);
  const token = (): number => dice.whole(0, vocab - 1);
  return { tokens: position.map(token), position, subtreeEnd, row, target: row.map(token) };
}
