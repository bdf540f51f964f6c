/** Park–Miller: prompts that are the same in every batch, and have no common beginning. */
export function promptOf(index: number, length: number, vocabSize: number): number[] {
  let state = index + 1;
  return Array.from({ length }, () => (state = (state * 48271) % 2147483647) % vocabSize);
}
