/**
 * The order in which kernels keep the elements of rotated heads. Rotary embedding turns pairs of elements that are half
 * a head apart. Some models pair neighbours, and some turn only the first elements of a head. Scores q·k do not depend
 * on the order of elements, as long as queries and keys have one; so the rows of their matrices are read in an order
 * that brings the two elements of every pair half a head apart. Pairs that no model turns have a frequency of 0.
 */

export interface RotaryOrder {
  /** Elements of a head; even. */
  readonly headDim: number;
  /** How many of them, from the first on, are turned; even, at most headDim. */
  readonly rotated: number;
  /** Whether neighbours are pairs. Otherwise the two elements of a pair are rotated / 2 apart. */
  readonly interleaved: boolean;
}

/** Why these numbers are no order for `rows` rows; undefined if they are one. */
export function orderProblem({ headDim, rotated }: RotaryOrder, rows: number): string | undefined {
  const isEven = (n: number): boolean => Number.isInteger(n) && n > 0 && n % 2 === 0;
  if (!isEven(headDim) || !isEven(rotated) || rotated > headDim)
    return `heads of ${headDim} elements of which ${rotated} are turned: both are even, and the second is no more`;
  return rows % headDim === 0 ? undefined : `${rows} rows are not whole heads of ${headDim}`;
}

/** The row of the stored matrix that is row `row` in this order. */
export function storedRow({ headDim, rotated, interleaved }: RotaryOrder, row: number): number {
  const half = headDim / 2;
  const at = row % headDim;
  const [pair, second] = [at % half, at < half ? 0 : 1];
  const turned = rotated / 2;
  if (pair >= turned) return row - at + rotated + second * (half - turned) + pair - turned;
  return row - at + (interleaved ? 2 * pair + second : pair + second * turned);
}
