/** Contractions on the tensor cores of every GPU from sm_80 on: cp.async into a ring of stages, ldmatrix, mma.sync. */
import type { CudaGemmSchedule, LaunchShape } from '../../ir/cuda.js';
import { groupWidth } from '../../ir/groupSums.js';
import { type GemmKernel, LOGPROB_BLOCK, type LogProbKernel, type Segment } from '../../ir/kernel.js';
import { storedLogits } from '../operands.js';
import { expertTiles } from './experts.js';
import { finishesRows, programsOf, rowPrologue, type RowPrologue } from './text/contraction.js';
import { type Fragment, fragmentEpilogue, segmentsProblem, tileStep } from './text/fragment.js';
import { finishOfTile } from './text/lanePrograms.js';
import { drawValues, LOGPROB_PIECE, partsBytes } from './text/logprob.js';
import {
  type CudaOperands,
  type EmittedCuda,
  kernelHead,
  leastCommonMultiple,
  matricesOf,
  physicalColumns,
  CudaRowScope,
} from './text/operands.js';
import { LaneBody } from './text/scalarPrinter.js';
import { capFunctions, capText, indent, render } from './text/statements.js';

/** How the warps of a block divide its tile. */
export interface WarpTiles {
  /** Rows and columns of a warp. */
  readonly wm: number;
  readonly wn: number;
  readonly warpsDown: number;
  readonly warps: number;
}

/**
 * The number of physical columns in a warp's part is a multiple of this: whole pairs, whole blocks of row sums and
 * whole groups that are summed.
 */
export const mmaStep = (segments: readonly Segment[]): number => segments.map(tileStep).reduce(leastCommonMultiple, 32);

/** Most elements of a warp's part: 128 accumulators a thread. */
const MAX_OF_WARP = 4096;

/** A warp's part of a tile: 64 × 32 in large tiles, fewer rows in lower ones; wider, and lower, if heads need it. */
function warpTiles({ tm, tn }: Pick<CudaGemmSchedule, 'tm' | 'tn'>, step: number): WarpTiles {
  const wn = Math.max(step, tn % 64 === 0 && tn >= 256 ? 64 : 32);
  const most = tm % 64 === 0 && tm > 64 ? 64 : tm % 32 === 0 ? 32 : 16;
  const wm = [64, 32].find((rows) => rows <= most && rows * wn <= MAX_OF_WARP) ?? 16;
  return { wm, wn, warpsDown: tm / wm, warps: (tm / wm) * (tn / wn) };
}

const stageBytes = ({ tm, tn, tk }: CudaGemmSchedule): number => (tm + tn) * tk * 2;

/** Bytes of a block's shared memory. `rowValues` floats per row are kept for the epilogue. */
export const mmaSharedBytes = (
  schedule: CudaGemmSchedule,
  rowValues: number,
  kernel: GemmKernel | LogProbKernel,
): number =>
  schedule.stages * stageBytes(schedule) +
  schedule.tm * rowValues * 4 +
  (kernel.anchor === 'logprob' ? partsBytes(schedule.tm, kernel) : 0);

/**
 * The reason why mma cannot run the kernel with this schedule, apart from dtypes and shared memory; undefined if it
 * can.
 */
export function mmaProblem(
  segments: readonly Segment[],
  schedule: CudaGemmSchedule,
  isLogProb: boolean,
): string | undefined {
  const { tm, tn, tk, stages } = schedule;
  const problem = isLogProb ? undefined : segmentsProblem(segments);
  if (problem !== undefined) return problem;
  if (tk !== 32 && tk !== 64) return 'mma takes 32 or 64 of k at a time';
  if (stages < 2 || stages > 8) return 'mma has 2 to 8 stages';
  const { wm, wn, warps } = warpTiles(schedule, mmaStep(segments));
  if (tn % wn !== 0) return `tn must be a multiple of ${wn}: whole pairs and blocks of row sums in a warp`;
  if (wm * wn > MAX_OF_WARP) return `a warp's part of ${wm}×${wn} does not fit its registers`;
  if (warps > 16) return `a tile of ${tm}×${tn} needs ${warps} warps, 16 at most`;
  if (isLogProb && LOGPROB_BLOCK % tn !== 0) return `tn must divide ${LOGPROB_BLOCK}`;
  return undefined;
}

interface Frame {
  readonly tile: string;
  readonly values: Readonly<Record<string, unknown>>;
  readonly tiles: WarpTiles;
  readonly launch: LaunchShape;
  readonly partsOffset: number;
}

/** What gemm and logprob share. `across`: column tiles, or blocks of the vocabulary. */
function frame(
  kernel: GemmKernel | LogProbKernel,
  segments: readonly Segment[],
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
  prologue: RowPrologue,
  across: number,
): Frame {
  const { tm, tn, tk, stages, raster } = schedule;
  const a = operands.get(kernel.a);
  const w = operands.weight(segments[0]!.weight);
  const tiles = warpTiles(schedule, mmaStep(segments));
  const { wm, wn, warpsDown, warps } = tiles;
  const threads = warps * 32;
  const chunks = tk / 8;
  const valuesOffset = stages * stageBytes(schedule);
  const common = {
    tm,
    tn,
    tk,
    k: kernel.k,
    stages,
    wm,
    wn,
    warpsDown,
    warps,
    threads,
    chunks,
    isWide: chunks === 8,
    mask: chunks - 1,
    aBytes: tm * tk * 2,
    stageBytes: stageBytes(schedule),
    steps: Math.ceil(kernel.k / tk),
    down: wm / 16,
    across: wn / 8,
    halves: wm / 8,
    dtype: w.dtype,
    a: a.index,
    aStride: a.stride,
    wStride: w.stride,
  };
  const experts = expertTiles(kernel, operands, tm);
  const block = render('mmaBlock', {
    ...common,
    ...experts.values,
    valuesOffset,
    rows: kernel.rows,
    raster,
    acrossAll: across,
    hasValues: prologue.scalars.length > 0,
  });
  const values = {
    ...common,
    ...experts.values,
    block,
    head: kernelHead({
      symbol,
      extents: operands.extents,
      parameters,
      tensorMaps: [],
      threads,
      blocks: wm * wn <= 2048 && threads <= 256 ? 2 : 1,
      isRestrict: !finishesRows(kernel),
    }),
    hasValues: prologue.scalars.length > 0,
    prologue: prologue.text('row', `values + i * ${prologue.scalars.length}`, 2),
  };
  const { rows } = kernel;
  return {
    tile: `${render('attentionWarp', {})}${render('mmaTile', common)}${experts.text}`,
    values,
    tiles,
    partsOffset: valuesOffset + tm * prologue.scalars.length * 4,
    launch: {
      threads,
      sharedBytes: mmaSharedBytes(schedule, prologue.scalars.length, kernel),
      cluster: 1,
      gridX: { kind: 'tiles', extent: rows, per: experts.per, times: across },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}

/** A gemm kernel on tensor cores. The schedule must be legal for it (isLegalCuda). */
export function emitGemmMma(
  kernel: GemmKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { tn } = schedule;
  const prologue = rowPrologue(programsOf(kernel.segments), operands);
  const { wn } = warpTiles(schedule, mmaStep(kernel.segments));
  let start = 0;
  const segments = kernel.segments.map((segment) => {
    const physical = physicalColumns(segment.columns, segment.pairing);
    const fragment: Fragment = {
      row: 'row',
      isStored: 'm0 + i < rows',
      prefix: 'f',
      groups: wn / 8,
      acc: (group, lane) => `acc[half / 2][${group}][half % 2 * 2 + ${lane}]`,
      column: '(n0 + j0)',
      quad: 'quad',
      isWhole: physical === segment.columns * matricesOf(segment.pairing) && physical % tn === 0,
      given: prologue.given(`values + i * ${prologue.scalars.length}`),
      // Parts of warps are whole heads if groups are summed.
      holdsWholeHeads: groupWidth(segment.outputs) !== undefined,
    };
    const placed = {
      start,
      end: start + Math.ceil(physical / tn),
      physical,
      weight: operands.get(segment.weight).index,
      program: fragmentEpilogue(segment, operands, fragment, 3),
    };
    start = placed.end;
    return placed;
  });
  const { tile, values, tiles, launch } = frame(
    kernel,
    kernel.segments,
    operands,
    schedule,
    symbol,
    parameters,
    prologue,
    start,
  );
  const { tm } = schedule;
  const finish = finishOfTile(
    kernel,
    operands,
    { tm, across: start, warps: tiles.warps, isSmall: false },
    `m0 / ${tm}`,
  );
  return {
    source: tile + finish.functions + render('gemmMma', { ...values, segments, finish: finish.finish }),
    tensorMaps: [],
    launch,
    waitsForPredecessor: true,
  };
}

/** The vocabulary contraction on tensor cores: LOGPROB_BLOCK columns per block, tn at a time. */
export function emitLogProbMma(
  kernel: LogProbKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const prologue = rowPrologue([kernel.rowScale], operands);
  const segment: Segment = { weight: kernel.weight, columns: kernel.vocab, pairing: { kind: 'none' }, outputs: [] };
  const across = Math.ceil(kernel.vocab / LOGPROB_BLOCK);
  const { tile, values, launch, partsOffset } = frame(
    kernel,
    [segment],
    operands,
    schedule,
    symbol,
    parameters,
    prologue,
    across,
  );
  const row = new CudaRowScope(operands, 'row', 'r', prologue.given(`values + i * ${prologue.scalars.length}`));
  const scale = new LaneBody(row).floats(kernel.rowScale, { id: 'x', column: '0', lanes: 1 })[0]!;
  const parts = operands.get(kernel.parts);
  const draw = drawValues(kernel, operands);
  const text =
    capFunctions(kernel.cap) +
    render('logprobParts', { tm: schedule.tm, block: LOGPROB_BLOCK, pieces: LOGPROB_BLOCK / LOGPROB_PIECE, ...draw }) +
    render('logprobMma', {
      ...values,
      ...draw,
      partsOffset,
      columns: LOGPROB_BLOCK,
      acrossWarp: warpTiles(schedule, 32).wn / 8,
      row: indent(row.lines, 3),
      scale,
      ...capText(kernel.cap),
      vocab: kernel.vocab,
      weight: operands.get(kernel.weight).index,
      physical: physicalColumns(kernel.vocab, { kind: 'none' }),
      target: operands.get(kernel.target).index,
      parts: parts.index,
      partsStride: parts.stride,
      logits: storedLogits(kernel, operands),
    });
  return { source: tile + text, tensorMaps: [], launch, waitsForPredecessor: true };
}
