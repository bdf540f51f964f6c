/**
 * A row of an accumulator fragment of a tensor core (mma.sync, wgmma), as epilogues see it, and which segments and
 * tiles can have one.
 */
import { groupWidth } from '../../../ir/groupSums.js';
import type { Segment } from '../../../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import type { Access } from '../../../ir/scalar.js';
import type { Operand } from './operands.js';
import { leastCommonMultiple } from './operands.js';

/** A pair of values to be stored, for callers that stage results themselves. */
export interface StoreSite {
  readonly operand: Operand;
  /** C expressions (float; unsigned for a buffer of bytes) of the values at column and column + 1. */
  readonly values: readonly string[];
  /** The values belong to the second half of a rotated pair. */
  readonly isPartner: boolean;
  /** The index that selects the row, see Output. */
  readonly via: string | undefined;
}

/** A thread's part of the sum over a block of columns. */
export interface SumSite {
  readonly operand: Operand;
  /** C expression (float) of the sum of the thread's own values. */
  readonly sum: string;
  /** C expression (int, a constant once loops are unrolled) of the block's number in the fragment. */
  readonly block: string;
}

/**
 * One row of a thread's accumulator fragment: in each group of 8 physical columns, the values at columns 2·quad and
 * 2·quad + 1. All 32 lanes of a warp must run the printed code together.
 */
export interface Fragment {
  /** C expression (int) of a readable row: the thread's own, or any valid one if its own is past the end. */
  readonly row: string;
  /** C expression: whether the thread's own row is within the extent and is therefore stored. */
  readonly isStored: string;
  /** Prefix of the variables. Fragments printed into one block need different prefixes. */
  readonly prefix: string;
  /**
   * Number of 8-column groups: whole pairs (a multiple of 2·width / 8), and whole blocks of logical groups if there are
   * row sums.
   */
  readonly groups: number;
  /** C expression of an accumulator. `group` is a C expression that is constant once loops are unrolled. */
  readonly acc: (group: string, lane: number) => string;
  /** C expression (int): physical column of group 0 within the segment, a multiple of fragmentStep. */
  readonly column: string;
  /** `column` is a multiple of the width of a rotated head, plus a constant. */
  readonly holdsWholeHeads?: boolean;
  /** C expression (int): the thread's position in its quad, 0 to 3 (lane % 4). */
  readonly quad: string;
  /** The caller guarantees that all columns lie inside the segment, so no guards are needed. */
  readonly isWhole: boolean;
  /** From RowPrologue.given. It must contain every expensive row value, because the rows of a warp differ. */
  readonly given: ReadonlyMap<string, string>;
  /**
   * Buffers that the caller stores later: statements that keep the values of any row, stored or not. Undefined for an
   * immediate store to global memory.
   */
  readonly store?: (site: StoreSite) => readonly string[] | undefined;
  /** Guard the statements that keep values in the same way as stores. */
  readonly guardsKept?: boolean;
  /**
   * Row sums completed by the caller, who runs these statements for each block. Undefined for the sum over a quad,
   * stored by one lane.
   */
  readonly close?: (site: SumSite) => readonly string[];
  /**
   * Values that groups of columns share, if the caller has computed them, by printScalar of their program. `group` is a
   * C expression (int): one of the fragment's 8-column groups. Undefined for a fragment of whole groups.
   */
  readonly shared?: (group: string) => ReadonlyMap<string, string>;
  /**
   * Loads that the caller has already made, at logical column + lane of the group; see Site.loaded. `group` is a C
   * expression (int, constant once loops are unrolled): the fragment's 8-column group, of logical columns if
   * interleaved, otherwise of physical columns.
   */
  readonly loaded?: (buffer: string, access: Access, group: () => string, lane: number) => string | undefined;
}

/** The reason why a segment cannot have a fragment epilogue; undefined if it can. */
export function fragmentProblem({ columns, pairing, outputs }: Segment): string | undefined {
  if (columns % 2 !== 0) return 'an odd number of columns';
  if (pairing.kind !== 'none' && pairing.width % 8 !== 0)
    return `pairs of width ${pairing.width}, not of a multiple of 8`;
  if (pairing.kind === 'rotate' && outputs.some(({ kind }) => kind === 'rowSum'))
    return 'row sums over rotated columns';
  return undefined;
}

/** The same of all segments of a kernel, as a sentence. */
export function segmentsProblem(segments: readonly Segment[]): string | undefined {
  for (const segment of segments) {
    const problem = fragmentProblem(segment);
    if (problem !== undefined) return `tensor cores cannot end weight ${segment.weight}: ${problem}`;
  }
  return undefined;
}

/**
 * The number of physical columns of a fragment, and its first column, are multiples of this. A block of row sums lies
 * within one thread quad.
 */
export function fragmentStep({ pairing, outputs }: Segment): number {
  const isSummed = outputs.some(({ kind }) => kind === 'rowSum');
  if (pairing.kind === 'none') return isSummed ? ROW_SUM_BLOCK : 8;
  const step = 2 * pairing.width;
  return pairing.kind === 'interleave' && isSummed ? Math.max(step, 2 * ROW_SUM_BLOCK) : step;
}

/** The same for tiles, which also have whole groups of the columns that an epilogue sums. */
export const tileStep = (segment: Segment): number =>
  leastCommonMultiple(fragmentStep(segment), groupWidth(segment.outputs) ?? 1);
