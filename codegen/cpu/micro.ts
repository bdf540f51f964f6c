/** Register tiles: the innermost loops of contractions and of attention, printed once for each shape. */
import type { CpuGemmSchedule, CpuIsa } from '../../ir/plan.js';
import type { FormatIn, FORMATS } from '../../ir/storage.js';
import { DTYPE_BYTES } from '../../ir/types.js';
import type { BesideProducts } from './epilogues.js';
import { C_TYPES } from './operands.js';
import { render } from './templates.js';

/** A function that kernels call. Kernels that need the same function share it. */
export interface Helper {
  readonly name: string;
  readonly source: string;
}

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

/** What the compiler's builtin calls these caches. */
const LOCALITY: Readonly<Record<StreamAhead['cache'], number>> = { first: 3, second: 2 };

const guard = (name: string, text: string): string => `#ifndef TW_HAS_${name}\n#define TW_HAS_${name}\n${text}#endif\n`;

/** Tiles by name. The name determines the text, so the contractions of a model share most tiles. */
const printed = new Map<string, Helper>();

/** Offsets in bytes of the cache lines of the right operand that one iteration of the loop reads. */
function ownLines({ nr, panel, bk, bp, bDtype, unroll }: FmaTile): number[] {
  const bytes = DTYPE_BYTES[bDtype];
  const panels = Array.from({ length: Math.ceil(nr / panel) }, (_, i) => i * bp * bytes);
  return panels.flatMap((start) => Array.from({ length: (unroll * bk * bytes) / 64 }, (_, i) => start + i * 64));
}

/** c[mr][nr] (+)= a·b in order of k, by fused multiply-add in the vectors of `isa`. */
export function fmaTile(tile: FmaTile): Helper {
  const vectors = VECTOR_ISAS[tile.isa];
  const { mr, nr, rs, ks, panel, bk, bp, ldc } = tile;
  const isa = tile.isa === 'amx' ? 'avx512' : tile.isa;
  const { unroll, aheadA, aheadB, ahead } = tile;
  const name =
    `tw_${isa}_${mr}x${nr}_${tile.bDtype}_a${rs}_${ks}_b${bk}_${bp}_c${ldc}_u${unroll}` +
    (panel === 16 ? '' : `_n${panel}`) +
    (aheadB > 0 ? `_p${aheadA}_${aheadB}` : '') +
    (ahead === undefined ? '' : `_s${ahead.bytes}_${LOCALITY[ahead.cache]}`);
  const known = printed.get(name);
  if (known !== undefined) return known;
  const columns = Array.from({ length: nr / vectors.lanes }, (_, index) => {
    const column = index * vectors.lanes;
    return { index, offset: Math.floor(column / panel) * bp + (column % panel) };
  });
  const rows = Array.from({ length: mr }, (_, row) => ({
    index: row,
    offset: row * rs,
    cells: columns.map((_, column) => ({
      row,
      column,
      name: `c${row}_${column}`,
      offset: row * ldc + column * vectors.lanes,
    })),
  }));
  const source = render('microFma', {
    ...vectors,
    ...tile,
    name,
    bType: C_TYPES[tile.bDtype],
    rows,
    columns,
    cells: rows.flatMap((row) => row.cells),
    loadB: vectors.loadPanel[tile.bDtype],
    steps: Array.from({ length: unroll }, (_, step) => ({
      step,
      columns: columns.map(({ index, offset }) => ({ index, offset: offset + step * bk })),
      rows: rows.map((row) => ({ ...row, offset: row.offset + step * ks })),
    })),
    farLines: Array.from({ length: aheadA }, (_, i) => i),
    nearLines: Array.from({ length: aheadB }, (_, i) => i * 64),
    locality: ahead === undefined ? undefined : LOCALITY[ahead.cache],
    ownLines: ahead === undefined ? [] : ownLines(tile),
  });
  const helper = { name, source: guard(name, source) };
  printed.set(name, helper);
  return helper;
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

/**
 * c[mr][nr] (+)= a·b by TDPBF16PS. Tiles 0–3 accumulate, 4–5 hold rows of a, 6–7 columns of b. The loads of a step are
 * interleaved with its products. Columns stay in the first-level cache for the next rows, as far as they fit.
 */
export function amxTile({ bp, ...tile }: AmxTile): Helper {
  const { mr, nr, lda, ldc, lines } = tile;
  const name = `tw_amx_${mr}x${nr}_a${lda}_b${bp}_c${ldc}_p${lines}`;
  const types = { aType: 'uint16_t', bType: 'uint16_t', cType: 'float', dot: 'TW_TILE_DOT' };
  const steps = { strideA: lda * 2, nextB: bp, strideB: 64, depth: 32, advance: 512 };
  return tilesOf(name, tile, { ...types, ...steps });
}

/**
 * c[mr][32] (+)= a·b by TDPBSUD: rows' codes with signs, `pitch` bytes apart, by unsigned ones of a panel of quads, in
 * which the quads of 16 columns are half of a line. Sums are integers. mr: 16 or 32.
 */
export function amxBytes({ pitch, ...tile }: AmxBytes): Helper {
  const { mr, ldc, lines } = tile;
  const name = `tw_amx_bytes_${mr}_a${pitch}_c${ldc}_p${lines}`;
  const types = { aType: 'int8_t', bType: 'uint8_t', cType: 'int32_t', dot: 'TW_TILE_DOT_BYTES' };
  const steps = { strideA: pitch, nextB: 64, strideB: 128, depth: 64, advance: 2048 };
  return tilesOf(name, { ...tile, nr: 32, lda: pitch }, { ...types, ...steps });
}

type AmxBytes = Pick<AmxTile, 'mr' | 'ldc' | 'lines' | 'beside'> & { readonly pitch: number };

/** Elements along k of a step, and from its columns to those of the next; bytes between rows and lines. */
interface AmxSteps {
  readonly strideA: number;
  /** Elements from 16 columns to the next 16. */
  readonly nextB: number;
  readonly strideB: number;
  readonly depth: number;
  readonly advance: number;
  readonly [name: string]: number | string;
}

function tilesOf(shared: string, tile: Omit<AmxTile, 'bp'>, steps: AmxSteps): Helper {
  const { mr, nr, lda, ldc, lines, beside } = tile;
  const name = beside === undefined ? shared : `${beside.symbol}_tile`;
  const [mt, nt] = [mr / 16, nr / 16];
  const cells = Array.from({ length: mt * nt }, (_, i) => ({
    tile: i,
    offset: Math.floor(i / nt) * 16 * ldc + (i % nt) * 16,
  }));
  const loadA = (m: number): object => ({
    isLoad: true,
    kind: 'STREAM',
    tile: 4 + m,
    pointer: `a + ${m * 16 * lda}`,
    stride: steps.strideA,
  });
  const loadB = (n: number): object => ({
    isLoad: true,
    kind: 'LOAD',
    tile: 6 + n,
    pointer: `b + ${n * steps.nextB}`,
    stride: steps.strideB,
  });
  const dot = (m: number, n: number): object => ({ isLoad: false, tile: m * nt + n, a: 4 + m, b: 6 + n });
  const tiles = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
  const works = [...tiles(nt).map(loadB), ...tiles(mt).flatMap((m) => [loadA(m), ...tiles(nt).map((n) => dot(m, n))])];
  const fetches = tiles(lines).map((line) => ({ isFetch: true, offset: 64 * line }));
  const fetchedBefore = (i: number): number => Math.ceil((i * lines) / works.length);
  const order = works.flatMap((work, i) => [work, ...fetches.slice(fetchedBefore(i), fetchedBefore(i + 1))]);
  const rows = tiles(beside?.rowsOfStep ?? 0);
  const values = beside?.values ?? 0;
  const finishing = {
    finished: rows.map((row) => ({ row, values: row * values, sums: row * ldc })),
    step: { values: rows.length * values, sums: rows.length * ldc },
  };
  const multiplying = { finished: undefined, step: undefined };
  const source = render('microAmx', {
    name,
    mr,
    nr,
    mt,
    nt,
    cells,
    order,
    lines,
    ldc,
    ldcBytes: ldc * 4,
    values,
    loops: beside === undefined ? [multiplying] : [finishing, multiplying],
    finish: beside && `${beside.symbol}_finish`,
    buffers: tiles(beside?.buffers ?? 0),
    ...steps,
  });
  return { name, source: guard(name, source) };
}

// The table of vector intrinsics: what a register tile needs, for each instruction set.

/** Element types that panels hold. */
export type PanelElement = (typeof FORMATS)[FormatIn<'panels'>]['element'];

export interface VectorIsa {
  /** C type of a vector (several registers for `portable`). */
  readonly vector: string;
  readonly lanes: number;
  readonly zero: string;
  readonly load: string;
  readonly store: string;
  readonly broadcast: string;
  /** a·b + c */
  readonly fma: string;
  /** Loads a vector of f32 from elements of panels, widening narrower ones. */
  readonly loadPanel: Readonly<Record<PanelElement, string>>;
  /** Number of registers. Accumulators, columns and one broadcast must fit. */
  readonly registers: number;
}

const AVX512: VectorIsa = {
  vector: '__m512',
  lanes: 16,
  registers: 32,
  zero: '_mm512_setzero_ps()',
  load: '_mm512_loadu_ps',
  store: '_mm512_storeu_ps',
  broadcast: '_mm512_set1_ps',
  fma: '_mm512_fmadd_ps',
  loadPanel: { f32: '_mm512_loadu_ps', bf16: '(__m512)tw_load_bf16', f16: '(__m512)tw_load_f16' },
};

/** `amx` multiplies tiles of bf16, or of bytes; its vector arithmetic is AVX-512. */
export const VECTOR_ISAS: Readonly<Record<CpuIsa, VectorIsa>> = {
  portable: {
    vector: 'tw_v',
    lanes: 16,
    registers: 8,
    zero: 'tw_set1(0.0f)',
    load: 'tw_load',
    store: 'tw_store',
    broadcast: 'tw_set1',
    fma: 'tw_fma',
    loadPanel: { f32: 'tw_load', bf16: 'tw_load_bf16', f16: 'tw_load_f16' },
  },
  avx2: {
    vector: '__m256',
    lanes: 8,
    registers: 16,
    zero: '_mm256_setzero_ps()',
    load: '_mm256_loadu_ps',
    store: '_mm256_storeu_ps',
    broadcast: '_mm256_set1_ps',
    fma: '_mm256_fmadd_ps',
    loadPanel: { f32: '_mm256_loadu_ps', bf16: 'tw_load8_bf16', f16: 'tw_load8_f16' },
  },
  avx512: AVX512,
  amx: AVX512,
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
