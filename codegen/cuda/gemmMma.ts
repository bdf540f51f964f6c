/** Contractions on the tensor cores of every GPU from sm_80 on: cp.async into a ring of stages, ldmatrix, mma.sync. */
import type { CudaGemmSchedule, LaunchShape } from '../../ir/cuda.js';
import { groupWidth } from '../../ir/groupSums.js';
import { type GemmKernel, LOGPROB_BLOCK, type LogProbKernel, type Segment } from '../../ir/kernel.js';
import { expertRows } from './experts.js';
import { adaptedInstance, adapterField } from './text/adapters.js';
import { finishesRows, headsOf, programsOf, rowPrologue, segmentsOf } from './text/contraction.js';
import { segmentsProblem, tileStep } from './text/fragment.js';
import { finishOfTile } from './text/lanePrograms.js';
import { headBuffers, headConfigText, partsBytes, scaleFunctor } from './text/logprob.js';
import {
  type CudaOperands,
  type EmittedCuda,
  kernelHead,
  leastCommonMultiple,
  matricesOf,
  physicalColumns,
} from './text/operands.js';
import { fragmentFunctor, prologueFunctor } from './text/segments.js';
import { aboutKernel, callText, type ConfigFields, unitText } from './text/unit.js';

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

/** The fields of MmaConfig (gemm/mma.cuh). */
interface MmaConfig extends ConfigFields {
  readonly k: number;
  readonly aStride: number;
  readonly wStride: number;
  readonly tileM: number;
  readonly tileN: number;
  readonly tileK: number;
  readonly stages: number;
  readonly warpM: number;
  readonly warpN: number;
  readonly raster: number;
  readonly threads: number;
  readonly sharedBytes: number;
  readonly adapter?: ConfigFields;
}

function mmaConfig(
  kernel: GemmKernel | LogProbKernel,
  segments: readonly Segment[],
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  rowValues: number,
): MmaConfig {
  const { tm, tn, tk, stages, raster } = schedule;
  const { wm, wn, warps } = warpTiles(schedule, mmaStep(segments));
  return {
    k: kernel.k,
    aStride: operands.get(kernel.a).stride,
    wStride: operands.weight(segments[0]!.weight).stride,
    tileM: tm,
    tileN: tn,
    tileK: tk,
    stages,
    warpM: wm,
    warpN: wn,
    raster,
    threads: 32 * warps,
    sharedBytes: mmaSharedBytes(schedule, rowValues, kernel),
    ...adapterField(kernel, operands),
  };
}

/** A gemm kernel on tensor cores. The schedule must be legal for it (isLegalCuda). */
export function emitGemmMma(
  kernel: GemmKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
): EmittedCuda {
  const { tm, tn } = schedule;
  const prologue = rowPrologue(programsOf(kernel.segments), operands);
  const heads = headsOf(kernel);
  const config = {
    ...mmaConfig(kernel, kernel.segments, operands, schedule, prologue.scalars.length),
    ...heads.fields,
  };
  const { warpN, threads } = config;
  const prologueOf = prologueFunctor(prologue, operands);
  const { segments: each } = heads.each;
  const physical = each.map(({ columns, pairing }) => physicalColumns(columns, pairing));
  const segments = each.map((segment, i) =>
    fragmentFunctor(
      segment,
      operands,
      {
        groups: warpN / 8,
        isWhole: physical[i] === segment.columns * matricesOf(segment.pairing) && physical[i] % tn === 0,
        given: prologue.given('values'),
        // Parts of warps are whole heads if groups are summed.
        holdsWholeHeads: groupWidth(segment.outputs) !== undefined,
      },
      kernel.segments.length === 1,
    ),
  );
  const across = heads.count * physical.reduce((sum, columns) => sum + Math.ceil(columns / tn), 0);
  const finish = finishOfTile(kernel, operands, { tm, across, warps: threads / 32, isSmall: false }, `m0 / ${tm}`);
  const experts = expertRows(kernel, operands, tm);
  // Rows of experts are known only then.
  const wait = experts.instance === undefined ? '' : '  await_previous();\n';
  const call = callText('mma_gemm<config>', [
    experts.instance ?? kernel.rows,
    operands.nameOf(operands.get(kernel.a)),
    prologueOf.instance,
    ...segments.map((functor, i) => adaptedInstance(kernel, kernel.segments[i]!, operands, functor)),
  ]);
  return {
    source: unitText({
      about: aboutMma(kernel, schedule),
      includes: ['gemm/mma.cuh'],
      config: { type: 'MmaConfig', fields: config },
      functors: [prologueOf.text, ...segments.map(({ text }) => text), finish.functions],
      head: headOf(config, operands, symbol, !finishesRows(kernel)),
      body: `${wait}${finish.finish === '' ? `  ${call}` : `  const int m0 = ${call}\n${finish.finish}`}`,
    }),
    tensorMaps: [],
    waitsForPredecessor: true,
    launch: launchOf(config, kernel, experts.per, across),
  };
}

/** The vocabulary contraction on tensor cores: LOGPROB_BLOCK columns per block, tn at a time. */
export function emitLogProbMma(
  kernel: LogProbKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
): EmittedCuda {
  const prologue = rowPrologue([kernel.rowScale], operands);
  const config = mmaConfig(kernel, segmentsOf(kernel), operands, schedule, prologue.scalars.length);
  const prologueOf = prologueFunctor(prologue, operands);
  const scale = scaleFunctor(kernel, operands, prologue);
  const across = Math.ceil(kernel.vocab / LOGPROB_BLOCK);
  return {
    source: unitText({
      about: aboutMma(kernel, schedule),
      includes: ['head/mma.cuh'],
      config: { type: 'MmaConfig', fields: config },
      functors: [headConfigText(kernel, operands), prologueOf.text, scale.text],
      head: headOf(config, operands, symbol),
      body: `  await_previous();\n${callText('  mma_head<config, head_config>', [
        kernel.rows,
        operands.nameOf(operands.get(kernel.a)),
        operands.nameOf(operands.get(kernel.weight)),
        prologueOf.instance,
        scale.instance,
        headBuffers(kernel, operands),
      ])}`,
    }),
    tensorMaps: [],
    waitsForPredecessor: true,
    launch: launchOf(config, kernel, config.tileM, across),
  };
}

const aboutMma = (kernel: GemmKernel | LogProbKernel, { tm, tn, tk, stages }: CudaGemmSchedule): string =>
  aboutKernel(kernel, `${tm} × ${tn} × ${tk} by mma, ${stages} stages`);

const headOf = (
  { warpM, warpN, threads }: MmaConfig,
  operands: CudaOperands,
  symbol: string,
  isRestrict = true,
): string =>
  kernelHead({
    symbol,
    extents: operands.extents,
    operands,
    tensorMaps: [],
    threads,
    blocks: warpM * warpN <= 2048 && threads <= 256 ? 2 : 1,
    isRestrict,
  });

/** A block for each column tile, of `across`, of `per` rows. */
const launchOf = (
  { threads, sharedBytes }: MmaConfig,
  { rows }: GemmKernel | LogProbKernel,
  per: number,
  across: number,
): LaunchShape => ({
  threads,
  sharedBytes,
  cluster: 1,
  gridX: { kind: 'tiles', extent: rows, per, times: across },
  gridY: { kind: 'constant', count: 1 },
});
