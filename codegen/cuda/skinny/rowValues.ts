/** Values of the rows of a tile that its epilogue reads from shared memory. */
import type { RowPrologue } from '../text/rowPrologue.js';
import { block, indent } from '../text/statements.js';

/** Rows whose values a warp computes at once: a single row would wait for memory. */
export const ROWS_AT_ONCE = 4;

/** A warp's share of the row values of a tile of `tm` rows that begins at row `first`, several rows at once. */
export function rowValuesText(
  prologue: RowPrologue,
  tm: number,
  warps: number,
  rowsAtOnce: number,
  first: string,
): string {
  const count = prologue.scalars.length;
  const each = Array.from({ length: rowsAtOnce }, (_, i) => (i === 0 ? 'local' : `local + ${i * warps}`));
  const texts = each.map(
    (local, i) =>
      indent(
        [
          `const int read${i} = ${first} + ${local} < rows ? ${first} + ${local} : rows - 1;`,
          `float fold${i}[${count}];`,
        ],
        4,
      ) + prologue.text(`read${i}`, `fold${i}`, 4),
  );
  const stores = each.flatMap((local, i) =>
    Array.from(
      { length: count },
      (_, j) => `if (${local} < ${tm}) values[(${local}) * ${count} + ${j}] = fold${i}[${j}];`,
    ),
  );
  return texts.join('') + indent(block('if (threadIdx.x % 32 == 0)', stores), 4);
}
