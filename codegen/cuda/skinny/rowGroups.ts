/**
 * Values that groups of columns share, for epilogues on products in shared memory. A unit of eight rows is narrower
 * than a group; each adds up the whole group for itself, so that all warps end a tile together.
 */
import { groupWidth } from '../../../ir/groupSums.js';
import type { Segment } from '../../../ir/kernel.js';
import type { CudaOperands } from '../text/operands.js';
import { groupValues } from '../text/groupValues.js';
import type { Fragment } from '../text/fragment.js';
import { RowScope } from '../text/rowScope.js';
import { indent } from '../text/statements.js';

/** `column0`: C expression of the tile's first column, a multiple of the group's width. */
export function rowGroups(
  segment: Segment,
  operands: CudaOperands,
  fragment: Fragment,
  { column0, pitch, depth }: { readonly column0: string; readonly pitch: number; readonly depth: number },
): { readonly text: string; readonly fragment: Fragment } {
  const width = groupWidth(segment.outputs);
  if (width === undefined) return { text: '', fragment };
  const scope = new RowScope(operands, fragment.row, 'gr', fragment.given);
  const values = groupValues(segment, scope, {
    prefix: 'g',
    count: 1,
    column: `(${column0} + g0)`,
    acc: (group, lane) => `products[i * ${pitch} + g0 + 8 * (${group}) + 2 * quad + ${lane}]`,
    quad: fragment.quad,
    isWhole: fragment.isWhole,
  })!;
  return {
    text: indent([`const int g0 = j0 / ${width} * ${width};`, ...scope.lines, ...values.lines], depth),
    fragment: { ...fragment, shared: () => values.given('0') },
  };
}
