/** Contractions on Hopper's tensor cores: TMA and mbarriers feed warp-specialized wgmma in persistent blocks. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { ContractionKernel } from '../../../ir/kernel.js';
import { logProbFunctions, logProbText } from '../text/logprob.js';
import { type CudaOperands, type EmittedCuda, kernelHead, physicalColumns } from '../text/operands.js';
import { render } from '../text/statements.js';
import { columnValueTexts, type ColumnValueTexts, NO_COLUMN_VALUES } from './columnValues.js';
import {
  deferredTexts,
  finalTileText,
  finishTexts,
  NO_REMAINDER,
  NOT_DEFERRED,
  remainderTexts,
  rowTurns,
  rowValueText,
  type SegmentText,
} from './deferredEpilogue.js';
import { epilogueText } from './epilogue.js';
import { contractionFunctions, DESCRIPTOR_BASE } from './instruction.js';
import { maxColumnTiles } from './layout.js';
import { loadTexts, loopText, productText, releaseText, tensorMapsOf, waitText } from './mainLoop.js';
import { wgmmaContext, type WgmmaContext } from './options.js';

export { isLegalWgmma } from './legality.js';
export type { WgmmaFacts } from './legality.js';
export { defaultWgmmaSchedule, waveEfficiency, wgmmaCandidates } from './candidates.js';

/**
 * Prints `kernel` under a wgmma schedule, without the prelude. `parameters` is the number of its buffers and weights.
 * The schedule must be legal (isLegalWgmma). Weights are read before the kernel waits for its predecessor in the
 * stream, so no kernel of a plan may write them.
 */
export function emitWgmma(
  kernel: ContractionKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const context = wgmmaContext(kernel, operands, schedule);
  const { options, segments } = context;
  const tensorMaps = tensorMapsOf(context);
  // No __restrict__: the compiler would move every load of an epilogue before its first store and spill accumulators.
  // The epilogue's text already has its loads in the right places.
  const head = kernelHead({
    symbol,
    extents: operands.extents,
    parameters,
    tensorMaps,
    threads: options.threads,
    isRestrict: false,
  });
  return {
    source: functionsText(context) + bodyText(context, head, tensorMaps.length),
    tensorMaps,
    waitsForPredecessor: true,
    launch: {
      threads: options.threads,
      sharedBytes: options.sharedBytes,
      cluster: options.cluster,
      gridX: {
        kind: 'persistent',
        extent: kernel.rows,
        // Each expert may have a tile that is not full: how many there are is known on the device only.
        per: options.experts === undefined ? options.clusterRows : 1,
        times: maxColumnTiles(segments, schedule) * options.cluster,
        blocksPerMultiprocessor: 1,
      },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}

/** Kernels that finish rows have no row-by-row final tile, and bring these sums themselves. */
const laneBlockSum = ({ hasFinalTile }: WgmmaContext['options']): string =>
  hasFinalTile ? render('laneBlockSum', {}) : '';

/** The functions that a kernel's body calls. */
function functionsText({ kernel, finish, options }: WgmmaContext): string {
  const { wn, remainderTn } = options;
  const product = [wn, ...(remainderTn === 0 ? [] : [remainderTn])].map((columns) => productText(options, columns));
  return (
    (kernel.anchor === 'gemm' ? '' : logProbFunctions(kernel)) +
    contractionFunctions({ ...options, product: product.join(''), laneBlockSum: laneBlockSum(options) }) +
    (finish?.functions ?? '')
  );
}

/** How idle warps keep column values; empty if there are none. */
function columnTexts({ operands, segments, firstTiles, options }: WgmmaContext): ColumnValueTexts {
  if (!options.hasColumnValues) return NO_COLUMN_VALUES;
  const { tn, epilogueWarps, remainderTn } = options;
  const own = (first: number): string => `(columnTile - ${first}) * ${tn}`;
  return columnValueTexts(
    segments.map((segment, i) => ({
      segment,
      column0:
        remainderTn === 0
          ? own(firstTiles[i]!)
          : `place.remainderColumn >= 0 ? place.remainderColumn : ${own(firstTiles[i]!)}`,
      endTile: firstTiles[i + 1] ?? options.columnTiles,
    })),
    operands,
    {
      tn,
      floats: options.columnValues,
      threads: 32 * epilogueWarps,
      self: `32 * (${options.epilogueWarp}) + lane`,
    },
    4,
  );
}

function bodyText(context: WgmmaContext, head: string, maps: number): string {
  const { kernel, operands, segments, firstTiles, prologue, options } = context;
  const segmentTexts = segments.map((segment, i): SegmentText => ({
    map: i + 1,
    firstTile: firstTiles[i]!,
    endTile: firstTiles[i + 1] ?? options.columnTiles,
    ofExpert:
      options.experts === undefined ? '' : ` + place.expert * ${physicalColumns(segment.columns, segment.pairing)}`,
    isOnlyOrLast: i === segments.length - 1,
    ...(kernel.anchor === 'gemm'
      ? epilogueText(context, segment)
      : { epilogue: logProbText(kernel, operands, prologue), firstLoads: '' }),
  }));
  const rowValues = { rowValueCode: rowValueText(context), ...rowTurns(context) };
  const columnCode = columnTexts(context);
  const remainder = (): SegmentText => ({
    ...segmentTexts.at(-1)!,
    ...epilogueText(context, segments.at(-1)!, options.remainderTn),
  });
  return render('gemmWgmma', {
    ...options,
    expertPlace: options.experts === undefined ? '' : render('wgmmaExpertPlace', options).trimEnd(),
    ...loadTexts(options),
    ...(options.isDeferred ? deferredTexts(context, segmentTexts, { ...rowValues, ...columnCode }) : NOT_DEFERRED),
    ...finishTexts(context),
    ...(options.remainderTn === 0 ? NO_REMAINDER : remainderTexts(context, remainder())),
    head,
    segments: segmentTexts,
    mapNames: Array.from({ length: maps }, (_, i) => `m${i}`),
    descriptorBase: DESCRIPTOR_BASE,
    loop: loopText(options),
    wait: waitText(options.blocks, options.wn),
    release: releaseText(options),
    ...rowValues,
    ...columnCode,
    finalTile: context.finalTile === undefined ? '' : finalTileText(context, context.finalTile),
  });
}
