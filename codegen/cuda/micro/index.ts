/** Contractions of experts' rows over microscaled weights (ir/microscaled.ts): gemm/micro.cuh. */
import type { CudaGemmSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import type { GemmKernel } from '../../../ir/kernel.js';
import { MICRO_BYTES, MICRO_DEPTH, MICRO_ROWS } from '../../../ir/microscaled.js';
import { fewRowsText, mapsOf } from '../skinny/fewRows.js';
import { skinnyStep } from '../skinny/layout.js';
import { rowProgramsOf, rowPrologue, segmentsOf } from '../text/contraction.js';
import { type CudaOperands, type EmittedCuda, kernelHead, physicalColumns } from '../text/operands.js';
import { aboutKernel, type ConfigFields, unitText } from '../text/unit.js';
import { columnTiles } from '../wgmma/layout.js';
import { isWide, microBlocks, microSharedBytes, microWarp } from './layout.js';

/** Fields of MicroConfig (gemm/micro.cuh), in order. */
interface MicroConfig extends ConfigFields {
  readonly tileM: number;
  readonly tileN: number;
  readonly tileK: number;
  readonly stages: number;
  readonly k: number;
  readonly warpN: number;
  readonly unitN: number;
  readonly threads: number;
  readonly sharedBytes: number;
  readonly wide?: boolean;
  readonly areKnown?: boolean;
}

/** Prints `kernel` under a legal schedule. */
export function emitMicro(
  kernel: GemmKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
): EmittedCuda {
  const { tm, tn, tk, stages } = schedule;
  const segments = segmentsOf(kernel);
  const { total } = columnTiles(segments, tn);
  const warpN = microWarp(schedule);
  const warps = tn / warpN;
  const blocks = microBlocks(schedule, segments);
  const threads = 32 * (warps + 1);
  const tensorMaps = tensorMapsOf(kernel, operands, schedule);
  const sharedBytes = microSharedBytes(schedule, segments);
  const config: MicroConfig = {
    tileM: tm,
    tileN: tn,
    tileK: tk,
    stages,
    k: kernel.k,
    warpN,
    unitN: skinnyStep(segments),
    threads,
    sharedBytes,
    ...(isWide(schedule) ? { wide: true } : {}),
    ...(kernel.experts?.areKnown === true ? { areKnown: true } : {}),
  };
  const [a, ...weightMaps] = mapsOf(operands, tensorMaps);
  const { functors, body } = fewRowsText({
    ...{ kernel, operands, prologue: rowPrologue(rowProgramsOf(kernel), operands), schedule, across: total, warps },
    ...{ callee: 'micro_gemm<config>', a: a!, weightMaps, rows: rowsOfExperts(kernel, operands) },
  });
  return {
    source: unitText({
      about: aboutKernel(kernel, `MXFP4, ${tm} × ${tn} × ${tk}, ${stages} stages`),
      includes: ['gemm/micro.cuh'],
      config: { type: 'MicroConfig', fields: config },
      functors,
      head: kernelHead({ symbol, extents: operands.extents, operands, tensorMaps, threads, blocks }),
      body,
    }),
    tensorMaps,
    waitsForPredecessor: true,
    launch: {
      threads,
      sharedBytes,
      cluster: 1,
      gridX: { kind: 'persistent', extent: kernel.rows, per: 1, times: total, blocksPerMultiprocessor: blocks },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}

/** The rows of experts, which are known on the device alone: a C++ expression (experts/tiles.cuh). */
function rowsOfExperts({ experts }: GemmKernel, operands: CudaOperands): string {
  if (experts === undefined) throw new Error('Only weights of experts are microscaled.');
  return `ExpertRows<${experts.count}>{ ${operands.nameOf(operands.get(experts.starts))} }`;
}

/**
 * Map 0 is the left operand, a box one slab of it; then each segment's weight, a row for each block of all chunks of
 * all experts, a box those of the tile's columns in one chunk.
 */
function tensorMapsOf(kernel: GemmKernel, operands: CudaOperands, { tm, tn }: CudaGemmSchedule): TensorMapDecl[] {
  const a = operands.get(kernel.a);
  const words = MICRO_BYTES / 4;
  const chunks = (kernel.experts?.count ?? 1) * (kernel.k / MICRO_DEPTH);
  return [
    {
      parameter: a.index,
      dtype: 'bf16',
      rows: kernel.rows,
      columns: kernel.k,
      stride: a.stride,
      boxRows: tm,
      boxColumns: MICRO_DEPTH,
      swizzle: 128,
    },
    ...kernel.segments.map(({ weight, columns, pairing }): TensorMapDecl => ({
      parameter: operands.get(weight).index,
      dtype: 'f32',
      rows: (chunks * physicalColumns(columns, pairing)) / MICRO_ROWS,
      columns: words,
      stride: words,
      boxRows: tn / MICRO_ROWS,
      boxColumns: words,
      swizzle: 0,
    })),
  ];
}
