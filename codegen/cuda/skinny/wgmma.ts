/**
 * Contractions of few rows on Hopper: TMA keeps many bytes of weights in flight with one instruction for each slab of a
 * stage, and wgmma multiplies them, so that few warps are enough for a tile. Every element is added up in one
 * accumulator in order of k, as the wgmma skeleton adds it, so results have the same bits.
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { CudaOperands, EmittedCuda } from '../text/operands.js';
import { kernelHead } from '../text/operands.js';
import type { Contraction } from '../text/contraction.js';
import { finishesRows, rowProgramsOf, segmentsOf } from '../text/contraction.js';
import { finishOfTile } from '../text/finish.js';
import { rowPrologue } from '../text/rowPrologue.js';
import { render } from '../text/templates.js';
import { DESCRIPTOR_BASE, descriptorUnits, operandType, SLAB_BYTES } from '../wgmma/instruction.js';
import { columnTiles } from '../wgmma/layout.js';
import { loadTexts } from '../wgmma/loads.js';
import { keepLogitsText, logProbFunctions, logProbText } from '../wgmma/logprob.js';
import { MULTIPLY, productText, releaseText, stepOffsets, waitText } from '../wgmma/mainLoop.js';
import { tensorMapsOf } from '../wgmma/tensorMaps.js';
import { contractionFunctions } from '../wgmma/functions.js';
import { blocksOf, FUNCTIONS, launchOfTiles, ringOptions, unitPrograms } from './ring.js';
import { skinnyWgmmaLayout } from './wgmmaLayout.js';

/** Prints `kernel` under a legal skinnyWgmma schedule, without the prelude. No kernel of a plan may write weights. */
export function emitSkinnyWgmma(
  kernel: Contraction,
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
