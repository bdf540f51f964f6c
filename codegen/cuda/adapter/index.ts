/** The first factor of adapters on a GPU. */
import { type CudaLoopSchedule, SHRINK_ROWS, type ShrinkRows } from '../../../ir/cuda.js';
import type { ShrinkKernel } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { PACKED_COLUMNS } from '../../../ir/packing.js';
import { type CudaOperands, ELEMENT_TYPES, type EmittedCuda, emittedPlain, kernelHead } from '../text/operands.js';
import { aboutKernel, buffersText, type ConfigFields, unitText } from '../text/unit.js';

/** A warp for each range of k. */
export const SHRINK_THREADS = 256;

/**
 * How a tile is shared out: its columns, the blocks that take its slots by turns, and the steps of k that are on the
 * way together, as registers hold them. Few rows are limited by the bytes of factors: many blocks have a part of them
 * each. Many rows are limited by their own bytes: a block has all columns of them, if these are not too many. The
 * highest tiles have a ring of stages in shared memory instead.
 */
const TILES: Readonly<
  Record<ShrinkRows, { readonly columns: number; readonly units: number; readonly batch: number }>
> = {
  8: { columns: 8, units: 8, batch: 2 },
  16: { columns: 16, units: 8, batch: 2 },
  32: { columns: 48, units: 4, batch: 1 },
  64: { columns: 96, units: 8, batch: 1 },
};

/** Blocks whose registers share a multiprocessor: of few rows, one beside a block of the product before. */
const BLOCKS: Readonly<Record<ShrinkRows, number>> = { 8: 3, 16: 2, 32: 1, 64: 2 };

/** Rows of a tile whose operands come through a ring. */
const RING_ROWS = 64;
/** Bytes of a row of a stage, and of a ring: two blocks share a multiprocessor of Hopper. */
const [STAGE_ROW_BYTES, MOST_RING_BYTES] = [128, 104 << 10];
const ringBytes = (tileN: number): number => {
  const stage = (RING_ROWS + tileN) * STAGE_ROW_BYTES;
  return Math.floor(MOST_RING_BYTES / stage) * stage;
};

/** Most rows of a call for which a tile is the default. */
const MOST_ROWS: Readonly<Record<ShrinkRows, number>> = { 8: 256, 16: 1024, 32: 4096, 64: Infinity };

/** Rows of a tile that are good for calls of so many. */
export const defaultShrinkRows = (rows: number): ShrinkRows =>
  SHRINK_ROWS.find((each) => rows <= MOST_ROWS[each]) ?? 64;

/** The reason why a schedule cannot run a shrink kernel; undefined if it can. */
export const shrinkProblem = ({ threads }: CudaLoopSchedule): string | undefined =>
  threads === SHRINK_THREADS ? undefined : `a shrink kernel has ${SHRINK_THREADS} threads, a warp for each range of k`;

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
  const across = Math.ceil(columns / tile.columns);
  const isFloats = a.dtype === 'f32';
  const hasRing = rows === RING_ROWS && !isFloats;
  const tileN = roundUp(Math.ceil(columns / across), hasRing ? 16 : 8);
  const sharedBytes = hasRing ? ringBytes(tileN) : 0;
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
    batch: tile.batch,
    threads,
    ...(hasRing ? { sharedBytes } : {}),
  };
  const buffers = buffersText(`ShrinkBuffers<${ELEMENT_TYPES[a.dtype]}>`, operands, {
    a: kernel.a,
    slots: kernel.slot,
    weight: kernel.weight,
    scale: kernel.scale,
    out: kernel.out,
  });
  const { extents } = operands;
  const source = unitText({
    about: aboutKernel(kernel, isFloats ? 'on CUDA cores' : `by mma, tiles of ${rows} × ${tileN}`),
    includes: [hasRing ? 'adapter/shrinkMany.cuh' : 'adapter/shrink.cuh'],
    config: { type: 'ShrinkConfig', fields: config },
    functors: [],
    head: kernelHead({ symbol, extents, operands, tensorMaps: [], threads, blocks: BLOCKS[rows] }),
    body: `  ${isFloats ? 'shrink_floats' : hasRing ? 'shrink_many' : 'shrink'}<config>(${kernel.rows}, ${buffers});`,
  });
  const grid = isFloats ? { per: 1, times: 1 } : { per: rows, times: tile.units * Math.ceil(columns / tileN) };
  const plain = emittedPlain(source, threads, { kind: 'tiles', extent: kernel.rows, ...grid });
  return { ...plain, launch: { ...plain.launch, sharedBytes } };
}

/** A kernel that is never launched. */
function emitIdle(kernel: ShrinkKernel, operands: CudaOperands, threads: number, symbol: string): EmittedCuda {
  const { extents } = operands;
  const source = unitText({
    about: aboutKernel(kernel, 'left to the product behind it, or to nobody'),
    includes: ['lib/elements.cuh'],
    functors: [],
    head: kernelHead({ symbol, extents, operands, tensorMaps: [], threads }),
    body: '',
  });
  return emittedPlain(source, threads, { kind: 'constant', count: 0 });
}
