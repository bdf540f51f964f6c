/** How a block of the skinny skeleton divides its tile among warps and lays out shared memory. */
import {
  type CudaArch,
  type CudaGemmSchedule,
  MULTIPROCESSOR_BYTES,
  PART_COUNTS,
  RESERVED_BYTES,
} from '../../../ir/cuda.js';
import { groupWidth } from '../../../ir/groupSums.js';
import { type ContractionKernel, type GemmKernel, LOGPROB_BLOCK, type Segment } from '../../../ir/kernel.js';
import { DTYPE_BYTES, roundUp } from '../../../ir/types.js';
import { shrinkersBytes, shrinkingKernel, type Shrinkers } from '../adapter/shrinkers.js';
import { adapterBytes } from '../text/adapters.js';
import { segmentsOf } from '../text/contraction.js';
import { fragmentStep, segmentsProblem, tileStep } from '../text/fragment.js';
import { leastCommonMultiple, physicalColumns } from '../text/operands.js';
import { SLAB_BYTES, slabOf, WARPS_OF_GROUP, WGMMA_ROWS, type WgmmaType } from '../wgmma/instruction.js';
import { columnTiles, MAX_COLUMNS } from '../wgmma/layout.js';

/** Rows of a tile. Tiles of 8 rows use half of each tensor-core instruction. */
const TILE_ROWS: readonly number[] = [8, 16, 32, 64];
/** Depths of a stage: 128 to 512 bytes of each weight row are copied at a time. */
const DEPTHS: readonly number[] = [64, 128, 256];
export const SKINNY_STAGES = { least: 3, most: 16 } as const;
const MAX_WARPS = 16;
/** Columns of two tensor-core instructions, which one ldmatrix loads. */
const WARP_COLUMNS = 16;

/** The part of a tile that a warp multiplies, for the whole of k. */
export interface SkinnyWarps {
  readonly wm: number;
  readonly wn: number;
  readonly warpsDown: number;
  readonly warps: number;
}

/** The number of columns of a warp: whole pairs and whole blocks of row sums. */
export const skinnyStep = (segments: readonly Segment[]): number =>
  segments.map(fragmentStep).reduce(leastCommonMultiple, WARP_COLUMNS);

/** The number of columns of a tile: whole parts of warps, and whole groups that epilogues sum. */
export const skinnyTileStep = (segments: readonly Segment[]): number =>
  segments.map(tileStep).reduce(leastCommonMultiple, skinnyStep(segments));

/** Whether epilogues need whole groups, which are wider than a warp's part: products then go through shared memory. */
export const needsGroups = (segments: readonly Segment[]): boolean =>
  segments.some(({ outputs }) => groupWidth(outputs) !== undefined);

/** Narrow parts, because few warps share a multiprocessor: as many warps as a block may have. */
export function skinnyWarps({ tm, tn }: Pick<CudaGemmSchedule, 'tm' | 'tn'>, step: number): SkinnyWarps {
  const across = tn / step;
  const wm = TILE_ROWS.find((rows) => rows >= Math.min(16, tm) && (tm / rows) * across <= MAX_WARPS) ?? tm;
  return { wm: Math.min(wm, tm), wn: step, warpsDown: Math.max(1, tm / wm), warps: Math.max(1, tm / wm) * across };
}

/** Warps from which on a block has enough of them to copy and multiply by turns. */
const ENOUGH_WARPS = 8;
/** Copies of 16 bytes that a thread starts for each stage. */
const COPIES_OF_THREAD = 3;

/**
 * Warps that only copy. With few warps in a block, one that copied and multiplied would be limited by its own
 * instructions: with two warps a stage of 8 KB takes 1.05 µs on an H100, three times what memory needs for it.
 */
export function skinnyCopiers(schedule: CudaGemmSchedule, warps: number, isLogProb: boolean): number {
  if (isLogProb || warps >= ENOUGH_WARPS) return 0;
  return Math.min(MAX_WARPS - warps, Math.max(1, Math.ceil(skinnyStageBytes(schedule) / 16 / 32 / COPIES_OF_THREAD)));
}

/**
 * Bytes of a tile's products, and of those of other blocks of its groups, which take the place of the ring. Rows of
 * them lie in different banks.
 */
const productBytes = ({ tm, tn, parts }: CudaGemmSchedule): number => tm * ((parts ?? 1) * tn + 8) * 4;

const skinnyStageBytes = ({ tm, tn, tk }: CudaGemmSchedule): number => (tm + tn) * tk * 2;

/** Bytes of a block's shared memory (SkinnyConfig::end). `rowValues` floats per row are kept for the epilogue. */
export const skinnySharedBytes = (schedule: CudaGemmSchedule, rowValues: number): number =>
  Math.max(schedule.stages * skinnyStageBytes(schedule), productBytes(schedule)) + schedule.tm * rowValues * 4;

/** The reason why the skeleton cannot run the kernel with this schedule, apart from dtypes and shared memory. */
export function skinnyProblem(
  segments: readonly Segment[],
  schedule: CudaGemmSchedule,
  isLogProb: boolean,
): string | undefined {
  const { tm, tn, tk, stages } = schedule;
  const problem = isLogProb ? undefined : segmentsProblem(segments);
  if (problem !== undefined) return problem;
  if (!TILE_ROWS.includes(tm)) return `skinny tiles have ${TILE_ROWS.join(', ')} rows`;
  if (!DEPTHS.includes(tk)) return `skinny takes ${DEPTHS.join(', ')} of k at a time`;
  if (stages < SKINNY_STAGES.least || stages > SKINNY_STAGES.most)
    return `skinny has ${SKINNY_STAGES.least} to ${SKINNY_STAGES.most} stages`;
  const step = skinnyStep(segments);
  const whole = skinnyTileStep(segments);
  if (tn % whole !== 0) return `tn must be a multiple of ${whole}: whole pairs, heads and blocks of row sums`;
  const { wm, wn, warps } = skinnyWarps(schedule, step);
  if (warps > MAX_WARPS) return `a tile of ${tm}×${tn} needs ${warps} warps, ${MAX_WARPS} at most`;
  if (wm * wn > 2048) return `a warp's part of ${wm}×${wn} does not fit its registers`;
  if (isLogProb && tn !== LOGPROB_BLOCK) return `tn must be ${LOGPROB_BLOCK}: a block of the vocabulary`;
  return undefined;
}

// How a block of the skinnyWgmma skeleton divides its tile among warps and lays out shared memory.

const ALIGNMENT = 1024;
const BARRIER = 8;
/** Slabs of a stage. */
const SLAB_COUNTS: readonly number[] = [1, 2, 4];
export const STAGES = { least: 2, most: 24 } as const;
/** Columns of a tile from which on two warpgroups share it: each has half of the accumulators. */
const SHARED_COLUMNS = 160;
/**
 * Rows whose values one warp computes while the ring is consumed. Wide tiles take longer, and have registers for few
 * warps where two blocks share a multiprocessor.
 */
const rowsOfWarp = (tn: number): number => (tn < 128 ? 16 : 64);

/** Of a block. */
export interface SkinnyWgmmaLayout {
  readonly warps: number;
  /** Of these, those that wait for what comes behind the products. */
  readonly spareWarps: number;
  readonly sharedBytes: number;
  /** Where the kernel shrinks what its rows' adapters have. */
  readonly shrinkers?: Shrinkers;
}

/** Blocks that share a multiprocessor if their shared memory does: the next kernel's begin beside this one's. */
export const blocksOf = ({
  sharedBytes,
  spareWarps = 0,
}: Pick<SkinnyWgmmaLayout, 'sharedBytes'> & Partial<SkinnyWgmmaLayout>): number =>
  spareWarps === 0 && 2 * (sharedBytes + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES ? 2 : 1;

/** Warps of a block that also chooses experts: a row each, and together the rows of pairs. */
const ROUTING_WARPS = 32;
/** Those of its warps that make rows of pairs: helpers, which do not multiply. */
export const ROW_WARPS = 24;
/** Whether so many helpers stand beside those that multiply `tn` columns. */
export const hasRowWarps = ({ tn }: Pick<CudaGemmSchedule, 'tn'>): boolean => tn < SHARED_COLUMNS;

/**
 * Warps that shrink, some of which compute values too: few where two blocks share the registers, and otherwise
 * up to those of a block of twelve, of which a thread has 168. Of few rows there is not work for more. All of a range
 * of 4,096 of k is on the way at once where registers hold it.
 */
const shrinkersOf = (tm: number, blocks: number, valueWarps: number, groups: number): Shrinkers => ({
  warps: blocks === 2 ? Math.max(valueWarps, 2) : groups === 1 && tm > 16 ? 7 : 3,
  batch: blocks === 1 && groups === 1 ? 16 : 8,
});

/**
 * For operands of `dtype`, as SkinnyWgmmaConfig has it (gemm/skinnyWgmma.cuh). `rowValues` floats per row are kept for
 * the epilogue. Without the kernel: as if it had no adapters.
 */
export function skinnyWgmmaLayout(
  schedule: CudaGemmSchedule,
  dtype: WgmmaType,
  rowValues: number,
  kernel?: ContractionKernel,
): SkinnyWgmmaLayout {
  const { tm, tn, tk, stages } = schedule;
  const consumerWarps = (tn < SHARED_COLUMNS ? 1 : 2) * WARPS_OF_GROUP;
  const valueWarps = rowValues === 0 ? 0 : Math.ceil(tm / rowsOfWarp(tn));
  const stageBytes = (tm + tn) * tk * DTYPE_BYTES[dtype];
  // An instruction reads 64 rows from where a slab of tm rows begins, so memory must not end before.
  const readPast = Math.max(0, (tm * (tk / slabOf(dtype) - 1) + WGMMA_ROWS) * SLAB_BYTES - stageBytes);
  const barrierOffset = Math.max(stages * stageBytes + readPast, productBytes(schedule));
  const ownBytes = ALIGNMENT + barrierOffset + 2 * BARRIER * stages + tm * rowValues * 4;
  const warps = consumerWarps + 1;
  const { routes } = schedule;
  const spareWarps = routes === undefined ? 0 : Math.max(0, ROUTING_WARPS - warps - valueWarps);
  const plain = { warps: warps + valueWarps + spareWarps, spareWarps };
  if (kernel === undefined) return { ...plain, sharedBytes: ownBytes };
  const slotBytes = adapterBytes(kernel, ownBytes);
  const shrinking = shrinkingKernel(kernel, schedule);
  if (shrinking === undefined) return { ...plain, sharedBytes: ownBytes + slotBytes };
  const sharedBytes = ownBytes + slotBytes + shrinkersBytes(shrinking, tm);
  const shrinkers = shrinkersOf(tm, blocksOf({ sharedBytes }), valueWarps, consumerWarps / WARPS_OF_GROUP);
  return { warps: warps + Math.max(valueWarps, shrinkers.warps), spareWarps: 0, sharedBytes, shrinkers };
}

/** The reason why the skeleton cannot run the kernel with this schedule, apart from operands and shared memory. */
export function skinnyWgmmaProblem(
  segments: readonly Segment[],
  { tm, tn, tk, stages, cluster, parts }: CudaGemmSchedule,
  isLogProb: boolean,
  dtype: WgmmaType,
): string | undefined {
  const problem = isLogProb ? undefined : (segmentsProblem(segments) ?? partsProblem(segments, tn, parts));
  if (problem !== undefined) return problem;
  if (!TILE_ROWS.includes(tm)) return `tiles of few rows have ${TILE_ROWS.join(', ')} rows`;
  const depths = SLAB_COUNTS.map((slabs) => slabs * slabOf(dtype));
  if (!depths.includes(tk)) return `tk must be ${depths.join(', ')}`;
  if (stages < STAGES.least || stages > STAGES.most) return `stages must be ${STAGES.least} to ${STAGES.most}`;
  const step = parts === undefined ? skinnyTileStep(segments) : skinnyStep(segments);
  if (tn % step !== 0 || tn > MAX_COLUMNS)
    return `tn must be a multiple of ${step}, whole pairs, heads and blocks of row sums, and at most ${MAX_COLUMNS}`;
  if (parts !== undefined && (isLogProb || cluster !== 1)) return 'blocks that share groups are in no other cluster';
  if (columnTiles(segments, tn).total % cluster !== 0) return 'a cluster is a whole number of column tiles';
  if (tm % (8 * cluster) !== 0) return 'each block of a cluster loads at least eight rows';
  if (isLogProb && tn !== LOGPROB_BLOCK) return `tn must be ${LOGPROB_BLOCK}: a block of the vocabulary`;
  return undefined;
}

/** Why clusters of `parts` tiles have no whole groups, or columns of two segments. */
function partsProblem(segments: readonly Segment[], tn: number, parts = 1): string | undefined {
  const width = parts * tn;
  if (parts > 1 && !needsGroups(segments)) return 'its columns are in no groups that blocks could share';
  if (parts === 1 || segments.every((each) => isWidth(each, width))) return undefined;
  return `${parts} tiles of ${tn} columns are no whole groups of each segment`;
}

const isWidth = (segment: Segment, width: number): boolean =>
  width % tileStep(segment) === 0 && physicalColumns(segment.columns, segment.pairing) % width === 0;

/**
 * The schedule with which a kernel with adapters shrinks its rows itself: with fewer stages where shared memory is
 * full, or where fewer blocks would share a multiprocessor than without. Undefined if there is no room in `room` bytes.
 */
export function withShrinkers(
  kernel: ContractionKernel,
  schedule: CudaGemmSchedule,
  dtype: WgmmaType,
  rowValues: number,
  room: number,
): CudaGemmSchedule | undefined {
  for (let { stages } = schedule; stages >= STAGES.least; stages--) {
    const own: CudaGemmSchedule = { ...schedule, stages, adapters: 'shrinks' };
    const layout = skinnyWgmmaLayout(own, dtype, rowValues, kernel);
    const blocks = blocksOf(skinnyWgmmaLayout(own, dtype, rowValues));
    if (layout.sharedBytes <= room && blocksOf(layout) >= blocks) return own;
  }
  return undefined;
}

// What the two skeletons for few rows differ in: one record for defaults and for legality.

export const FEW_ROWS = {
  skinny: {
    stages: SKINNY_STAGES,
    problem: skinnyProblem,
    sharedBytes: skinnySharedBytes,
    archProblem: (arch: CudaArch, isLogProb: boolean) =>
      isLogProb && arch !== 'sm_90a'
        ? `a vocabulary block is summed as wgmma does it, which ${arch} has not`
        : undefined,
  },
  skinnyWgmma: {
    stages: STAGES,
    problem: skinnyWgmmaProblem,
    sharedBytes: (schedule: CudaGemmSchedule, rowValues: number, dtype: WgmmaType, kernel?: ContractionKernel) =>
      skinnyWgmmaLayout(schedule, dtype, rowValues, kernel).sharedBytes,
    archProblem: (arch: CudaArch) => (arch === 'sm_90a' ? undefined : `wgmma needs sm_90a, the target is ${arch}`),
  },
} as const;

// The default schedule for few rows: of skinnyWgmma on Hopper, of skinny on other GPUs.

/** Most rows for which the skeleton is the default. */
export const SKINNY_ROWS = 64;
/** A stage is twice as deep where it has at most this many bytes, because each stage costs a barrier. */
const DEEP_STAGE = 18 << 10;

/**
 * Elements of a tile from which on its epilogue leaves memory idle, so that two narrower tiles share a multiprocessor:
 * a layer of 8B took 205 µs with tiles of 64 × 224 and 190 µs with 64 × 112 on an H100, 178 and 153 µs on an H200.
 */
const LONG_EPILOGUE = 8192;

/**
 * Bytes of a tile's weights from which on two blocks share their rows: 64 rows of 8B's down, 14,336 deep, take 38.0
 * instead of 41.8 µs on an H200; of o, 4,096 deep, 13.8 instead of 13.1, because the two begin and end together.
 */
const PAIRED_BYTES = 512 << 10;

export interface SkinnyDevice {
  readonly arch: CudaArch;
  readonly sharedBytesPerBlock: number;
  readonly multiprocessors: number;
}

/**
 * A good untuned schedule at `rows` rows; undefined if the skeleton cannot run the kernel. One tile for each
 * multiprocessor, or two where one would be too wide or have a long epilogue.
 *
 * A block of skinnyWgmma takes all shared memory that its share of a multiprocessor has: the more bytes are under way,
 * the nearer memory comes to its read rate. The next kernel's blocks come as these end. One of two on a multiprocessor,
 * and a block of skinny, take less than half, so that the next kernel's blocks read their weights beside it.
 */
export function defaultSkinnySchedule(
  kernel: ContractionKernel,
  { arch, sharedBytesPerBlock, multiprocessors }: SkinnyDevice,
  rowValues: number,
  rows: number,
  dtype: WgmmaType = 'bf16',
): CudaGemmSchedule | undefined {
  const slab = slabOf(dtype);
  const skeleton = arch === 'sm_90a' ? 'skinnyWgmma' : 'skinny';
  const { stages, sharedBytes, problem } = FEW_ROWS[skeleton];
  // Deepest first.
  const depths = Array.from({ length: stages.most - stages.least + 1 }, (_, i) => stages.most - i);
  const segments = segmentsOf(kernel);
  const isLogProb = kernel.anchor === 'logprob';
  const tilesOf = (width: number): number => columnTiles(segments, width).total;
  const tm = rowsOfTile(rows, isLogProb ? Infinity : tilesOf(skinnyTileStep(segments)), multiprocessors);
  const isOnHopper = skeleton === 'skinnyWgmma';
  const within = (most: number): readonly number[] => widths(skinnyTileStep(segments), tilesOf, most);
  const one = isLogProb ? [LOGPROB_BLOCK] : (routedTile(kernel, rows) ?? within(multiprocessors));
  const isLong = tm * one[0]! > LONG_EPILOGUE;
  const isWholeMemory = isOnHopper && !isLong && tilesOf(one[0]!) <= multiprocessors;
  // A pair loads its rows once, which pays where they are at least twice the bytes of a tile's weights, and these many.
  const sharesRows = (tn: number): boolean =>
    isWholeMemory && tm >= 2 * tn && (tn * kernel.k * SLAB_BYTES) / slab >= PAIRED_BYTES && tilesOf(tn) % 2 === 0;
  const columns = isOnHopper && isLong && !isLogProb ? within(2 * multiprocessors) : one;
  const parted = isOnHopper && kernel.anchor === 'gemm' ? partsOfGroups(kernel, one[0]!, multiprocessors) : undefined;
  /** The first tile that fits, of widths and depths in their order. */
  const fitting = (room: number): CudaGemmSchedule | undefined => {
    for (const { tn, parts } of [...(parted === undefined ? [] : [parted]), ...columns.map(whole)])
      for (const tk of (tm + tn) * 2 * SLAB_BYTES <= DEEP_STAGE ? [2 * slab, slab] : [slab])
        for (const depth of depths) {
          const tile: CudaGemmSchedule = {
            kind: 'gemm',
            skeleton,
            tm,
            tn,
            tk,
            stages: depth,
            cluster: parts === undefined && sharesRows(tn) ? 2 : 1,
            ...(parts === undefined ? {} : { parts }),
            raster: 1,
            mode: 'cooperative',
          };
          const isFitting = sharedBytes(tile, rowValues, dtype) <= room;
          if (isFitting && problem(segments, tile, isLogProb, dtype) === undefined) return tile;
        }
    return undefined;
  };
  for (const blocks of isWholeMemory || parted !== undefined ? [1] : [2, 1]) {
    const found = fitting(Math.floor(sharedBytesPerBlock / blocks) - 2 * RESERVED_BYTES);
    if (found !== undefined) return found;
  }
  return undefined;
}

interface Width {
  readonly tn: number;
  readonly parts?: (typeof PART_COUNTS)[number];
}
const whole = (tn: number): Width => ({ tn });

/** What the exchange of products costs: as many bytes as a multiprocessor reads meanwhile. */
const EXCHANGED_BYTES = 50 << 10;

/**
 * The width with which a cluster shares groups of columns, where tiles of whole groups, `tn` wide, leave more
 * multiprocessors idle than the exchange of products is worth: each reads its weights at a rate of its own. A second
 * tile would wait for the first to leave shared memory, so there is one at most.
 */
function partsOfGroups(kernel: GemmKernel, tn: number, multiprocessors: number): Width | undefined {
  const segments = segmentsOf(kernel);
  if (!needsGroups(segments)) return undefined;
  const [step, unit] = [skinnyTileStep(segments), skinnyStep(segments)];
  // A cluster lies in one group of multiprocessors: of 16, or of 18 of which it leaves two.
  const roomOf = (parts: number): number => multiprocessors - (multiprocessors % (parts > 2 ? 16 : 2));
  const narrowest = PART_COUNTS.map((parts) => ({ tn: step / parts, parts })).findLast(
    (each) =>
      each.tn % unit === 0 &&
      columnTiles(segments, each.tn).total <= roomOf(each.parts) &&
      partsProblem(segments, each.tn, each.parts) === undefined,
  );
  const saved = narrowest === undefined ? 0 : (tn - narrowest.tn) * kernel.k * 2;
  return saved > EXCHANGED_BYTES ? narrowest : undefined;
}

/** Most rows of a product with other columns too that chooses experts, and of one block with all logits. */
export const ROUTED_ROWS = 8;
/** Bytes of the weights of logits that one block reads. */
const ROUTED_BYTES = 190 << 10;

/** One tile of all logits, where a block holds their weights: it chooses experts without waiting for others. */
function routedTile(kernel: ContractionKernel, rows: number): readonly number[] | undefined {
  const [segment, ...more] = segmentsOf(kernel);
  if (kernel.anchor !== 'gemm' || kernel.routing === undefined || rows > ROUTED_ROWS) return undefined;
  if (segment === undefined || more.length > 0 || segment.columns * kernel.k * 2 > ROUTED_BYTES) return undefined;
  return [roundUp(segment.columns, skinnyTileStep([segment]))];
}

/** Column tiles up to which tiles are lower than all rows, and the part of the multiprocessors that they then take. */
const NARROW = { tiles: 8, part: 4 };

/** All rows in one tile. Few columns, as those of routers, are more tiles of fewer rows, which each block reads. */
function rowsOfTile(rows: number, columnTileCount: number, multiprocessors: number): number {
  const whole = TILE_ROWS.find((each) => rows <= each) ?? 64;
  if (columnTileCount > NARROW.tiles) return whole;
  const isSpread = (tm: number): boolean =>
    Math.ceil(rows / tm) * columnTileCount * NARROW.part <= multiprocessors || tm >= whole;
  return TILE_ROWS.find(isSpread) ?? whole;
}

/** Widths to try, best first: the narrowest with at most one tile for each multiprocessor, then narrower ones. */
export function widths(
  step: number,
  tilesOf: (width: number) => number,
  multiprocessors: number,
  most: number = LOGPROB_BLOCK,
): readonly number[] {
  const all = Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step);
  const within = (blocks: number): number | undefined => all.find((width) => tilesOf(width) <= blocks);
  const best = within(multiprocessors) ?? within(2 * multiprocessors) ?? all.at(-1) ?? step;
  return [...all.filter((width) => width <= best).reverse(), step];
}
