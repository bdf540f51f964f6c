/**
 * Contractions over weights of 4 bits in groups (ir/groups.ts). TMA keeps blocks of codes and their scales in flight;
 * warps turn codes into 16-bit integers in registers, with weights as the rows of mma.sync and rows of the call as its
 * columns. The sum of a group is exact up to the instruction's own rounding, in order of k; totals are added in order
 * of groups by fused multiply-adds within each quarter of k, and quarters in their order, whatever the tile and the
 * number of warps that share it.
 */
import type { CudaGemmSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import { BLOCK_COLUMNS, BLOCK_ROWS, blockWords, type GroupSize, ZERO_BITS } from '../../../ir/groups.js';
import type { GemmKernel, Pairing } from '../../../ir/kernel.js';
import { FUNCTIONS, launchOfTiles, ringOptions, unitPrograms } from '../skinny/ring.js';
import { finishesRows, rowProgramsOf, rowPrologue, segmentsOf } from '../text/contraction.js';
import { finishOfTile } from '../text/lanePrograms.js';
import { type CudaOperands, type EmittedCuda, kernelHead, physicalColumns } from '../text/operands.js';
import { render } from '../text/statements.js';
import { contractionFunctions } from '../wgmma/instruction.js';
import { columnTiles } from '../wgmma/layout.js';
import { groupedBlocks, groupedLayout, type GroupedLayout, RANGES, SLAB, SLABS_OF_CHUNK, SLICE } from './layout.js';

/**
 * How codes become numbers. Bits 0 to 3 of each half of a word, under `magic`, are a float whose last bit weighs a
 * `unit`th; bits 4 to 7 are one less `offset` after a multiplication by `upperFactor`. In bf16 these bits alone are 16
 * codes of the smallest subnormal, and 2^127 makes quarters of them: so everything is in quarters there, and the
 * products are multiplied by 4 at last. In f16 they stay under the same exponent as the lower ones.
 */
const CODES = {
  bf16: {
    magic: '0x42004200',
    magicOffset: '0x42004200',
    unit: '4.0f',
    upperCodes: 'codes & 0x00f000f0u',
    upperFactor: '0x7f007f00',
    zeroAbout: 'Codes c count as quarters: 32 + c/4 and c/4·2^-127, less 32 + zero/4 and zero/4.',
  },
  f16: {
    magic: '0x64006400',
    magicOffset: '0x63806380',
    unit: '1.0f',
    upperCodes: 'tw_masked(codes, 0x00f000f0u, magic)',
    upperFactor: '0x2c002c00',
    zeroAbout: 'Codes c are 1024 + c and 1024 + 16·c, less 1024 + zero and, after division by 16, 64 + zero.',
  },
} as const;

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

/** Prints `kernel` under a legal grouped schedule, without the prelude. No kernel of a plan may write weights. */
export function emitGrouped(
  kernel: GemmKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { tm, tn } = schedule;
  const segments = segmentsOf(kernel);
  const group = groupSizeOf(kernel, operands);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const values = prologue.scalars.length;
  const layout = groupedLayout(schedule, values, group);
  const { warps, groups, split, regions, pitch } = layout;
  const tiles = columnTiles(segments, tn);
  const allChunks = kernel.k / BLOCK_COLUMNS;
  const rangeChunks = Math.ceil(allChunks / RANGES);
  const span = (RANGES / split) * rangeChunks;
  const kBlocks = Math.min(span, allChunks);
  const ringOf = ringOptions(kernel, schedule, layout, tiles, prologue, kBlocks);
  const placed = ringOf.segments.map((place, i) => {
    const { columns, pairing } = segments[i]!;
    return { ...place, blocks: blocksOfChunk(columns, pairing) };
  });
  const shared = { ...ringOf, segments: placed };
  const { threads, prefetch } = shared;
  // The stage whose copies leave one ring of them.
  const lateBlock = Math.max(prefetch, kBlocks - schedule.stages);
  const mmaType = halfType(operands.get(kernel.a).dtype);
  const tensorMaps = tensorMapsOf(kernel, operands, schedule, group);
  const common = {
    ...layout,
    ...loadTexts(schedule, layout, span),
    ...shared,
    group,
    allChunks,
    mmaType,
    lateBlock,
    beginsNextLate: lateBlock < kBlocks,
    ...CODES[mmaType],
    zeroBits: ZERO_BITS,
    rangeChunks,
    span,
    ...(split === RANGES ? { isOneRange: true, blockEnd: kBlocks } : { isOneRange: false, blockEnd: 'end' }),
    rowsFullOffset: 16 * schedule.stages,
    rowsEmptyOffset: 16 * schedule.stages + 8 * layout.rowStages,
    firstValueWarp: layout.consumerWarps + 2,
    isSplit: split > 1,
    isSplitInTwo: split === 2,
    isPartial: allChunks !== split * span,
    tiles: tm / 8,
    own: tm / 2,
    wordsOfGroup: 4 / groups,
    sliceBytes: (SLICE / BLOCK_ROWS) * layout.blockBytes,
    slabBytes: tm * SLAB * 2,
    chunkABytes: SLABS_OF_CHUNK * tm * SLAB * 2,
    regionFloats: tm * pitch,
    regions,
    quarterTile: (tm * tn) / 4,
    quarterRow: tn / 4,
  };
  const head = kernelHead({
    symbol,
    extents: operands.extents,
    parameters,
    tensorMaps,
    threads,
    blocks: groupedBlocks(schedule, layout),
    isRestrict: !finishesRows(kernel),
  });
  const finish = finishOfTile(kernel, operands, { tm, across: tiles.total, warps, isSmall: true }, `row0 / ${tm}`);
  const loop = render('groupedLoop', {
    ...common,
    head,
    about: render('groupedAbout', common),
    consumer: render('groupedConsumer', common),
  });
  return {
    source:
      render('attentionWarp', {}) +
      contractionFunctions({ ...FUNCTIONS, product: '' }) +
      finish.functions +
      render('gemmSkinnyWgmma', {
        ...common,
        loop,
        finish: finish.finish,
        segments: unitPrograms(kernel, operands, schedule, pitch, shared.segments, prologue),
      }),
    tensorMaps,
    waitsForPredecessor: true,
    launch: launchOfTiles(kernel, { tm, threads, sharedBytes: layout.sharedBytes, columnTiles: tiles.total }),
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

/** Statements that fill a stage. */
function loadTexts(
  { tm }: CudaGemmSchedule,
  { split, aBytes, weightsAt, chunkBytes, stageBytes }: GroupedLayout,
  span: number,
): Readonly<Record<'loadA' | 'loadB' | 'loadPrefetchB', string>> {
  const each = (count: number, print: (i: number) => string): string =>
    Array.from({ length: count }, (_, i) => print(i)).join(' ');
  const a = (stage: string, block: string): string =>
    each(split * SLABS_OF_CHUNK, (slab) => {
      const first = (Math.floor(slab / SLABS_OF_CHUNK) * span * SLABS_OF_CHUNK + (slab % SLABS_OF_CHUNK)) * SLAB;
      return (
        `tw_load_box(shared + ${stage} * ${aBytes} + ${slab * tm * SLAB * 2}, &m0, ` +
        `${block} * ${BLOCK_COLUMNS} + ${first}, row0, rowsFull + 8 * ${stage});`
      );
    });
  const b = (stage: string, block: string): string =>
    each(
      split,
      (part) =>
        `tw_load_box(shared + ${stage} * ${stageBytes} + ${weightsAt + part * chunkBytes}, weight, ` +
        `0, (${block} + ${part * span}) * blocks + firstBlock, full + 8 * ${stage});`,
    );
  return {
    loadA: a('stage', 'block'),
    loadB: b('stage', 'block'),
    loadPrefetchB: b('i', 'i'),
  };
}
