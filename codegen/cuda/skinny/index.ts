/**
 * Contractions of few rows, as decoding makes them. They are limited by the memory that weights are read from, so this
 * skeleton keeps many bytes in flight: a deep ring of asynchronous copies, begun before the preceding kernel has ended.
 * Every element is added up in one accumulator in order of k, as the other tensor-core skeletons do it, so results have
 * the same bits.
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { ContractionKernel } from '../../../ir/kernel.js';
import { finishesRows, rowProgramsOf, rowPrologue, type RowPrologue, segmentsOf } from '../text/contraction.js';
import { type Fragment, fragmentEpilogue } from '../text/fragment.js';
import { finishOfTile } from '../text/lanePrograms.js';
import { keepLogitsText, logProbFunctions, logProbText } from '../text/logprob.js';
import { type CudaOperands, type EmittedCuda, kernelHead, matricesOf, physicalColumns } from '../text/operands.js';
import { render } from '../text/statements.js';
import {
  contractionFunctions,
  DESCRIPTOR_BASE,
  descriptorUnits,
  operandType,
  SLAB_BYTES,
} from '../wgmma/instruction.js';
import { columnTiles } from '../wgmma/layout.js';
import {
  loadTexts,
  MULTIPLY,
  productText,
  releaseText,
  stepOffsets,
  tensorMapsOf,
  waitText,
} from '../wgmma/mainLoop.js';
import {
  groupPitch,
  needsGroups,
  PRODUCTS_PITCH,
  skinnyCopiers,
  skinnySharedBytes,
  skinnyStageBytes,
  skinnyStep,
  skinnyValuesOffset,
  skinnyWarps,
  skinnyWgmmaLayout,
} from './layout.js';
import {
  blocksOf,
  COPY_ROWS_AT_ONCE,
  FUNCTIONS,
  launchOfTiles,
  ringOptions,
  rowGroups,
  rowValuesText,
  unitPrograms,
} from './ring.js';

export { defaultSkinnySchedule, SKINNY_ROWS } from './layout.js';
export { skinnyProblem, skinnySharedBytes } from './layout.js';

/** Most threads of a block that leave registers for a second block, which may be the next kernel's. */
const THREADS_OF_TWO = 512;

/** Prints `kernel` under a legal skinny schedule, without the prelude. No kernel of a plan may write weights. */
export function emitSkinny(
  kernel: ContractionKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { tm, tn, tk, stages } = schedule;
  const isLogProb = kernel.anchor === 'logprob';
  const segments = segmentsOf(kernel);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const { wm, wn, warpsDown, warps } = skinnyWarps(schedule, skinnyStep(segments));
  const [a, w] = [operands.get(kernel.a), operands.weight(segments[0]!.weight)];
  const tiles = columnTiles(segments, tn);
  const hasGroups = needsGroups(segments);
  const copiers = skinnyCopiers(schedule, warps, isLogProb);
  const [threads, steps] = [32 * (warps + copiers), Math.ceil(kernel.k / tk)];
  const copying = copiers === 0 ? warps : copiers;
  const rowsAtOnce = Math.min(COPY_ROWS_AT_ONCE, Math.ceil(tm / copying));
  const common = {
    tm,
    tn,
    tk,
    stages,
    wm,
    wn,
    warpsDown,
    warps,
    threads,
    steps,
    hasCopiers: copiers > 0,
    andCopies: copiers > 0 ? ' && copies' : '',
    multipliers: 32 * warps,
    copyThreads: 32 * copying,
    // The number of a thread among those that copy.
    copier: copiers === 0 ? 'threadIdx.x' : `(int)(threadIdx.x - ${32 * warps})`,
    k: kernel.k,
    rows: kernel.rows,
    chunks: tk / 8,
    aBytes: tm * tk * 2,
    stageBytes: skinnyStageBytes(schedule),
    isHalf: tm === 8,
    down: Math.max(1, wm / 16),
    across: wn / 8,
    halves: wm / 8,
    dtype: w.dtype,
    a: a.index,
    aStride: a.stride,
    wStride: w.stride,
    ahead: Math.min(stages - 1, steps),
    acrossAll: tiles.total,
    hasValues: prologue.scalars.length > 0,
    copiersLeave: copiers > 0 && !hasGroups,
    pitch: groupPitch(tn),
    units: (tn / wn) * (tm / 8),
    rowGroups: tm / 8,
    blockWarps: threads / 32,
    valuesOffset: skinnyValuesOffset(schedule, isLogProb),
    valuesStep: Math.min(stages, steps) - 1,
    valuesDistance: copying * rowsAtOnce,
    rowValues: rowValuesText(prologue, tm, copying, rowsAtOnce, 'm0'),
    segments: segments.map(({ weight, columns, pairing }, i) => ({
      start: tiles.first[i]!,
      end: tiles.first[i + 1] ?? tiles.total,
      physical: physicalColumns(columns, pairing),
      weight: operands.get(weight).index,
    })),
  };
  const head = kernelHead({
    symbol,
    extents: operands.extents,
    parameters,
    tensorMaps: [],
    threads,
    blocks: threads <= THREADS_OF_TWO ? 2 : 1,
    isRestrict: !finishesRows(kernel),
  });
  const finish = finishOfTile(kernel, operands, { tm, across: tiles.total, warps, isSmall: true }, `m0 / ${tm}`);
  const body = { ...common, head, loop: render('skinnyLoop', common) };
  const text =
    kernel.anchor === 'gemm'
      ? render(hasGroups ? 'gemmSkinnyGroups' : 'gemmSkinny', {
          ...body,
          finish: finish.finish,
          segments: common.segments.map((placed, i) => ({
            ...placed,
            program: hasGroups
              ? unitText(kernel, i, operands, { wn, tn }, prologue)
              : fragmentEpilogue(segments[i]!, operands, fragmentOf(kernel, i, wn, tn, prologue), 3),
          })),
        })
      : logProbFunctions(kernel) +
        render('logprobSkinny', {
          ...body,
          pitch: PRODUCTS_PITCH,
          text: logProbText(
            kernel,
            operands,
            prologue,
            'values',
            `products[local * ${PRODUCTS_PITCH} + 8 * g + 2 * quad + e]`,
            false,
          ),
          keep: keepLogitsText(kernel, operands, prologue, {
            tm: schedule.tm,
            pitch: PRODUCTS_PITCH,
            warps: threads / 32,
            row0: 'm0',
            column0: 'n0',
          }),
        });
  return {
    source: render('attentionWarp', {}) + render('skinnyTile', common) + finish.functions + text,
    tensorMaps: [],
    waitsForPredecessor: true,
    launch: launchOfTiles(kernel, {
      tm,
      threads,
      columnTiles: tiles.total,
      sharedBytes: skinnySharedBytes(schedule, prologue.scalars.length, isLogProb),
    }),
  };
}

/** The epilogue of eight rows and a few columns of the products in shared memory, as gemmSkinny names them. */
function unitText(
  kernel: ContractionKernel,
  index: number,
  operands: CudaOperands,
  { wn, tn }: { readonly wn: number; readonly tn: number },
  prologue: RowPrologue,
): string {
  const segments = segmentsOf(kernel);
  const pitch = groupPitch(tn);
  const own: Fragment = {
    ...fragmentOf(kernel, index, wn, tn, prologue),
    acc: (group, lane) => `products[i * ${pitch} + j0 + 8 * (${group}) + 2 * quad + ${lane}]`,
  };
  const { text, fragment } = rowGroups(segments[index]!, operands, own, { column0: 'n0', pitch, depth: 3 });
  return text + fragmentEpilogue(segments[index]!, operands, fragment, 3);
}

/** A row of a thread's accumulators, as gemmSkinny names it. */
function fragmentOf(kernel: ContractionKernel, index: number, wn: number, tn: number, prologue: RowPrologue): Fragment {
  const { columns, pairing } = segmentsOf(kernel)[index]!;
  const physical = physicalColumns(columns, pairing);
  return {
    row: 'row',
    isStored: 'm0 + i < rows',
    prefix: 'f',
    groups: wn / 8,
    acc: (group, lane) => `acc[half / 2][${group}][half % 2 * 2 + ${lane}]`,
    column: '(n0 + j0)',
    quad: 'quad',
    isWhole: physical === columns * matricesOf(pairing) && physical % tn === 0,
    given: prologue.given(`(values + i * ${prologue.scalars.length})`),
  };
}

// Contractions of few rows on Hopper: TMA keeps many bytes of weights in flight with one instruction for each slab
// of a stage, and wgmma multiplies them, so that few warps are enough for a tile. Every element is added up in one
// accumulator in order of k, as the wgmma skeleton adds it, so results have the same bits.

/** Prints `kernel` under a legal skinnyWgmma schedule, without the prelude. No kernel of a plan may write weights. */
export function emitSkinnyWgmma(
  kernel: ContractionKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { tm, tn, tk, stages, cluster } = schedule;
  const segments = segmentsOf(kernel);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const values = prologue.scalars.length;
  const mmaType = operandType(operands.get(kernel.a).dtype);
  const layout = skinnyWgmmaLayout(schedule, mmaType, values);
  const { wn, warps, aBytes, stageBytes, pitch, slabs } = layout;
  const tiles = columnTiles(segments, tn);
  const ring = ringOptions(kernel, schedule, layout, tiles, prologue);
  const { threads } = ring;
  const boxes = { cluster: 1, isCluster: false, remainderTn: 0, boxes: 1, boxRows: tn, sharers: cluster } as const;
  const tensorMaps = tensorMapsOf({ kernel, segments, operands, options: { tm, ...boxes } });
  const common = {
    ...layout,
    ...loadTexts({ tm, tn, tk, slabs, aBytes, stageBytes, mmaType, ...boxes }),
    ...ring,
    accumulators: wn / 2,
    groupsOfEight: wn / 8,
    manyGroups: layout.groups > 1,
    isCluster: cluster > 1,
    emptyCount: layout.consumerWarps * cluster,
    descriptorBase: DESCRIPTOR_BASE,
    wait: waitText(1, wn),
    loop: render('wgmmaLoop', {
      ...stepOffsets({ tm, tn, slabs }),
      kBlocks: ring.kBlocks,
      stages,
      isPingPong: true,
      consumerUnits: 0,
      blocks: 1,
      multiply: MULTIPLY,
      aBlock: '',
      bBlock: '',
      stageUnits: descriptorUnits(stageBytes),
      bUnits: `${descriptorUnits(aBytes)} + group * ${descriptorUnits(wn * SLAB_BYTES)}`,
      release: releaseText(schedule),
    }).trimEnd(),
  };
  const head = kernelHead({
    symbol,
    extents: operands.extents,
    parameters,
    tensorMaps,
    threads,
    blocks: blocksOf(layout),
    isRestrict: !finishesRows(kernel),
  });
  const finish = finishOfTile(kernel, operands, { tm, across: tiles.total, warps, isSmall: true }, `row0 / ${tm}`);
  const consumer = render('skinnyWgmmaConsumer', common);
  const about = render('skinnyWgmmaAbout', common);
  const body = { ...common, loop: render('skinnyWgmma', { ...common, head, about, consumer }) };
  const product = productText({ wn, mmaType }, wn);
  return {
    source:
      (kernel.anchor === 'gemm' ? '' : logProbFunctions(kernel)) +
      contractionFunctions({ ...FUNCTIONS, product }) +
      finish.functions +
      (kernel.anchor === 'gemm'
        ? render('gemmSkinnyWgmma', {
            ...body,
            finish: finish.finish,
            segments: unitPrograms(kernel, operands, schedule, pitch, ring.segments, prologue),
          })
        : render('logprobSkinnyWgmma', {
            ...body,
            text: logProbText(
              kernel,
              operands,
              prologue,
              'values',
              `products[local * ${pitch} + 8 * g + 2 * quad + e]`,
              false,
            ),
            keep: keepLogitsText(kernel, operands, prologue, {
              tm,
              pitch,
              warps: threads / 32,
              row0: 'row0',
              column0: 'column0',
            }),
          })),
    tensorMaps,
    waitsForPredecessor: true,
    launch: launchOfTiles(kernel, {
      tm,
      threads,
      sharedBytes: layout.sharedBytes,
      columnTiles: tiles.total,
      cluster,
    }),
  };
}
