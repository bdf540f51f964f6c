/**
 * Contractions over weights of 4 bits in groups (ir/groups.ts). TMA keeps blocks of codes and their scales in flight;
 * warps turn codes into 16-bit integers in registers, with weights as the rows of mma.sync and rows of the call as its
 * columns. The sum of a group is exact up to the instruction's own rounding, in order of k; totals are added in order
 * of groups by fused multiply-adds, whatever the tile and the number of warps that share it.
 */
import type { CudaGemmSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import { BLOCK_COLUMNS, BLOCK_ROWS, blockWords, type GroupSize } from '../../../ir/groups.js';
import type { GemmKernel } from '../../../ir/kernel.js';
import { finishesRows, rowProgramsOf, segmentsOf } from '../text/contraction.js';
import { finishOfTile } from '../text/finish.js';
import { kernelHead, physicalColumns, type CudaOperands, type EmittedCuda } from '../text/operands.js';
import { rowPrologue } from '../text/programs.js';
import { render } from '../text/templates.js';
import { blocksOf, FUNCTIONS, launchOfTiles, ringOptions, unitPrograms } from '../skinny/ring.js';
import { columnTiles } from '../wgmma/layout.js';
import { groupedLayout, SLAB, SLABS_OF_CHUNK, SLICE, type GroupedLayout } from './layout.js';

/** 16-bit floats whose last bit weighs 1, twice in a word: 128 in bf16, 1,024 in f16. */
const MAGIC = { bf16: '0x43004300', f16: '0x64006400' } as const;

function halfType(dtype: string): 'bf16' | 'f16' {
  if (dtype === 'f16' || dtype === 'bf16') return dtype;
  throw new Error(`Weights in groups are multiplied by 16-bit numbers, not ${dtype}.`);
}

/** Groups of the weights of a kernel. Throws where they have none. */
export function groupSizeOf(kernel: GemmKernel, operands: CudaOperands): GroupSize {
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
  const { warps, groups, split, chunks, pitch } = layout;
  const tiles = columnTiles(segments, tn);
  const allChunks = kernel.k / BLOCK_COLUMNS;
  const shared = ringOptions(kernel, schedule, layout, tiles, prologue);
  const { threads } = shared;
  const mmaType = halfType(operands.get(kernel.a).dtype);
  const tensorMaps = tensorMapsOf(kernel, operands, schedule, group);
  const common = {
    ...layout,
    ...loadTexts(schedule, layout),
    ...shared,
    ...{ group, allChunks, mmaType },
    magic: MAGIC[mmaType],
    isSplit: split > 1,
    isPartial: allChunks % chunks !== 0,
    rounds: chunks / split,
    tiles: tm / 8,
    own: (tm / 8) * (4 / split),
    wordsOfGroup: 4 / groups,
    blockWords: layout.blockBytes / 4,
    sliceBytes: (SLICE / BLOCK_ROWS) * layout.blockBytes,
    slabBytes: tm * SLAB * 2,
    sliceFloats: split * groups * tm * SLICE,
    splitThreads: 32 * split,
    exchangeOffset: layout.exchangeOffset / 4,
  };
  const head = kernelHead({
    ...{ symbol, extents: operands.extents, parameters, tensorMaps, threads },
    blocks: blocksOf(layout),
    isRestrict: !finishesRows(kernel),
  });
  const finish = finishOfTile(kernel, operands, { tm, across: tiles.total, warps, isSmall: true }, `row0 / ${tm}`);
  const ring = { ...common, stageBytes: layout.copiedBytes };
  const loop = render('skinnyWgmma', {
    ...ring,
    head,
    about: render('groupedAbout', common),
    consumer: render('groupedConsumer', common),
  });
  return {
    source:
      render('attentionWarp', {}) +
      render('wgmmaFunctions', { ...FUNCTIONS, product: '' }) +
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

/** Map 0 is the left operand, a box one slab of it; then each segment's weight, a box all blocks of one chunk. */
function tensorMapsOf(
  kernel: GemmKernel,
  operands: CudaOperands,
  { tm, tn }: CudaGemmSchedule,
  group: GroupSize,
): TensorMapDecl[] {
  const a = operands.get(kernel.a);
  const words = blockWords(group);
  const columns = (kernel.k / BLOCK_COLUMNS) * words;
  return [
    {
      ...{ parameter: a.index, dtype: halfType(a.dtype), rows: kernel.rows, columns: kernel.k, stride: a.stride },
      ...{ boxRows: tm, boxColumns: SLAB, swizzle: 128 },
    },
    ...kernel.segments.map(({ weight, columns: own, pairing }): TensorMapDecl => ({
      ...{ parameter: operands.get(weight).index, dtype: 'f32', rows: physicalColumns(own, pairing) / BLOCK_ROWS },
      ...{ columns, stride: columns, boxRows: tn / BLOCK_ROWS, boxColumns: words, swizzle: 0 },
    })),
  ];
}

/** Statements that fill a stage. */
function loadTexts(
  { tm, tk }: CudaGemmSchedule,
  { chunks, aBytes, blockBytes, chunkBytes, stageBytes }: GroupedLayout,
): Readonly<Record<'loadA' | 'loadB' | 'loadPrefetchA' | 'loadPrefetchB', string>> {
  const each = (count: number, print: (i: number) => string): string =>
    Array.from({ length: count }, (_, i) => print(i)).join(' ');
  const a = (stage: string, block: string): string =>
    each(
      chunks * SLABS_OF_CHUNK,
      (slab) =>
        `tw_load_box(shared + ${stage} * ${stageBytes} + ${slab * tm * SLAB * 2}, &m0, ` +
        `${block} * ${tk} + ${slab * SLAB}, row0, full + 8 * ${stage});`,
    );
  const b = (stage: string, block: string): string =>
    each(
      chunks,
      (chunk) =>
        `tw_load_box(shared + ${stage} * ${stageBytes} + ${aBytes + chunk * chunkBytes}, weight, ` +
        `(${block} * ${chunks} + ${chunk}) * ${blockBytes / 4}, column0 / ${BLOCK_ROWS}, full + 8 * ${stage});`,
    );
  return {
    loadA: a('stage', 'block'),
    loadB: b('stage', 'block'),
    loadPrefetchA: a('i', 'i'),
    loadPrefetchB: b('i', 'i'),
  };
}
