/** Contractions by Hopper's tensor cores: TMA and mbarriers feed warp-specialised wgmma, in persistent blocks. */
import type { CudaGemmSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { kernelReads, kernelWrites } from '../../../ir/kernelAccess.js';
import type { Contraction } from '../contraction.js';
import { rowProgramsOf, segmentsOf } from '../contraction.js';
import type { EmittedCuda } from '../loop.js';
import type { CudaOperands } from '../operands.js';
import { kernelHead, physicalColumns } from '../operands.js';
import type { RowPrologue } from '../programs.js';
import { indent, rowPrologue } from '../programs.js';
import { render } from '../templates.js';
import { epilogueText } from './epilogue.js';
import {
  CONSUMERS,
  DESCRIPTOR_BASE,
  PRODUCER_IDLE_WARPS,
  SLAB,
  WARPS_OF_GROUP,
  WGMMA_ROWS,
  WGMMA_THREADS,
} from './instruction.js';
import type { NarrowEnd } from './lastWave.js';
import { lastWaveTexts, mostColumnTiles, NO_LAST_WAVE } from './lastWave.js';
import { columnTiles, wgmmaLayout } from './layout.js';
import { loadText } from './loads.js';
import { logProbFunctions, logProbText } from './logprob.js';
import { loopText, productText, releaseText, settleText } from './mainLoop.js';
import type { RelayValues } from './relay.js';
import { narrowTexts, NO_RELAY, relayTexts } from './relay.js';
import { tailText } from './tail.js';

export { isLegalWgmma } from './legality.js';
export type { WgmmaFacts } from './legality.js';
export { defaultWgmmaSchedule, waveEfficiency, wgmmaCandidates } from './candidates.js';

/**
 * Rows whose loads an idle warp of the producer's group has in flight; of a relay, which has an epilogue to run as
 * well, more.
 */
const ROWS_AT_ONCE = 2;
const RELAY_ROWS_AT_ONCE = 4;
/** Registers of a producer's thread that so many rows at once fit. */
const ROOMY = 40;

/**
 * Prints `kernel` under a wgmma schedule, without the prelude. `parameters` is the number of its buffers and weights.
 * The schedule must be legal (isLegalWgmma). Weights are read before the kernel waits for its predecessor in the
 * stream: no kernel of a plan may write them.
 */
export function emitWgmma(
  kernel: Contraction,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { tm, tn, tk, stages, cluster, lastTn } = schedule;
  const segments = segmentsOf(kernel);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const values = prologue.scalars.length;
  const layout = wgmmaLayout(schedule, values);
  const tiles = columnTiles(segments, tn);
  const tensorMaps = mapsOf(kernel, segments, operands, schedule, layout.boxRows);
  const warps = WARPS_OF_GROUP * (layout.isPingPong ? 1 : CONSUMERS);
  const raster = Math.max(1, Math.floor(schedule.raster / cluster));
  const kBlocks = Math.ceil(kernel.k / tk);
  const prefetch = Math.min(stages, kBlocks);
  const atOnce = layout.isRelay ? RELAY_ROWS_AT_ONCE : layout.producerRegisters >= ROOMY ? ROWS_AT_ONCE : 1;
  const rowSlots = { rowValuesSlot: tm * values, slotNumber: layout.rowSlots * tm * values };
  const segmentTexts = segments.map((segment, i) => ({
    map: i + 1,
    firstTile: tiles.first[i]!,
    endTile: tiles.first[i + 1] ?? tiles.total,
    isOnlyOrLast: i === segments.length - 1,
    epilogue:
      kernel.anchor === 'gemm'
        ? epilogueText(segment, operands, prologue, layout)
        : logProbText(kernel, operands, prologue),
  }));
  const rowValueCode = rowValueText(prologue, kernel.rows, tm, atOnce);
  const rowsAtOnceStep = PRODUCER_IDLE_WARPS * atOnce;
  const common = {
    ...layout,
    mmaType: operands.get(kernel.a).dtype,
    hasSums: segments.some(({ outputs }) => outputs.some(({ kind }) => kind === 'rowSum')),
    hasBytes: [...kernelReads(kernel), ...kernelWrites(kernel)].some((name) => operands.get(name).dtype === 'u8'),
  };
  const relay: RelayValues = {
    layout,
    rows: kernel.rows,
    tm,
    tn,
    isCluster: cluster === 2,
    rowsAtOnceStep,
    rowValueCode,
    ...rowSlots,
    rowValues: values > 0,
  };
  const tail =
    kernel.anchor === 'gemm' && values === 0 ? tailText(segments, operands, layout, schedule, kernel.rows) : undefined;
  let lastWave = NO_LAST_WAVE;
  if (lastTn !== undefined) {
    const epilogue = epilogueText(segments.at(-1)!, operands, prologue, { ...layout, wn: lastTn }, tn);
    const end: NarrowEnd =
      tail === undefined ? narrowTexts(lastTn, { ...segmentTexts.at(-1)!, epilogue }, relay) : tail;
    lastWave = lastWaveTexts(segments, { ...schedule, lastTn }, layout, kernel.rows, kBlocks, end);
  }
  const functions =
    (kernel.anchor === 'gemm' ? '' : logProbFunctions()) +
    render('wgmmaFunctions', {
      ...common,
      hasTail: tail !== undefined,
      product:
        productText(layout, common.mmaType) + (lastTn === undefined ? '' : productText(layout, common.mmaType, lastTn)),
    });
  const source =
    functions +
    render('gemmWgmma', {
      ...common,
      head: headText(symbol, parameters, tensorMaps),
      rows: kernel.rows,
      tm,
      tn,
      stages,
      cluster,
      raster,
      kBlocks,
      prefetch,
      ...(layout.isRelay ? relayTexts(segmentTexts, relay) : NO_RELAY),
      ...lastWave,
      ...loadText(schedule, layout),
      loop: loopText(schedule, layout, kBlocks),
      settle: settleText(layout),
      release: releaseText(schedule),
      isCluster: cluster === 2,
      emptyOffset: 8 * stages,
      rowsFullOffset: 16 * stages,
      emptyCount: warps * cluster,
      rowsEmptyCount: warps,
      clusterRows: tm * cluster,
      clusterRowsMinusOne: tm * cluster - 1,
      columnTiles: tiles.total,
      groupTiles: raster * tiles.total,
      prefetchStage: prefetch % stages,
      prefetchPhase: Math.floor(prefetch / stages) % 2,
      rowValues: values > 0,
      ...rowSlots,
      rowsAtOnceStep,
      rowValueCode,
      descriptorBase: DESCRIPTOR_BASE,
      consumerRows: layout.rowBlocks * WGMMA_ROWS,
      blocks: layout.rowBlocks * layout.columnBlocks,
      accumulators: layout.wn / 2,
      mapNames: tensorMaps.map((_, i) => `m${i}`),
      segments: segmentTexts,
      tail: tail?.tail ?? '',
    });
  return {
    source,
    tensorMaps,
    waitsForPredecessor: true,
    launch: {
      threads: WGMMA_THREADS,
      sharedBytes: layout.sharedBytes,
      cluster,
      gridX: {
        kind: 'persistent',
        extent: kernel.rows,
        per: tm * cluster,
        times: mostColumnTiles(segments, schedule) * cluster,
        blocksPerMultiprocessor: 1,
      },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}

/**
 * Map 0 is the left operand, then one a segment's weight, and the last one's for narrow tiles. A box is one slab, of
 * the rows that one copy brings.
 */
function mapsOf(
  kernel: Contraction,
  segments: readonly Segment[],
  operands: CudaOperands,
  { tm, cluster, lastTn }: CudaGemmSchedule,
  boxRows: number,
): TensorMapDecl[] {
  const box = { columns: kernel.k, boxColumns: SLAB, swizzle: 128 } as const;
  const a = operands.get(kernel.a);
  const weightMap = ({ weight, columns, pairing }: Segment, rows: number): TensorMapDecl => {
    const w = operands.weight(weight);
    return {
      ...box,
      parameter: w.index,
      dtype: halfType(w.dtype),
      rows: physicalColumns(columns, pairing),
      stride: w.stride,
      boxRows: rows,
    };
  };
  return [
    { ...box, parameter: a.index, dtype: halfType(a.dtype), rows: kernel.rows, stride: a.stride, boxRows: tm },
    ...segments.map((segment) => weightMap(segment, boxRows)),
    ...(lastTn === undefined ? [] : [weightMap(segments.at(-1)!, lastTn / cluster)]),
  ];
}

function halfType(dtype: string): 'f16' | 'bf16' {
  if (dtype === 'f16' || dtype === 'bf16') return dtype;
  throw new Error(`wgmma reads 16-bit operands, not ${dtype}.`);
}

/** A warp's share of the row values of a tile: several rows at once, because one at a time waits for memory. */
function rowValueText(prologue: RowPrologue, rows: string, tm: number, atOnce: number): string {
  const count = prologue.scalars.length;
  const each = Array.from({ length: atOnce }, (_, i) => i);
  const local = (i: number): string => (i === 0 ? 'local' : `local + ${i * PRODUCER_IDLE_WARPS}`);
  const texts = each.map(
    (i) =>
      indent(
        [
          `const int own${i} = row0 + ${local(i)}, read${i} = own${i} < ${rows} ? own${i} : ${rows} - 1;`,
          `float fold${i}[${count}];`,
        ],
        5,
      ) + prologue.text(`read${i}`, `fold${i}`, 5),
  );
  const stores = each.flatMap((i) =>
    Array.from(
      { length: count },
      (_, j) => `if (${local(i)} < ${tm}) to[(${local(i)}) * ${count} + ${j}] = fold${i}[${j}];`,
    ),
  );
  return texts.join('') + indent(['if (lane == 0) {', ...stores.map((line) => `  ${line}`), '}'], 5);
}

/**
 * Without __restrict__: the compiler would move every load of an epilogue before its first store, and spill
 * accumulators. The epilogue's text has its loads where they should be.
 */
function headText(symbol: string, parameters: number, tensorMaps: readonly TensorMapDecl[]): string {
  return kernelHead({ symbol, parameters, tensorMaps, threads: WGMMA_THREADS }).replaceAll('__restrict__ ', '');
}
