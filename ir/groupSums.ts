/**
 * Sums over groups of columns that an epilogue takes of its own product (`groupSum`, ir/scalar.ts): the norm of a head,
 * where the head lies in one tile.
 */
import { type Output, ROW_SUM_BLOCK } from './kernel.js';
import { oncePer } from './oncePer.js';
import { isRowInvariant, operands, type Scalar } from './scalar.js';
import { ScalarKeys } from './scalarKeys.js';
import type { Dim } from './types.js';

/** Widest group that an epilogue sums: a tile of every skeleton can hold one. */
const MAX_GROUP_COLUMNS = 256;

export type GroupSum = Extract<Scalar, { op: 'groupSum' }>;

/** Why groups of `width` columns cannot be summed in an epilogue of `columns` columns; undefined if they can. */
export function groupProblem(width: number, columns: Dim): string | undefined {
  if (!Number.isInteger(width) || width < 1 || width > MAX_GROUP_COLUMNS || width % ROW_SUM_BLOCK !== 0)
    return `groups have a multiple of ${ROW_SUM_BLOCK} columns, at most ${MAX_GROUP_COLUMNS}, not ${width}`;
  return typeof columns === 'string' || columns % width !== 0
    ? `${columns} columns are not whole groups of ${width}`
    : undefined;
}

/** Whether the value at a column needs values at other columns. */
export const readsAcross = (s: Scalar): boolean =>
  s.op === 'groupSum' || s.op === 'rotateHalf' || operands(s).some(readsAcross);

/** What the programs of an epilogue need of groups of columns. */
interface GroupFacts {
  /** The sums over groups that programs need, each once. */
  readonly sums: readonly GroupSum[];
  /**
   * The largest sub-programs that depend on sums over groups and on the row alone (1/rms of a head), each once. A
   * skeleton computes them once a group.
   */
  readonly values: readonly Scalar[];
}

/** Found once for an epilogue, because every schedule that a kernel could have asks for its groups. */
const factsOf = oncePer((outputs: readonly Output[]): GroupFacts => {
  if (!outputs.some(({ value }) => hasSum(value))) return { sums: [], values: [] };
  const keys = new ScalarKeys();
  const summing = new Map<number, boolean>();
  /** Whether sums over groups are among what the value is computed from. */
  const dependsOnSum = (s: Scalar): boolean => {
    const key = keys.of(s);
    const known = summing.get(key) ?? (s.op === 'groupSum' || operands(s).some(dependsOnSum));
    summing.set(key, known);
    return known;
  };
  const sums: GroupSum[] = [];
  const values: Scalar[] = [];
  keys.search(outputs, (s) => s.op === 'groupSum' && sums.push(s) > 0);
  keys.search(outputs, (s) => dependsOnSum(s) && isOfGroup(s) && values.push(s) > 0);
  return { sums, values };
});

const hasSum = (s: Scalar): boolean => s.op === 'groupSum' || operands(s).some(hasSum);

/** Whether the value is the same in all columns of a group. */
const isOfGroup = (s: Scalar): boolean => isRowInvariant(s, (each) => each.op === 'groupSum');

/** See GroupFacts. */
export const groupSumsOf = (outputs: readonly Output[]): readonly GroupSum[] => factsOf(outputs).sums;
export const groupValuesOf = (outputs: readonly Output[]): readonly Scalar[] => factsOf(outputs).values;

/** Columns of the groups that an epilogue sums, which the verifier makes sure are alike; undefined if it sums none. */
export const groupWidth = (outputs: readonly Output[]): number | undefined => factsOf(outputs).sums[0]?.width;
