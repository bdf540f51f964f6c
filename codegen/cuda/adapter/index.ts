/** The first factor of adapters on a GPU. */
import {
  type ClusterSize,
  type CudaArch,
  type CudaLoopSchedule,
  SHRINK_ROWS,
  type ShrinkRows,
} from '../../../ir/cuda.js';
import type { KernelModule, ShrinkKernel } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { PACKED_COLUMNS } from '../../../ir/packing.js';
import { type CudaOperands, ELEMENT_TYPES, type EmittedCuda, emittedPlain, kernelHead } from '../text/operands.js';
import { aboutKernel, buffersText, type ConfigFields, unitText } from '../text/unit.js';
import { emitIdle } from '../text/idle.js';

/** A warp for each range of k. */
export const SHRINK_THREADS = 256;

/**
 * How a tile is shared out: its columns, the blocks that take its slots by turns, and the steps of k that are on the
 * way together, as registers hold them. Few rows are limited by the bytes of factors: many blocks have a part of them
 * each. Many rows are limited by their own bytes: a block has all columns of them, if these are not too many. The
 * higher tiles have a ring of stages in shared memory instead, and the highest are shared out by ranges of k, which the
 * blocks of a cluster have one each.
 */
const TILES: Readonly<
  Record<ShrinkRows, { readonly columns: number; readonly units: number; readonly batch: number }>
> = {
  8: { columns: 8, units: 8, batch: 8 },
  16: { columns: 16, units: 8, batch: 2 },
  32: { columns: 48, units: 4, batch: 1 },
  64: { columns: 96, units: 8, batch: 1 },
  128: { columns: 48, units: 1, batch: 1 },
};

/** Blocks whose registers share a multiprocessor: of the fewest rows one, whose operands are on the way together. */
const BLOCKS: Readonly<Record<ShrinkRows, number>> = { 8: 1, 16: 2, 32: 1, 64: 2, 128: 2 };

/** k from which on ranges have parts (SHRINK_DEEP of adapter/ranges.cuh), and columns of a tile then: sums of both. */
const [DEEP_K, DEEP_COLUMNS] = [8192, 64];

/** The same as of ShrinkParts (adapter/ranges.cuh): k of an instruction's step, and of the parts of a long range. */
const [STEP, PART] = [32, 512];

/** The most steps up to `most` whose operands are on the way together: whole batches are a part of a long range. */
export function shrinkBatch(k: number, most: number): number {
  const range = roundUp(Math.ceil(k / RANGES), STEP);
  const parts = k > DEEP_K ? Math.ceil(range / PART) : 1;
  const steps = (parts > 1 ? roundUp(Math.ceil(range / parts), 2 * STEP) : range) / STEP;
  for (let batch = Math.min(most, steps); batch > 1; batch--) if (parts === 1 || steps % batch === 0) return batch;
  return 1;
}

/** Rows of a tile whose operands come through a ring. */
const RING_ROWS = 64;
/** Bytes of a row of a stage, and of a ring: two blocks share a multiprocessor of Hopper. */
const [STAGE_ROW_BYTES, MOST_RING_BYTES] = [128, 104 << 10];
const ringBytes = (tileN: number): number => {
  const stage = (RING_ROWS + tileN) * STAGE_ROW_BYTES;
  return Math.floor(MOST_RING_BYTES / stage) * stage;
};

/** Rows of a cluster, and the ranges of k of its blocks. */
const [PANEL_ROWS, RANGES] = [128, 8] as const;
/** Most bytes of a block where two share a multiprocessor of Hopper, and where one has it. */
const [MOST_OF_TWO, MOST_OF_ONE] = [112 << 10, 227 << 10];
/** Bytes of a stage of a block's rings, and the fewest and most stages. */
const [PANEL_STAGE_BYTES, FEWEST_STAGES, MOST_STAGES] = [16 << 10, 3, 8];

/**
 * Columns of a cluster, and shared memory of its blocks: a range of the columns' factors, and the rings. Undefined if
 * not even the fewest columns fit.
 */
function panelOf(k: number, columns: number): { readonly tileN: number; readonly sharedBytes: number } | undefined {
  const pitch = roundUp(Math.ceil(Math.ceil(k / RANGES) / 32) * 32, 64) * 2;
  const bytesOf = (tileN: number, stages: number): number => tileN * pitch + stages * PANEL_STAGE_BYTES;
  const across = Math.ceil(columns / TILES[PANEL_ROWS].columns);
  for (let tileN = roundUp(Math.ceil(columns / across), 16); tileN > 0; tileN -= 16) {
    const most = tileN > 16 || bytesOf(tileN, FEWEST_STAGES) <= MOST_OF_TWO ? MOST_OF_TWO : MOST_OF_ONE;
    const stages = Math.min(MOST_STAGES, Math.floor((most - tileN * pitch) / PANEL_STAGE_BYTES));
    if (stages >= FEWEST_STAGES) return { tileN, sharedBytes: bytesOf(tileN, stages) };
  }
  return undefined;
}

/**
 * Most rows of a call for which a tile is the default where there are no clusters. With clusters, panels are better
 * than all others for more than 128 rows: 36 µs for a layer of 1,024 rows on an H200 instead of 65 to 75.
 */
const MOST_ROWS: readonly (readonly [ShrinkRows, number])[] = [
  [8, 256],
  [16, 1024],
  [RING_ROWS, Infinity],
];

/** Rows of a tile that are good for calls of so many. */
export function defaultShrinkRows(
  kernel: ShrinkKernel,
  module: KernelModule,
  arch: CudaArch,
  rows: number,
): ShrinkRows {
  if (rows > PANEL_ROWS && panelProblem(kernel, module, arch) === undefined) return PANEL_ROWS;
  return MOST_ROWS.find(([, most]) => rows <= most)![0];
}

function panelProblem({ a, k, parts, rank }: ShrinkKernel, module: KernelModule, arch: CudaArch): string | undefined {
  if (arch === 'sm_80') return `tiles of ${PANEL_ROWS} rows are clusters, which ${arch} does not have`;
  if (module.buffers.find(({ name }) => name === a)?.dtype === 'f32') return 'floats are not multiplied by mma';
  if (panelOf(k, parts * rank) !== undefined) return undefined;
  return `ranges of ${Math.ceil(k / RANGES)} of k do not fit in shared memory`;
}

/** The reason why a schedule cannot run a shrink kernel; undefined if it can. */
export function shrinkProblem(
  kernel: ShrinkKernel,
  module: KernelModule,
  { threads, rows }: CudaLoopSchedule,
  arch: CudaArch,
): string | undefined {
  if (threads !== SHRINK_THREADS) return `a shrink kernel has ${SHRINK_THREADS} threads, a warp for each range of k`;
  return rows === PANEL_ROWS ? panelProblem(kernel, module, arch) : undefined;
}

/** Fields of ShrinkConfig (adapter/shrink.cuh), in order. */
interface ShrinkConfig extends ConfigFields {
  readonly k: number;
  readonly rank: number;
  readonly columns: number;
  readonly aStride: number;
  readonly wStride: number;
  readonly outStride: number;
  readonly wRows: number;
  readonly tileM: number;
  readonly tileN: number;
  readonly units: number;
  readonly batch: number;
  readonly threads: number;
  readonly sharedBytes?: number;
}

export function emitShrink(
  kernel: ShrinkKernel,
  operands: CudaOperands,
  { threads, rows = SHRINK_ROWS[0], isIdle }: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  if (isIdle === true) return emitIdle(kernel, operands, threads, symbol);
  const { k, rank, parts } = kernel;
  const a = operands.get(kernel.a);
  const columns = parts * rank;
  const tile = TILES[rows];
  /** Tiles of equal widths: the fewest that hold all columns. */
  const across = Math.ceil(columns / (k > DEEP_K ? Math.min(tile.columns, DEEP_COLUMNS) : tile.columns));
  const isFloats = a.dtype === 'f32';
  const hasRing = rows === RING_ROWS && !isFloats;
  const panel = rows === PANEL_ROWS ? panelOf(k, columns) : undefined;
  const tileN = panel?.tileN ?? roundUp(Math.ceil(columns / across), hasRing ? 16 : 8);
  const sharedBytes = panel?.sharedBytes ?? (hasRing ? ringBytes(tileN) : 0);
  const config: ShrinkConfig = {
    k,
    rank,
    columns,
    aStride: a.stride,
    wStride: operands.weight(kernel.weight).stride,
    outStride: operands.get(kernel.out).stride,
    wRows: roundUp(columns, PACKED_COLUMNS),
    tileM: rows,
    tileN,
    units: tile.units,
    batch: shrinkBatch(k, tile.batch),
    threads,
    ...(sharedBytes > 0 ? { sharedBytes } : {}),
  };
  const buffers = buffersText(`ShrinkBuffers<${ELEMENT_TYPES[a.dtype]}>`, operands, {
    a: kernel.a,
    slots: kernel.slot,
    weight: kernel.weight,
    scale: kernel.scale,
    out: kernel.out,
  });
  const { extents } = operands;
  const [header, call] =
    panel !== undefined
      ? ['shrinkPanel', 'shrink_panel']
      : hasRing
        ? ['shrinkMany', 'shrink_many']
        : ['shrink', isFloats ? 'shrink_floats' : 'shrink'];
  const source = unitText({
    about: aboutKernel(kernel, isFloats ? 'on CUDA cores' : `by mma, tiles of ${rows} × ${tileN}`),
    includes: [`adapter/${header}.cuh`],
    config: { type: 'ShrinkConfig', fields: config },
    functors: [],
    head: kernelHead({
      symbol,
      extents,
      operands,
      tensorMaps: [],
      threads,
      blocks: sharedBytes > MOST_OF_TWO ? 1 : BLOCKS[rows],
    }),
    body: `  ${call}<config>(${kernel.rows}, ${buffers});`,
  });
  const cluster: ClusterSize = panel === undefined ? 1 : RANGES;
  const times = cluster * tile.units * Math.ceil(columns / tileN);
  const grid = isFloats ? { per: 1, times: 1 } : { per: rows, times };
  const plain = emittedPlain(source, threads, { kind: 'tiles', extent: kernel.rows, ...grid }, { sharedBytes });
  return { ...plain, launch: { ...plain.launch, cluster } };
}
