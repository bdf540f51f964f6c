/**
 * Pearson's χ² of counts against what is expected, as a number of standard deviations above its mean: below 3.5 in all
 * but about 1 of 1,000 cases. Where nothing is expected, nothing may be found: Infinity. Cells with fewer than 5
 * expected are counted together.
 */
export function chiSquare(found: readonly number[], expected: readonly number[]): number {
  const cells: { found: number; expected: number }[] = [];
  const rest = { found: 0, expected: 0 };
  for (const [i, wanted] of expected.entries()) {
    if (wanted === 0 && found[i]! > 0) return Infinity;
    if (wanted >= 5) cells.push({ found: found[i]!, expected: wanted });
    else {
      rest.found += found[i]!;
      rest.expected += wanted;
    }
  }
  if (rest.expected >= 1) cells.push(rest);
  const degrees = Math.max(1, cells.length - 1);
  const sum = cells.reduce((total, cell) => total + (cell.found - cell.expected) ** 2 / cell.expected, 0);
  return (sum - degrees) / Math.sqrt(2 * degrees);
}
