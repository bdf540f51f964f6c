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
  const { scalars, ofThread, text } = prologue;
  const local = (i: number): string => (i === 0 ? 'local' : `local + ${i * epilogueWarps}`);
  const valueText = (i: number, print: typeof text): string =>
    indent(
      [
        `const int own${i} = row0 + ${local(i)}, read${i} = own${i} < ${rows} ? own${i} : ${rows} - 1;`,
        `float fold${i}[${scalars.length}];`,
      ],
      5,
    ) + print(`read${i}`, `fold${i}`, 5);
  const stores = (i: number): string[] =>
    scalars.map((_, j) => `to[(${local(i)}) * ${scalars.length} + ${j}] = fold${i}[${j}];`);
  if (ofThread !== undefined) return valueText(0, ofThread) + indent(stores(0), 5);
  const each = Array.from({ length: rowsAtOnce }, (_, i) => i);
  const inTile = each.flatMap((i) => stores(i).map((store) => `if (${local(i)} < ${tm}) ${store}`));
  return each.map((i) => valueText(i, text)).join('') + indent(block('if (lane == 0)', inTile), 5);
}

/** The turns of those threads. */
export const rowTurns = ({
  prologue,
  options: { epilogueWarp, epilogueWarps, rowsAtOnceStep },
}: WgmmaContext): RowTurns =>
  prologue.ofThread === undefined
    ? { firstRow: epilogueWarp, rowStep: rowsAtOnceStep }
    : { firstRow: `32 * (${epilogueWarp}) + lane`, rowStep: 32 * epilogueWarps };
