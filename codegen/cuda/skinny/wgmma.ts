/**
 * Contractions of few rows on Hopper: TMA keeps many bytes of weights in flight with one instruction for each slab of a
 * stage, and wgmma multiplies them, so that few warps are enough for a tile. Every element is added up in one
 * accumulator in order of k, as the wgmma skeleton adds it, so results have the same bits.
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { matricesOf, physicalColumns, type CudaOperands, type EmittedCuda } from '../text/operands.js';
import { kernelHead } from '../text/operands.js';
import type { Contraction } from '../text/contraction.js';
import { finishesRows, rowProgramsOf, segmentsOf } from '../text/contraction.js';
import { finishOfTile } from '../text/finish.js';
import type { Fragment, RowPrologue } from '../text/programs.js';
import { fragmentEpilogue, rowPrologue } from '../text/programs.js';
import { render } from '../text/templates.js';
import { DESCRIPTOR_BASE, descriptorUnits, operandType, SLAB_BYTES } from '../wgmma/instruction.js';
import { columnTiles } from '../wgmma/layout.js';
import { loadTexts } from '../wgmma/loads.js';
import { keepLogitsText, logProbFunctions, logProbText } from '../wgmma/logprob.js';
import { MULTIPLY, productText, stepOffsets, waitText } from '../wgmma/mainLoop.js';
import { tensorMapsOf } from '../wgmma/tensorMaps.js';
import { skinnyStep } from './layout.js';
import { rowGroups } from './rowGroups.js';
import { rowValuesText } from './rowValues.js';
import { skinnyWgmmaLayout } from './wgmmaLayout.js';

/** Prints `kernel` under a legal skinnyWgmma schedule, without the prelude. No kernel of a plan may write weights. */
export function emitSkinnyWgmma(
  kernel: Contraction,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { tm, tn, tk, stages } = schedule;
  const segments = segmentsOf(kernel);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const values = prologue.scalars.length;
  const mmaType = operandType(operands.get(kernel.a).dtype);
  const layout = skinnyWgmmaLayout(schedule, mmaType, values);
  const { wn, warps, consumerWarps, valueWarps, aBytes, stageBytes, pitch, slabs } = layout;
  const tiles = columnTiles(segments, tn);
  const [threads, kBlocks, step] = [32 * warps, Math.ceil(kernel.k / tk), skinnyStep(segments)];
  const prefetch = Math.min(stages, kBlocks);
  const rowsAtOnce = Math.min(ROWS_AT_ONCE, Math.ceil(tm / Math.max(1, valueWarps)));
  const boxes = { cluster: 1, isCluster: false, remainderTn: 0, boxes: 1, boxRows: tn } as const;
  const tensorMaps = tensorMapsOf({ kernel, segments, operands, options: { tm, ...boxes } });
  const common = {
    ...layout,
    ...loadTexts({ tm, tn, tk, slabs, aBytes, stageBytes, mmaType, ...boxes }),
    ...{ tm, tn, tk, stages, threads, kBlocks, step },
    k: kernel.k,
    rows: kernel.rows,
    accumulators: wn / 2,
    groupsOfEight: wn / 8,
    multipliers: 32 * consumerWarps,
    manyGroups: layout.groups > 1,
    firstValueWarp: consumerWarps + 1,
    emptyOffset: 8 * stages,
    acrossAll: tiles.total,
    hasValues: values > 0,
    valuesOffset: layout.valuesOffset / 4,
    valuesDistance: valueWarps * rowsAtOnce,
    rowValues: rowValuesText(prologue, tm, valueWarps, rowsAtOnce, 'row0'),
    prefetch,
    prefetchStage: prefetch % stages,
    prefetchPhase: Math.floor(prefetch / stages) % 2,
    descriptorBase: DESCRIPTOR_BASE,
    units: (tn / step) * (tm / 8),
    rowGroups: tm / 8,
    segments: segments.map((_, i) => ({ map: i + 1, start: tiles.first[i]!, end: tiles.first[i + 1] ?? tiles.total })),
    wait: waitText(1, wn),
    loop: render('wgmmaLoop', {
      ...stepOffsets({ tm, tn, slabs }),
      ...{ kBlocks, stages, isPingPong: true, consumerUnits: 0, blocks: 1, multiply: MULTIPLY, aBlock: '', bBlock: '' },
      stageUnits: descriptorUnits(stageBytes),
      bUnits: `${descriptorUnits(aBytes)} + group * ${descriptorUnits(wn * SLAB_BYTES)}`,
      release: 'if (lane == 0) tw_bar_arrive(empty + 8 * before);',
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
      render('wgmmaFunctions', { ...FUNCTIONS, product }) +
      finish.functions +
      (kernel.anchor === 'gemm'
        ? render('gemmSkinnyWgmma', {
            ...body,
            finish: finish.finish,
            segments: common.segments.map((placed, i) => {
              const own = fragmentOf(kernel, i, tn, pitch, prologue);
              const at = { column0: 'column0', pitch, depth: 3 };
              const { text, fragment } = rowGroups(segments[i]!, operands, own, at);
              return { ...placed, program: text + fragmentEpilogue(segments[i]!, operands, fragment, 3) };
            }),
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
              ...{ tm, pitch, warps: threads / 32, row0: 'row0', column0: 'column0' },
            }),
          })),
    tensorMaps,
    waitsForPredecessor: true,
    launch: {
      threads,
      sharedBytes: layout.sharedBytes,
      cluster: 1,
      gridX: { kind: 'tiles', extent: kernel.rows, per: tm, times: tiles.total },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}

/** Rows whose values a warp computes at once. With memory this busy, each turn waits for microseconds. */
export const ROWS_AT_ONCE = 16;

/** Functions of the wgmma skeleton that this one does without. */
export const FUNCTIONS = {
  hasBytes: false,
  hasFinalTile: false,
  laneBlockSum: '',
  isDeferred: false,
  hasRowSums: false,
} as const;

/** Blocks that share a multiprocessor if their shared memory does: the next kernel's begin beside this one's. */
export const blocksOf = ({ sharedBytes }: { readonly sharedBytes: number }): number =>
  2 * (sharedBytes + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES ? 2 : 1;
const RESERVED_BYTES = 1024;
/** Shared memory of a multiprocessor of compute capability 9.0. */
const MULTIPROCESSOR_BYTES = 228 << 10;

/** Eight rows and `step` columns of the tile's products, as gemmSkinnyWgmma names them. */
export function fragmentOf(
  kernel: Contraction,
  index: number,
  tn: number,
  pitch: number,
  prologue: RowPrologue,
): Fragment {
  const segments = segmentsOf(kernel);
  const { columns, pairing } = segments[index]!;
  const physical = physicalColumns(columns, pairing);
  return {
    row: 'row',
    isStored: 'row0 + i < rows',
    prefix: 'f',
    groups: skinnyStep(segments) / 8,
    acc: (group, lane) => `products[i * ${pitch} + j0 + 8 * (${group}) + 2 * quad + ${lane}]`,
    column: '(column0 + j0)',
    quad: 'quad',
    isWhole: physical === columns * matricesOf(pairing) && physical % tn === 0,
    given: prologue.given(`(values + i * ${prologue.scalars.length})`),
  };
}
