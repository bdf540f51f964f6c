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
import { CONSUMERS, DESCRIPTOR_BASE, descriptorUnits, PRODUCER_IDLE_WARPS, SLAB, WARPS_OF_GROUP, WGMMA_ROWS, WGMMA_THREADS, wgmmaOperands } from './instruction.js';
import type { WgmmaLayout } from './layout.js';
import { columnTiles, wgmmaLayout } from './layout.js';
import { NO_RELAY, relayTexts } from './relay.js';
import { logProbFunctions, logProbText } from './logprob.js';
import { tailText } from './tail.js';

export { isLegalWgmma } from './legality.js';
export type { WgmmaFacts } from './legality.js';
export { defaultWgmmaSchedule, waveEfficiency, wgmmaCandidates } from './candidates.js';

/** Rows whose loads an idle warp of the producer's group has in flight; of a relay, which has an epilogue to run as well, more. */
const ROWS_AT_ONCE = 2;
const RELAY_ROWS_AT_ONCE = 4;
/** Registers of a producer's thread that so many rows at once fit. */
const ROOMY = 40;

/**
 * Prints `kernel` under a wgmma schedule, without the prelude. `parameters` is the number of its buffers and weights.
 * The schedule must be legal (isLegalWgmma). Weights are read before the kernel waits for its predecessor in the
 * stream: no kernel of a plan may write them.
 */
export function emitWgmma(kernel: Contraction, operands: CudaOperands, schedule: CudaGemmSchedule, symbol: string, parameters: number): EmittedCuda {
  const { tm, tn, tk, stages, cluster } = schedule;
  const segments = segmentsOf(kernel);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const values = prologue.scalars.length;
  const layout = wgmmaLayout(schedule, values);
  const tiles = columnTiles(segments, tn);
  const tensorMaps = mapsOf(kernel, segments, operands, schedule, layout);
  const warps = WARPS_OF_GROUP * (layout.isPingPong ? 1 : CONSUMERS);
  const raster = Math.max(1, Math.floor(schedule.raster / cluster));
  const kBlocks = Math.ceil(kernel.k / tk);
  const prefetch = Math.min(stages, kBlocks);
  const atOnce = layout.isRelay ? RELAY_ROWS_AT_ONCE : layout.producerRegisters >= ROOMY ? ROWS_AT_ONCE : 1;
  const rowSlots = { rowValuesSlot: tm * values, slotNumber: layout.rowSlots * tm * values };
  const segmentTexts = segments.map((segment, i) => ({
    map: i + 1, firstTile: tiles.first[i]!, endTile: tiles.first[i + 1] ?? tiles.total, isOnlyOrLast: i === segments.length - 1,
    epilogue: kernel.anchor === 'gemm' ? epilogueText(segment, operands, prologue, layout) : logProbText(kernel, operands, prologue),
  }));
  const rowValueCode = rowValueText(prologue, kernel.rows, tm, atOnce);
  const rowsAtOnceStep = PRODUCER_IDLE_WARPS * atOnce;
  const common = {
    ...layout, ...wgmmaOperands(layout.wn), mmaType: operands.get(kernel.a).dtype, hasSums: segments.some(({ outputs }) => outputs.some(({ kind }) => kind === 'rowSum')),
    hasBytes: [...kernelReads(kernel), ...kernelWrites(kernel)].some((name) => operands.get(name).dtype === 'u8'),
  };
  const tail = kernel.anchor === 'gemm' && values === 0 ? tailText(segments, operands, layout, schedule, kernel.rows) : undefined;
  const functions = (kernel.anchor === 'gemm' ? '' : logProbFunctions()) + render('wgmmaFunctions', { ...common, hasTail: tail !== undefined });
  const source = functions + render('gemmWgmma', {
    ...common, head: headText(symbol, parameters, tensorMaps), rows: kernel.rows, tm, tn, stages, cluster, raster, kBlocks, prefetch,
    ...(layout.isRelay ? relayTexts(segmentTexts, { layout, rows: kernel.rows, tm, tn, rowsAtOnceStep, rowValueCode, ...rowSlots, rowValues: values > 0 }) : NO_RELAY),
    ...blockText(layout), ...loadText(schedule, layout), ...stepText(schedule), isCluster: cluster === 2,
    emptyOffset: 8 * stages, rowsFullOffset: 16 * stages, emptyCount: warps * cluster, rowsEmptyCount: warps,
    clusterRows: tm * cluster, clusterRowsMinusOne: tm * cluster - 1, columnTiles: tiles.total, groupTiles: raster * tiles.total,
    prefetchStage: prefetch % stages, prefetchPhase: Math.floor(prefetch / stages) % 2,
    rowValues: values > 0, ...rowSlots, rowsAtOnceStep, rowValueCode,
    descriptorBase: DESCRIPTOR_BASE, consumerRows: layout.rowBlocks * WGMMA_ROWS, consumerUnits: descriptorUnits(layout.rowBlocks * WGMMA_ROWS * SLAB * 2),
    stageUnits: descriptorUnits(layout.stageBytes), bUnits: descriptorUnits(layout.aBytes),
    release: cluster === 2 ? 'if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane);' : 'if (lane == 0) tw_bar_arrive(empty + 8 * before);',
    mapNames: tensorMaps.map((_, i) => `m${i}`), segments: segmentTexts, tail: tail ?? '',
  });
  return {
    source, tensorMaps,
    launch: {
      threads: WGMMA_THREADS, sharedBytes: layout.sharedBytes, cluster,
      gridX: { kind: 'persistent', extent: kernel.rows, per: tm * cluster, times: tiles.total * cluster, blocksPerMultiprocessor: 1 },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}

/** Map 0 is the left operand, then one a segment's weight. A box is one slab, of the rows that one copy brings. */
function mapsOf(kernel: Contraction, segments: readonly Segment[], operands: CudaOperands, { tm }: CudaGemmSchedule, { boxRows }: WgmmaLayout): TensorMapDecl[] {
  const box = { columns: kernel.k, boxColumns: SLAB, swizzle: 128 } as const;
  const a = operands.get(kernel.a);
  return [
    { ...box, parameter: a.index, dtype: halfType(a.dtype), rows: kernel.rows, stride: a.stride, boxRows: tm },
    ...segments.map(({ weight, columns, pairing }) => {
      const w = operands.weight(weight);
      return { ...box, parameter: w.index, dtype: halfType(w.dtype), rows: physicalColumns(columns, pairing), stride: w.stride, boxRows };
    }),
  ];
}

function halfType(dtype: string): 'f16' | 'bf16' {
  if (dtype === 'f16' || dtype === 'bf16') return dtype;
  throw new Error(`wgmma reads 16-bit operands, not ${dtype}.`);
}

/** Statements that fill a stage, slab by slab. In a cluster each block brings half of the weight tile, for both. */
function loadText({ tm, tn, tk, cluster }: CudaGemmSchedule, { slabs, aBytes, stageBytes, boxes, boxRows }: WgmmaLayout): Readonly<Record<'loadA' | 'loadB' | 'loadPrefetchA' | 'loadPrefetchB', string>> {
  const half = tn / cluster;
  const plus = (bytes: number): string => (bytes === 0 ? '' : ` + ${bytes}`);
  const own = cluster === 2 ? ` + rank * ${half * SLAB * 2}` : '';
  const ownRow = cluster === 2 ? ` + (int)rank * ${half}` : '';
  const perSlab = (print: (i: number) => string): string => Array.from({ length: slabs }, (_, i) => print(i)).join(' ');
  const a = (stage: string, block: string): string => perSlab((i) =>
    `tw_load_box(shared + ${stage} * ${stageBytes}${plus(i * tm * SLAB * 2)}, &m0, ${block} * ${tk}${plus(i * SLAB)}, row0, full + 8 * ${stage});`);
  const b = (stage: string, block: string): string => perSlab((i) => Array.from({ length: boxes }, (_, j) =>
    `tw_load_box${cluster === 2 ? '_both' : ''}(shared + ${stage} * ${stageBytes}${plus(aBytes + (i * tn + j * boxRows) * SLAB * 2)}${own}, weight, ${block} * ${tk}${plus(i * SLAB)}, column0${plus(j * boxRows)}${ownRow}, full + 8 * ${stage});`).join(' '));
  return { loadA: a('stage', 'block'), loadB: b('stage', 'block'), loadPrefetchA: a('i', 'i'), loadPrefetchB: b('i', 'i') };
}

/** Descriptor offsets of step k of a stage: 16 elements are 32 bytes inside a slab's swizzled row. */
function stepText({ tm, tn, tk }: CudaGemmSchedule): Readonly<Record<'aStep' | 'bStep', string>> & { readonly kSteps: number } {
  const kSteps = tk / 16;
  if (tk === SLAB) return { kSteps, aStep: '2 * k', bStep: '2 * k' };
  const step = (rows: number): string => `(k >> 2) * ${descriptorUnits(rows * SLAB * 2)} + (k & 3) * 2`;
  return { kSteps, aStep: step(tm), bStep: step(tn) };
}

/** Which operands instruction `m` of a step multiplies: blocks of rows, or of columns where a tile is wider than one takes. */
function blockText({ rowBlocks, columnBlocks, wn }: WgmmaLayout): Readonly<Record<'aBlock' | 'bBlock', string>> & { readonly blocks: number } {
  const aUnits = descriptorUnits(WGMMA_ROWS * SLAB * 2);
  const bUnits = descriptorUnits(wn * SLAB * 2);
  const blocks = rowBlocks * columnBlocks;
  if (columnBlocks === 1) return { blocks, aBlock: blocks === 1 ? '' : ` + m * ${aUnits}`, bBlock: '' };
  return { blocks, aBlock: ` + m / ${columnBlocks} * ${aUnits}`, bBlock: ` + m % ${columnBlocks} * ${bUnits}` };
}

/** A warp's share of the row values of a tile: several rows at once, because one at a time waits for memory. */
function rowValueText(prologue: RowPrologue, rows: string, tm: number, atOnce: number): string {
  const count = prologue.scalars.length;
  const each = Array.from({ length: atOnce }, (_, i) => i);
  const local = (i: number): string => (i === 0 ? 'local' : `local + ${i * PRODUCER_IDLE_WARPS}`);
  const texts = each.map((i) => indent([
    `const int own${i} = row0 + ${local(i)}, read${i} = own${i} < ${rows} ? own${i} : ${rows} - 1;`, `float fold${i}[${count}];`,
  ], 5) + prologue.text(`read${i}`, `fold${i}`, 5));
  const stores = each.flatMap((i) => Array.from({ length: count }, (_, j) => `if (${local(i)} < ${tm}) to[(${local(i)}) * ${count} + ${j}] = fold${i}[${j}];`));
  return texts.join('') + indent(['if (lane == 0) {', ...stores.map((line) => `  ${line}`), '}'], 5);
}

/**
 * Without __restrict__: the compiler would move every load of an epilogue before its first store, and spill accumulators.
 * The epilogue's text has its loads where they should be.
 */
function headText(symbol: string, parameters: number, tensorMaps: readonly TensorMapDecl[]): string {
  return kernelHead({ symbol, parameters, tensorMaps, threads: WGMMA_THREADS }).replaceAll('__restrict__ ', '');
}
