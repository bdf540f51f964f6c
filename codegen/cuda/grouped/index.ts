/** Contractions over weights of 4 bits in groups (ir/groups.ts): gemm/grouped.cuh. */
import type { CudaGemmSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import { BLOCK_COLUMNS, BLOCK_ROWS, blockWords, type GroupSize } from '../../../ir/groups.js';
import type { GemmKernel, Pairing } from '../../../ir/kernel.js';
import { fewRowsText, launchOfTiles, mapsOf } from '../skinny/fewRows.js';
import { skinnyStep } from '../skinny/layout.js';
import { adapterField } from '../text/adapters.js';
import { finishesRows, rowProgramsOf, rowPrologue, segmentsOf } from '../text/contraction.js';
import { type CudaOperands, type EmittedCuda, kernelHead, physicalColumns } from '../text/operands.js';
import { aboutKernel, type ConfigFields, unitText } from '../text/unit.js';
import { columnTiles } from '../wgmma/layout.js';
import { groupedBlocks, groupedLayout, SLAB } from './layout.js';

function halfType(dtype: string): 'bf16' | 'f16' {
  if (dtype === 'f16' || dtype === 'bf16') return dtype;
  throw new Error(`Weights in groups are multiplied by 16-bit numbers, not ${dtype}.`);
}

/** Groups of the weights of a kernel. Throws where they have none. */
function groupSizeOf(kernel: GemmKernel, operands: CudaOperands): GroupSize {
  const { group } = operands.weight(kernel.segments[0]!.weight).weight;
  if (group === undefined) throw new Error(`Kernel ${kernel.name}: its weights are in no groups.`);
  return group;
}

/** Fields of GroupedConfig (gemm/grouped.cuh), in order. */
interface GroupedConfig extends ConfigFields {
  readonly tileM: number;
  readonly tileN: number;
  readonly tileK: number;
  readonly stages: number;
  readonly k: number;
  readonly group: number;
  readonly unitN: number;
  readonly rowValues: number;
  readonly threads: number;
  readonly sharedBytes: number;
  readonly adapter?: ConfigFields;
}

/** Prints `kernel` under a legal grouped schedule. No kernel of a plan may write weights. */
export function emitGrouped(
  kernel: GemmKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
): EmittedCuda {
  const { tm, tn, tk, stages } = schedule;
  const segments = segmentsOf(kernel);
  const group = groupSizeOf(kernel, operands);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const rowValues = prologue.scalars.length;
  const layout = groupedLayout(kernel, schedule, rowValues, group);
  const { warps, sharedBytes } = layout;
  const { total } = columnTiles(segments, tn);
  const [threads, type] = [32 * warps, halfType(operands.get(kernel.a).dtype)];
  const tensorMaps = tensorMapsOf(kernel, operands, schedule, group);
  const config: GroupedConfig = {
    tileM: tm,
    tileN: tn,
    tileK: tk,
    stages,
    k: kernel.k,
    group,
    unitN: skinnyStep(segments),
    rowValues,
    threads,
    sharedBytes,
    ...adapterField(kernel, operands),
  };
  const [a, ...weightMaps] = mapsOf(operands, tensorMaps);
  const { functors, body } = fewRowsText({
    ...{ kernel, operands, prologue, schedule, across: total, warps },
    ...{ callee: `grouped_gemm<config, ${type}>`, a: a!, weightMaps },
  });
  return {
    source: unitText({
      about: aboutKernel(kernel, `4-bit groups of ${group}, ${tm} × ${tn} × ${tk}, ${stages} stages`),
      includes: ['gemm/grouped.cuh'],
      config: { type: 'GroupedConfig', fields: config },
      functors,
      head: kernelHead({
        symbol,
        extents: operands.extents,
        operands,
        tensorMaps,
        threads,
        blocks: groupedBlocks(schedule, layout),
        isRestrict: !finishesRows(kernel),
      }),
      body,
    }),
    tensorMaps,
    waitsForPredecessor: true,
    launch: launchOfTiles(kernel, { tm, threads, sharedBytes, columnTiles: total }),
  };
}

/**
 * Map 0 is the left operand, a box one slab of it; then each segment's weight, a row for each block of all chunks, a
 * box those of the tile's columns in one chunk.
 */
function tensorMapsOf(
  kernel: GemmKernel,
  operands: CudaOperands,
  { tm, tn }: CudaGemmSchedule,
  group: GroupSize,
): TensorMapDecl[] {
  const a = operands.get(kernel.a);
  const words = blockWords(group);
  const chunks = kernel.k / BLOCK_COLUMNS;
  return [
    {
      parameter: a.index,
      dtype: halfType(a.dtype),
      rows: kernel.rows,
      columns: kernel.k,
      stride: a.stride,
      boxRows: tm,
      boxColumns: SLAB,
      swizzle: 128,
    },
    ...kernel.segments.map(({ weight, columns: own, pairing }): TensorMapDecl => ({
      parameter: operands.get(weight).index,
      dtype: 'f32',
      rows: chunks * blocksOfChunk(own, pairing),
      columns: words,
      stride: words,
      boxRows: tn / BLOCK_ROWS,
      boxColumns: words,
      swizzle: 0,
    })),
  ];
}

const blocksOfChunk = (columns: number, pairing: Pairing): number => physicalColumns(columns, pairing) / BLOCK_ROWS;
