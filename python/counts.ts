/** Multisets, as collections.Counter: what measures of likeness between texts count. */

export function counted(items: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);
  return counts;
}

/** Runs of n tokens, as texts. */
export const grams = (tokens: readonly string[], n: number): string[] =>
  Array.from({ length: Math.max(0, tokens.length - n + 1) }, (_, i) => tokens.slice(i, i + n).join(' '));

/** How many items both have, counted as often as the rarer one. */
export function common(left: ReadonlyMap<string, number>, right: ReadonlyMap<string, number>): number {
  let sum = 0;
  for (const [item, count] of left) sum += Math.min(count, right.get(item) ?? 0);
  return sum;
}
