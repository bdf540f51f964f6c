/**
 * Contractions of few rows, as decoding makes them: gemm/skinny.cuh on every GPU, gemm/skinnyWgmma.cuh on Hopper. They
 * are limited by the memory that weights are read from, and keep many bytes in flight. Every element is added up in one
 * accumulator in order of k, as the other tensor-core skeletons do it, so results have the same bits.
 */
import type { CudaGemmSchedule, RoutingUse } from '../../../ir/cuda.js';
import type { ContractionKernel, Routing } from '../../../ir/kernel.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { shrinkersField, shrinkingKernel } from '../adapter/shrinkers.js';
import { adapterBytes, adapterField, secondMapsOf } from '../text/adapters.js';
import { finishesRows, rowProgramsOf, rowPrologue, segmentsOf } from '../text/contraction.js';
import { type CudaOperands, type EmittedCuda, kernelHead } from '../text/operands.js';
import { aboutKernel, type ConfigFields, unitText } from '../text/unit.js';
import { operandType } from '../wgmma/instruction.js';
import { columnTiles } from '../wgmma/layout.js';
import { productMaps } from '../wgmma/tensorMaps.js';
import { fewRowsHead, fewRowsText, launchOfTiles, mapsOf } from './fewRows.js';
import {
  blocksOf,
  needsGroups,
  skinnyCopiers,
  skinnySharedBytes,
  skinnyStep,
  skinnyWarps,
  skinnyWgmmaLayout,
} from './layout.js';

/** Most threads of a block that leave registers for a second block, which may be the next kernel's. */
const THREADS_OF_TWO = 512;

/**
 * Threads of a block with shrinkers for which the compiler finds registers, though it may have fewer. With more than
 * the 168 of these for each, it keeps the places of wgmma's operands in registers that are not uniform, from which each
 * stage of the main loop moves them.
 */
const THREADS_OF_REGISTERS = 384;

/** Fields of SkinnyConfig (gemm/skinny.cuh), in order. */
interface SkinnyConfig extends ConfigFields {
  readonly k: number;
  readonly aStride: number;
  readonly wStride: number;
  readonly tileM: number;
  readonly tileN: number;
  readonly tileK: number;
  readonly stages: number;
  readonly warpM: number;
  readonly warpN: number;
  readonly copierWarps: number;
  readonly rowValues: number;
  readonly threads: number;
  readonly sharedBytes: number;
  readonly adapter?: ConfigFields;
}

/** Prints `kernel` under a legal skinny schedule. No kernel of a plan may write weights. */
export function emitSkinny(
  kernel: ContractionKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
): EmittedCuda {
  const { tm, tn, tk, stages } = schedule;
  const isLogProb = kernel.anchor === 'logprob';
  const segments = segmentsOf(kernel);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const { wm, wn, warps } = skinnyWarps(schedule, skinnyStep(segments));
  const copierWarps = skinnyCopiers(schedule, warps, isLogProb);
  const a = operands.get(kernel.a);
  const { total } = columnTiles(segments, tn);
  const threads = 32 * (warps + copierWarps);
  const rowValues = prologue.scalars.length;
  const ownBytes = skinnySharedBytes(schedule, rowValues);
  const sharedBytes = ownBytes + adapterBytes(kernel, ownBytes);
  const config: SkinnyConfig = {
    k: kernel.k,
    aStride: a.stride,
    wStride: operands.weight(segments[0]!.weight).stride,
    tileM: tm,
    tileN: tn,
    tileK: tk,
    stages,
    warpM: wm,
    warpN: wn,
    copierWarps,
    rowValues,
    threads,
    sharedBytes,
    ...adapterField(kernel, operands),
  };
  const hasGroups = needsGroups(segments);
  const { functors, body } =
    kernel.anchor === 'gemm'
      ? fewRowsText({
          ...{ kernel, operands, prologue, schedule, across: total, warps },
          callee: `${hasGroups ? 'skinny_gemm_of_groups' : 'skinny_gemm'}<config>`,
          a: operands.nameOf(a),
          hasCopiers: copierWarps > 0 && !hasGroups,
        })
      : fewRowsHead(kernel, operands, prologue, { callee: 'skinny_head<config>', a: operands.nameOf(a) });
  return {
    source: unitText({
      about: aboutKernel(kernel, `few rows by mma, ${tm} × ${tn} × ${tk}, ${stages} stages`),
      includes: [isLogProb ? 'head/skinny.cuh' : 'gemm/skinny.cuh'],
      config: { type: 'SkinnyConfig', fields: config },
      functors,
      head: kernelHead({
        symbol,
        extents: operands.extents,
        operands,
        tensorMaps: [],
        threads,
        blocks: threads <= THREADS_OF_TWO ? 2 : 1,
        isRestrict: !finishesRows(kernel),
      }),
      body,
    }),
    tensorMaps: [],
    waitsForPredecessor: true,
    launch: launchOfTiles(kernel, { tm, threads, columnTiles: total, sharedBytes }),
  };
}

/** Fields of SkinnyWgmmaConfig (gemm/skinnyWgmma.cuh), in order. */
interface SkinnyWgmmaConfig extends ConfigFields {
  readonly tileM: number;
  readonly tileN: number;
  readonly tileK: number;
  readonly stages: number;
  readonly cluster: number;
  readonly parts?: number;
  readonly k: number;
  readonly elementBytes: number;
  readonly unitN: number;
  readonly rowValues: number;
  readonly spareWarps?: number;
  readonly threads: number;
  readonly sharedBytes: number;
  readonly adapter?: ConfigFields;
  readonly shrinkers?: ConfigFields;
}

/** Where the column tiles of logits lie among those of a product. */
export interface RoutingTiles {
  readonly first: number;
  readonly count: number;
  readonly across: number;
}

/** Prints what a product runs of its routing: what stands before its head, and a call behind its products. */
export type RoutingPrinter = (
  routing: Routing,
  operands: CudaOperands,
  tiles: RoutingTiles,
  how: { readonly routes: RoutingUse; readonly threads: number },
) => {
  readonly functors: readonly string[];
  /** The instance of the product's prologue, with what helpers do. */
  readonly prologue: (own: string) => string;
  readonly call: string;
};

/** Prints `kernel` under a legal skinnyWgmma schedule. No kernel of a plan may write weights. */
export function emitSkinnyWgmma(
  kernel: ContractionKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  routingText: RoutingPrinter,
): EmittedCuda {
  const { tm, tn, tk, stages, cluster, parts } = schedule;
  const segments = segmentsOf(kernel);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const rowValues = prologue.scalars.length;
  const type = operandType(operands.get(kernel.a).dtype);
  const layout = skinnyWgmmaLayout(schedule, type, rowValues, kernel);
  const { total } = columnTiles(segments, tn);
  const threads = 32 * layout.warps;
  const tensorMaps = [
    ...productMaps({
      kernel,
      segments,
      operands,
      options: { tm, cluster: 1, remainderTn: 0, boxRows: tn, sharers: cluster },
    }),
    ...secondMapsOf(kernel, operands, tn),
  ];
  const { sharedBytes } = layout;
  const config: SkinnyWgmmaConfig = {
    tileM: tm,
    tileN: tn,
    tileK: tk,
    stages,
    cluster,
    ...(parts === undefined ? {} : { parts }),
    k: kernel.k,
    elementBytes: DTYPE_BYTES[type],
    unitN: skinnyStep(segments),
    rowValues,
    ...(layout.spareWarps === 0 ? {} : { spareWarps: layout.spareWarps }),
    threads,
    sharedBytes,
    ...shrinkingField(adapterField(kernel, operands)),
  };
  const routing = routingOf();
  const [a, ...maps] = mapsOf(operands, tensorMaps);
  const [weightMaps, secondMaps] = [maps.slice(0, segments.length), maps.slice(segments.length)];
  const { functors, body } =
    kernel.anchor === 'gemm'
      ? fewRowsText({
          ...{ kernel, operands, prologue, schedule, across: total, warps: layout.warps },
          ...{ callee: `skinny_wgmma_gemm<config, ${type}>`, a: a!, weightMaps, secondMaps },
          ...(routing === undefined ? {} : { prologueWith: routing.prologue }),
        })
      : fewRowsHead(kernel, operands, prologue, {
          ...{ callee: `skinny_wgmma_head<config, ${type}>`, a: a!, weightMaps },
        });
  return {
    source: unitText({
      about: aboutKernel(kernel, `few rows by wgmma, ${tm} × ${tn} × ${tk}, ${stages} stages`),
      includes: [
        kernel.anchor === 'gemm' ? 'gemm/skinnyWgmma.cuh' : 'head/skinnyWgmma.cuh',
        ...(routing === undefined ? [] : ['experts/pairs.cuh']),
      ],
      config: { type: 'SkinnyWgmmaConfig', fields: config },
      functors: [...functors, ...(routing?.functors ?? [])],
      head: kernelHead({
        symbol,
        extents: operands.extents,
        operands,
        tensorMaps,
        threads:
          layout.shrinkers === undefined || blocksOf(layout) > 1 ? threads : Math.max(threads, THREADS_OF_REGISTERS),
        blocks: blocksOf(layout),
        isRestrict: !finishesRows(kernel) && routing === undefined,
      }),
      body: routing === undefined ? body : `${body.trimEnd()}\n  ${routing.call}`,
    }),
    tensorMaps,
    waitsForPredecessor: true,
    launch: launchOfTiles(kernel, { tm, threads, sharedBytes, columnTiles: total, cluster: parts ?? cluster }),
  };

  /** What chooses experts behind the products, where the schedule says so. */
  function routingOf() {
    const { routes } = schedule;
    if (kernel.anchor !== 'gemm' || kernel.routing === undefined || routes === undefined) return undefined;
    const { logits } = kernel.routing.route;
    const at = segments.findIndex(({ outputs }) => outputs.some(({ buffer }) => buffer === logits));
    const [before, own] = [segments.slice(0, at), segments.slice(at, at + 1)].map(
      (each) => columnTiles(each, tn).total,
    );
    return routingText(kernel.routing, operands, { first: before!, count: own!, across: total }, { routes, threads });
  }

  /** What was shrunk is in shared memory where the kernel shrinks it itself. */
  function shrinkingField({ adapter }: ReturnType<typeof adapterField>) {
    const shrinking = shrinkingKernel(kernel, schedule);
    if (adapter === undefined || shrinking === undefined || layout.shrinkers === undefined)
      return adapter === undefined ? {} : { adapter };
    const { stride, shrinkers } = shrinkersField(shrinking, operands, layout.shrinkers, total);
    return { adapter: { ...adapter, stride }, shrinkers };
  }
}
