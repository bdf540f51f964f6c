/** Values that depend on the row alone, computed by the producer's idle warps for the epilogues of a tile. */
import { block, indent } from '../text/statements.js';
import type { WgmmaContext } from './options.js';

/** A warp's share of the row values of a tile: several rows at once, because a single row would wait for memory. */
export function rowValueText({ prologue, options: { rows, tm, rowsAtOnce, epilogueWarps } }: WgmmaContext): string {
  const count = prologue.scalars.length;
  const each = Array.from({ length: rowsAtOnce }, (_, i) => i);
  const local = (i: number): string => (i === 0 ? 'local' : `local + ${i * epilogueWarps}`);
  const texts = each.map(
    (i) =>
      indent(
        [
          `const int own${i} = row0 + ${local(i)}, read${i} = own${i} < ${rows} ? own${i} : ${rows} - 1;`,
          `float fold${i}[${count}];`,
        ],
        5,
      ) + prologue.text(`read${i}`, `fold${i}`, 5),
  );
  const stores = each.flatMap((i) =>
    Array.from(
      { length: count },
      (_, j) => `if (${local(i)} < ${tm}) to[(${local(i)}) * ${count} + ${j}] = fold${i}[${j}];`,
    ),
  );
  return texts.join('') + indent(block('if (lane == 0)', stores), 5);
}
