/** Row sums of an epilogue: a quad stores those of four blocks of columns together. */
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import type { Operand } from '../text/operands.js';
import type { SumSite } from '../text/fragment.js';
import { QUAD, type VectorContext } from './vectorAccess.js';

/** What stores of sums depend on. `sums`: buffers of row sums that quads store four blocks at a time. */
export interface SumContext extends Pick<VectorContext, 'segment' | 'operands' | 'isWhole'> {
  readonly sums: readonly Operand[];
}

/** 8-column groups per block of row sums. */
export const SUM_GROUPS = ROW_SUM_BLOCK / 8;

/**
 * A thread's share of a block of row sums, with blocks counted from the tile's first. When the fourth of four blocks is
 * complete, the quad stores them together.
 */
export function takeSum(
  { segment, operands, sums, isWhole }: SumContext,
  { operand, sum }: SumSite,
  block: string,
): string[] {
  const name = `s${sums.findIndex((each) => each.name === operand.name)}_`;
  const own = `column0 / ${ROW_SUM_BLOCK} + (${block}) - ${QUAD - 1} + quad`;
  const isInside = isWhole ? '' : ` && (${own}) * ${ROW_SUM_BLOCK} < ${segment.columns}`;
  return [
    `tw_sums_take(${name}, ${block}, ${sum}, quad);`,
    `if ((${block}) % ${QUAD} == ${QUAD - 1} && isStored${isInside}) ` +
      `(${operands.base(operand)})[(long long)row * ${operand.stride} + ${own}] = ${name}.whole;`,
  ];
}

/** Completes the last blocks of a row if they are fewer than four. */
export function lastSums({ segment, operands, sums, isWhole }: SumContext, groups: number): string[] {
  const blocks = groups / SUM_GROUPS;
  const over = blocks % QUAD;
  if (over === 0) return [];
  return sums.flatMap((operand, i) => {
    const own = `column0 / ${ROW_SUM_BLOCK} + ${blocks - over} + quad`;
    const isInside = isWhole ? '' : ` && (${own}) * ${ROW_SUM_BLOCK} < ${segment.columns}`;
    return [
      ...Array.from({ length: QUAD - over }, (_, j) => `tw_sums_take(s${i}_, ${over + j}, 0.0f, quad);`),
      `if (quad < ${over} && isStored${isInside}) ` +
        `(${operands.base(operand)})[(long long)row * ${operand.stride} + ${own}] = s${i}_.whole;`,
    ];
  });
}
