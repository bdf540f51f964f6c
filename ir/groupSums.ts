/**
 * Sums over groups of columns that an epilogue takes of its own product (`groupSum`, ir/scalar.ts): the norm of a head,
 * where the head lies in one tile.
 */
import { isRowInvariant } from './rowInvariant.js';
import { ROW_SUM_BLOCK, type Output } from './kernel.js';
import { operands, printScalar, type Scalar } from './scalar.js';
import type { Dim } from './types.js';

/** Widest group that an epilogue sums: a tile of every skeleton can hold one. */
const MOST_GROUP_COLUMNS = 256;

export type GroupSum = Extract<Scalar, { op: 'groupSum' }>;

/** Why groups of `width` columns cannot be summed in an epilogue of `columns` columns; undefined if they can. */
export function groupProblem(width: number, columns: Dim): string | undefined {
  if (!Number.isInteger(width) || width < 1 || width > MOST_GROUP_COLUMNS || width % ROW_SUM_BLOCK !== 0)
    return `groups have a multiple of ${ROW_SUM_BLOCK} columns, at most ${MOST_GROUP_COLUMNS}, not ${width}`;
  return typeof columns === 'string' || columns % width !== 0
    ? `${columns} columns are not whole groups of ${width}`
    : undefined;
}

/** Whether the value at a column needs values at other columns. */
export const readsAcross = (s: Scalar): boolean =>
  s.op === 'groupSum' || s.op === 'rotateHalf' || operands(s).some(readsAcross);

/** Visits every distinct sub-program of `outputs`, from the whole to its leaves, until `visit` returns true. */
function search(outputs: readonly Output[], visit: (s: Scalar) => boolean): void {
  const seen = new Set<string>();
  const descend = (s: Scalar): void => {
    const key = printScalar(s);
    if (seen.has(key)) return;
    seen.add(key);
    if (!visit(s)) operands(s).forEach(descend);
  };
  for (const { value } of outputs) descend(value);
}

/** The sums over groups that programs need, each once. */
export function groupSumsOf(outputs: readonly Output[]): readonly GroupSum[] {
  const found: GroupSum[] = [];
  search(outputs, (s) => s.op === 'groupSum' && found.push(s) > 0);
  return found;
}

/** Columns of the groups that an epilogue sums, which the verifier makes sure are alike; undefined if it sums none. */
export const groupWidth = (outputs: readonly Output[]): number | undefined => groupSumsOf(outputs)[0]?.width;

/**
 * The largest sub-programs that depend on sums over groups and on the row alone (1/rms of a head), each once. A
 * skeleton computes them once a group.
 */
export function groupValuesOf(outputs: readonly Output[]): readonly Scalar[] {
  const found: Scalar[] = [];
  search(outputs, (s) => isOfGroup(s) && dependsOnSum(s) && found.push(s) > 0);
  return found;
}

const dependsOnSum = (s: Scalar): boolean => s.op === 'groupSum' || operands(s).some(dependsOnSum);

/** Whether the value is the same in all columns of a group. */
const isOfGroup = (s: Scalar): boolean => isRowInvariant(s, (each) => each.op === 'groupSum');
