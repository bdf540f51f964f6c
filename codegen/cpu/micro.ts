/** Register tiles: the innermost loops of contractions and of attention, printed once for each shape. */
import type { CpuGemmSchedule, CpuIsa } from '../../ir/plan.js';
import type { FormatIn, FORMATS } from '../../ir/storage.js';
import type { BesideProducts } from './epilogues.js';
import { ELEMENT_TYPES } from './operands.js';
import { argumentsText, type ConfigFields, type Helper } from './unit.js';

export type { Helper } from './unit.js';

export interface FmaTile {
  readonly isa: CpuIsa;
  readonly mr: number;
  readonly nr: number;
  /** Elements from one row to the next, and from one k to the next, of the left operand. */
  readonly rs: number;
  readonly ks: number;
  /** Right operand: columns in a panel, elements from one k to the next, and from one panel to the next. */
  readonly panel: number;
  readonly bk: number;
  readonly bp: number;
  readonly ldc: number;
  readonly bDtype: PanelElement;
  /** Steps of k per iteration of the loop; divides 16. */
  readonly unroll: number;
  /**
   * Cache lines prefetched every 16 steps of k: from the left operand's next rows, and from the right operand's next
   * panel. Both 0: no such prefetching.
   */
  readonly aheadA: number;
  readonly aheadB: number;
  /** Prefetching of the right operand itself; undefined: there is none. */
  readonly ahead: StreamAhead | undefined;
}

/** A stream is fetched into a cache this many bytes before it is read. */
export interface StreamAhead {
  readonly bytes: number;
  readonly cache: 'first' | 'second';
}

const CACHES: Readonly<Record<StreamAhead['cache'], number>> = { first: 1, second: 2 };

const guard = (name: string, text: string): string => `#ifndef TW_HAS_${name}\n#define TW_HAS_${name}\n${text}#endif\n`;

/** c[mr][nr] (+)= a·b in order of k, by fused multiply-add in the vectors of `isa` (micro/fma.h). */
export function fmaTile(tile: FmaTile): Helper {
  const { mr, nr, rs, ks, panel, bk, bp, ldc, unroll, aheadA, aheadB, ahead } = tile;
  const isa = tile.isa === 'amx' ? 'avx512' : tile.isa;
  const name =
    `tw_${isa}_${mr}x${nr}_${tile.bDtype}_a${rs}_${ks}_b${bk}_${bp}_c${ldc}_u${unroll}` +
    (panel === 16 ? '' : `_n${panel}`) +
    (aheadB > 0 ? `_p${aheadA}_${aheadB}` : '') +
    (ahead === undefined ? '' : `_s${ahead.bytes}_${CACHES[ahead.cache]}`);
  const config = {
    rows: mr,
    columns: nr,
    rowStride: rs,
    kStride: ks,
    element: ELEMENT_TYPES[tile.bDtype],
    panel,
    panelK: bk,
    panelStride: bp,
    ldc,
    unroll,
    farLines: aheadA,
    nearLines: aheadB,
    bytesAhead: ahead?.bytes,
    cacheAhead: ahead && CACHES[ahead.cache],
  };
  const macro = aheadB > 0 ? 'TW_FETCHING_FMA_TILE' : 'TW_FMA_TILE';
  return { name, source: guard(name, `${macro}(${isa}, ${name},\n${argumentsText(config)})\n`) };
}

export interface AmxTile {
  /** 16 or 32 rows, 16 or 32 columns. */
  readonly mr: number;
  readonly nr: number;
  readonly lda: number;
  readonly bp: number;
  readonly ldc: number;
  /** Cache lines of the next panel that a step fetches (amxLines). */
  readonly lines: number;
  /** The epilogue that steps finish rows of another tile with (besideProducts.ts). */
  readonly beside?: BesideProducts | undefined;
}

/**
 * Cache lines that each step of a register tile fetches, so that all tiles of an item fetch one panel together. A step
 * of a panel has 32 lines. Tile loads leave room for few.
 */
export const amxLines = ({ mr, mb }: Pick<CpuGemmSchedule, 'mr' | 'mb'>): number =>
  Math.min(8, 2 ** Math.ceil(Math.log2(Math.max(1, (32 * mr) / mb))));

/** c[mr][32] (+)= a·b by TDPBF16PS (micro/amx.h). */
export function amxTile({ bp, ...tile }: AmxTile): Helper {
  const { mr, nr, lda, ldc, lines } = tile;
  const config = { rows: mr, aBytes: lda * 2, panelBytes: bp * 2, ldc, lines };
  return amxHelper(`tw_amx_${mr}x${nr}_a${lda}_b${bp}_c${ldc}_p${lines}`, tile, config);
}

/** c[mr][32] (+)= a·b by TDPBSUD: rows' codes with signs, `pitch` bytes apart. Sums are integers. */
export function amxBytes({ pitch, ...tile }: AmxBytes): Helper {
  const { mr, ldc, lines } = tile;
  const config = { element: 'TW_AMX_BYTES', rows: mr, aBytes: pitch, ldc, lines };
  return amxHelper(`tw_amx_bytes_${mr}_a${pitch}_c${ldc}_p${lines}`, tile, config);
}

type AmxBytes = Pick<AmxTile, 'mr' | 'ldc' | 'lines' | 'beside'> & { readonly pitch: number };

function amxHelper(name: string, { lines, beside }: Pick<AmxTile, 'lines' | 'beside'>, config: ConfigFields): Helper {
  if (beside === undefined) {
    const macro = lines > 0 ? 'TW_FETCHING_AMX_TILE' : 'TW_AMX_TILE';
    return { name, source: guard(name, `${macro}(${name},\n${argumentsText(config)})\n`) };
  }
  const { symbol, rowsOfStep, values, buffers } = beside;
  const source = `/* A register tile whose steps finish rows of the one before it. */
TW_TILE void ${symbol}_tile(
    const void *a, const void *b, void *c, int64_t steps, int first, const char *near, tw_due *due) {
  const AmxConfig config = {
${argumentsText(config, 2)},
  };
  const BesideConfig beside = {
${argumentsText({ rowsOfStep, values, buffers }, 2)},
  };
  tw_amx_beside(config, beside, ${symbol}_finish, a, b, c, steps, first, near, due);
}
`;
  return { name: `${symbol}_tile`, source };
}

// What instruction sets have of vectors.

/** Element types that panels hold. */
export type PanelElement = (typeof FORMATS)[FormatIn<'panels'>]['element'];

interface VectorIsa {
  readonly lanes: number;
  /** Number of registers. Accumulators, columns and one broadcast must fit. */
  readonly registers: number;
}

/**
 * `amx` multiplies tiles of bf16, or of bytes; its vector arithmetic is AVX-512. A vector is several registers of
 * `portable`.
 */
export const VECTOR_ISAS: Readonly<Record<CpuIsa, VectorIsa>> = {
  portable: { lanes: 16, registers: 8 },
  avx2: { lanes: 8, registers: 16 },
  avx512: { lanes: 16, registers: 32 },
  amx: { lanes: 16, registers: 32 },
};

/** Compiler flags needed for a translation unit with kernels of these instruction sets. */
export function compilerFlags(isas: readonly CpuIsa[]): string[] {
  const flags = [
    '-std=gnu11',
    '-O3',
    '-ffp-contract=off',
    '-fno-math-errno',
    '-fno-trapping-math',
    '-fno-semantic-interposition',
    '-Wno-psabi',
  ];
  const has = (isa: CpuIsa): boolean => isas.includes(isa);
  const is512 = has('avx512') || has('amx');
  if (has('avx2') || is512) flags.push('-mavx2', '-mfma', '-mf16c', '-mbmi2');
  if (is512) flags.push('-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mprefer-vector-width=512');
  if (has('amx')) flags.push('-mamx-tile', '-mamx-bf16', '-mamx-int8');
  return flags;
}
