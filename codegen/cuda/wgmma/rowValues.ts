/** Values that depend on the row alone, computed by the producer's idle warps for the epilogues of a tile. */
import { block, indent } from '../text/statements.js';
import type { WgmmaContext } from './options.js';

/** How idle threads share out the rows of a tile: a C expression (int) of the first, the distance to the next. */
export interface RowTurns {
  readonly firstRow: string;
  readonly rowStep: number;
}

/**
 * A thread's share of the row values of a tile. A warp computes several rows at once, because a single row would wait
 * for memory. Where a row's values are made of single numbers, a thread has a row of its own.
 */
export function rowValueText({ prologue, options: { rows, tm, rowsAtOnce, epilogueWarps } }: WgmmaContext): string {
  const count = prologue.scalars.length;
  const text = prologue.ofThread ?? prologue.text;
  const each = Array.from({ length: prologue.ofThread === undefined ? rowsAtOnce : 1 }, (_, i) => i);
  const local = (i: number): string => (i === 0 ? 'local' : `local + ${i * epilogueWarps}`);
  const texts = each.map(
    (i) =>
      indent(
        [
          `const int own${i} = row0 + ${local(i)}, read${i} = own${i} < ${rows} ? own${i} : ${rows} - 1;`,
          `float fold${i}[${count}];`,
        ],
        5,
      ) + text(`read${i}`, `fold${i}`, 5),
  );
  // The first of the rows is in the tile; a warp's others may not be.
  const stores = each.flatMap((i) =>
    Array.from(
      { length: count },
      (_, j) =>
        `${i === 0 && prologue.ofThread !== undefined ? '' : `if (${local(i)} < ${tm}) `}` +
        `to[(${local(i)}) * ${count} + ${j}] = fold${i}[${j}];`,
    ),
  );
  return texts.join('') + indent(prologue.ofThread === undefined ? block('if (lane == 0)', stores) : stores, 5);
}

/** The turns of those threads. */
export const rowTurns = ({
  prologue,
  options: { epilogueWarp, epilogueWarps, rowsAtOnceStep },
}: WgmmaContext): RowTurns =>
  prologue.ofThread === undefined
    ? { firstRow: epilogueWarp, rowStep: rowsAtOnceStep }
    : { firstRow: `32 * (${epilogueWarp}) + lane`, rowStep: 32 * epilogueWarps };
