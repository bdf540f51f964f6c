/** Where the warps of a wgmma kernel say what they have stored of a row, and finish rows. */
import { CONSUMER_WARPS } from './instruction.js';
import type { WgmmaContext } from './options.js';

/**
 * - `storedRows`: after a consumer warp's epilogue of a tile, and `storedFinal`, of its share of the block's final tile
 * - `storedUnits`: after a deferred epilogue; the warp then finishes as many rows as blocks store, and a few more
 * - `finishConsumers`, `finishIdle`: after the last tile
 */
type FinishTexts = Readonly<
  Record<'storedRows' | 'storedFinal' | 'storedUnits' | 'finishConsumers' | 'finishIdle', string>
>;

const NONE: FinishTexts = { storedRows: '', storedFinal: '', storedUnits: '', finishConsumers: '', finishIdle: '' };

/** Rows that a warp finishes beyond its share, so that rows which wait become fewer. */
const MORE = 2;

export function finishTexts({ finish, kernel, options }: WgmmaContext): FinishTexts {
  if (finish === undefined || kernel.anchor !== 'gemm') return NONE;
  const { tm, tn, rowBlocks, epilogueWarps } = options;
  const stored = (share: string | number): string => `        tw_rows_stored(place.row0 / ${tm}, ${share});\n`;
  const share = Math.ceil((tm * tn) / kernel.segments[0]!.columns / epilogueWarps);
  const last = `    unsigned finishing = 0;\n${finish.rest(true)}`;
  return {
    storedRows: stored(rowBlocks * 16),
    storedFinal: stored(tm / CONSUMER_WARPS),
    storedUnits: stored('(units - unit0 + unitStep - 1) / unitStep * 8') + finish.some(share + MORE),
    finishConsumers: `    {\n${last}    }\n`,
    finishIdle: finish.rest(true),
  };
}
