/**
 * Contractions on CUDA cores. They support any shape and any pairing, serve as the reference for the other skeletons,
 * and run small heads.
 */
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { BLOCK_COLUMNS, groupedBytes } from '../../ir/groups.js';
import { MICRO_BYTES, MICRO_ROWS } from '../../ir/microscaled.js';
import { groupWidth } from '../../ir/groupSums.js';
import {
  type GemmKernel,
  LOGPROB_BLOCK,
  type LogProbKernel,
  type Pairing,
  ROW_SUM_BLOCK,
  type Segment,
} from '../../ir/kernel.js';
import { columnStep } from '../operands.js';
import { expertRows } from './experts.js';
import { adaptedInstance, adapterField } from './text/adapters.js';
import {
  finishesRows,
  groupValues,
  headsOf,
  programsOf,
  rowPrologue,
  type RowPrologue,
  segmentsOf,
} from './text/contraction.js';
import { finishOfTile } from './text/lanePrograms.js';
import { headBuffers, headConfigText, partsBytes, scaleFunctor } from './text/logprob.js';
import {
  type CudaOperands,
  CudaRowScope,
  type EmittedCuda,
  kernelHead,
  leastCommonMultiple,
  matricesOf,
  physicalColumns,
} from './text/operands.js';
import { LaneBody, type LaneSite, programValue, storeLine } from './text/scalarPrinter.js';
import { prologueFunctor, segmentFunctor, segmentName } from './text/segments.js';
import { block } from './text/statements.js';
import { aboutKernel, callText, type ConfigFields, unitText } from './text/unit.js';

const SIMT_THREADS = 256;

/** Logical columns of a row that a warp finishes together, one per lane. */
const WARP_COLUMNS = 32;

/** The number of physical columns of a tile must be a multiple of this: whole heads, whole pairs and whole warps. */
export const simtStep = (segments: readonly Segment[]): number =>
  segments.map(columnStep).reduce(leastCommonMultiple, WARP_COLUMNS);

const bufferBytes = ({ tm, tn, tk }: CudaGemmSchedule): number => Math.max(tk * (tm + 1 + tn + 1), tm * (tn + 1)) * 4;

/** Bytes of a block's shared memory. `rowValues` floats per row are kept for the epilogue. */
export const simtSharedBytes = (
  schedule: CudaGemmSchedule,
  rowValues: number,
  kernel: GemmKernel | LogProbKernel,
): number =>
  bufferBytes(schedule) +
  schedule.tm * rowValues * 4 +
  (kernel.anchor === 'logprob' ? partsBytes(schedule.tm, kernel) : 0);

/** The fields of SimtConfig (gemm/simt.cuh). */
interface SimtConfig extends ConfigFields {
  readonly k: number;
  readonly aStride: number;
  readonly wStride: number;
  readonly group: number;
  readonly tileM: number;
  readonly tileN: number;
  readonly tileK: number;
  readonly sharedBytes: number;
  readonly adapter?: ConfigFields;
}

function simtConfig(
  kernel: GemmKernel | LogProbKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  rowValues: number,
): SimtConfig {
  const {
    stride,
    weight: { group, layout },
  } = operands.weight(segmentsOf(kernel)[0]!.weight);
  return {
    k: kernel.k,
    aStride: operands.get(kernel.a).stride,
    wStride:
      layout === 'microscaled'
        ? MICRO_BYTES / MICRO_ROWS
        : group === undefined
          ? stride
          : groupedBytes(1, BLOCK_COLUMNS, group),
    group: layout === 'microscaled' ? -1 : (group ?? 0),
    tileM: schedule.tm,
    tileN: schedule.tn,
    tileK: schedule.tk,
    sharedBytes: simtSharedBytes(schedule, rowValues, kernel),
    ...adapterField(kernel, operands),
  };
}

/** A unit of one of gemm/simt.cuh's kernels, once the kernel before has ended. */
const simtUnit = (
  kernel: GemmKernel | LogProbKernel,
  operands: CudaOperands,
  config: SimtConfig,
  symbol: string,
  { header, functors, body }: { header: string; functors: readonly string[]; body: string },
): string =>
  unitText({
    about: aboutKernel(kernel, `${config.tileM} × ${config.tileN} × ${config.tileK} on CUDA cores`),
    includes: [header],
    config: { type: 'SimtConfig', fields: config },
    functors,
    head: kernelHead({
      symbol,
      extents: operands.extents,
      operands,
      tensorMaps: [],
      threads: SIMT_THREADS,
      isRestrict: !finishesRows(kernel),
    }),
    body: `  await_previous();\n${body}`,
  });

const launchOf = (
  { sharedBytes }: SimtConfig,
  { rows }: GemmKernel | LogProbKernel,
  per: number,
  across: number,
): Pick<EmittedCuda, 'tensorMaps' | 'waitsForPredecessor' | 'launch'> => ({
  tensorMaps: [],
  waitsForPredecessor: true,
  launch: {
    threads: SIMT_THREADS,
    sharedBytes,
    cluster: 1,
    gridX: { kind: 'tiles', extent: rows, per, times: 1 },
    gridY: { kind: 'constant', count: across },
  },
});

/** A gemm kernel on CUDA cores. The schedule must be legal for it (isLegalCuda). */
export function emitGemmSimt(
  kernel: GemmKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
): EmittedCuda {
  const { tm, tn } = schedule;
  const prologue = rowPrologue(programsOf(kernel.segments), operands);
  const heads = headsOf(kernel);
  const config = { ...simtConfig(kernel, operands, schedule, prologue.scalars.length), ...heads.fields };
  const prologueOf = prologueFunctor(prologue, operands);
  const segments = heads.each.segments.map((segment) =>
    segmentFunctor(
      segment,
      operands,
      segmentName(segment, operands, kernel.segments.length === 1),
      {
        head:
          'TW_DEVICE void row(int row, int first, int column, int lane, const float *values,\n' +
          '    const float *products) const',
        lines: epilogue(segment, operands, prologue, kernel.heads !== undefined),
      },
      [`static constexpr int matrices = ${matricesOf(segment.pairing)};`],
    ),
  );
  const tiles = heads.each.segments.reduce(
    (sum, { columns, pairing }) => sum + Math.ceil(physicalColumns(columns, pairing) / tn),
    0,
  );
  const across = heads.count * tiles;
  const experts = expertRows(kernel, operands, tm);
  const warps = SIMT_THREADS / 32;
  const finish = finishOfTile(kernel, operands, { tm, across, warps, isSmall: false }, `m0 / ${tm}`);
  const call = callText('simt_gemm<config>', [
    experts.instance ?? kernel.rows,
    operands.nameOf(operands.get(kernel.a)),
    prologueOf.instance,
    ...segments.map((functor, i) => adaptedInstance(kernel, kernel.segments[i]!, operands, functor)),
  ]);
  return {
    source: simtUnit(kernel, operands, config, symbol, {
      header: 'gemm/simt.cuh',
      functors: [prologueOf.text, ...segments.map(({ text }) => text), finish.functions],
      body: finish.finish === '' ? `  ${call}` : `  const int m0 = ${call}\n${finish.finish}`,
    }),
    ...launchOf(config, kernel, experts.per, across),
  };
}

/** Position, in a row of the tile, of logical column `c`. The tile consists of whole heads or pairs. */
function lying(pairing: Pairing, c: string, index: 0 | 1): string {
  switch (pairing.kind) {
    case 'none':
      return c;
    case 'interleave':
      return `interleaved<${pairing.width}, ${index}>(${c})`;
    case 'rotate':
      return `halved<${pairing.headDim}, ${pairing.width}>(${c})`;
    default:
      return pairing satisfies never;
  }
}

/** A warp's epilogue for 32 logical columns of one row, one column per lane: `row` of gemm/simt.cuh. */
function epilogue(segment: Segment, operands: CudaOperands, prologue: RowPrologue, isOfHeads: boolean): string[] {
  const { pairing, outputs, columns } = segment;
  const row = new CudaRowScope(operands, 'row', 'r', prologue.given('values'));
  const body = new LaneBody(
    row,
    outputs.map(({ value }) => value),
  );
  const at = (id: string, column: string): LaneSite => ({
    id,
    column,
    lanes: 1,
    acc: (index) => `products[${lying(pairing, `${column} - first`, index)}]`,
  });
  const groups = laneGroups(segment, row);
  let site: LaneSite = { ...at('x', 'column'), ...groups.given };
  if (pairing.kind === 'rotate') {
    const half = pairing.headDim / 2;
    const isFirst = `column % ${pairing.headDim} < ${half}`;
    const own: LaneSite = { ...site, rotate: { partner: () => other, isNegated: `(${isFirst})` } };
    const other: LaneSite = {
      ...at('y', 'partner'),
      ...groups.given,
      rotate: { partner: () => own, isNegated: `!(${isFirst})` },
    };
    body.lines.push(`const int partner = ${isFirst} ? column + ${half} : column - ${half};`);
    site = own;
  }
  const sums = outputs.filter(({ kind }) => kind === 'rowSum');
  const then = outputs.map((output) =>
    output.kind === 'rowSum'
      ? `s${sums.indexOf(output)} = ${programValue(output, body, site).code};`
      : storeLine(output, body, site),
  );
  const close = sums.map(
    ({ buffer }, i) =>
      `if (lane % ${ROW_SUM_BLOCK} == 0 && column < ${segment.columns}) ` +
      `${row.rowPointer(operands.get(buffer), undefined)}[column / ${ROW_SUM_BLOCK}] = s${i};`,
  );
  return [
    ...row.lines,
    ...groups.lines,
    ...sums.map((_, i) => `float s${i} = 0.0f;`),
    ...block(isOfHeads ? `if (column / ${columns} == first / ${columns})` : `if (column < ${columns})`, [
      ...body.lines,
      ...then,
    ]),
    ...sums.map((_, i) => `s${i} = block_sum(s${i}, ${ROW_SUM_BLOCK});`),
    ...close,
  ];
}

/** What the group of a lane's column shares. Each quad of lanes lies in one group, whose products are in the tile. */
function laneGroups(
  segment: Segment,
  row: CudaRowScope,
): { readonly lines: readonly string[]; readonly given: Pick<LaneSite, 'given'> } {
  const { pairing, outputs, columns } = segment;
  const width = groupWidth(outputs);
  if (width === undefined) return { lines: [], given: {} };
  const inTile = (c: string): string => lying(pairing, `(group0 - first + ${c})`, 0);
  const values = groupValues({ ...segment, pairing: { kind: 'none' } }, row, {
    prefix: 'l',
    count: 1,
    column: 'group0',
    acc: (group, offset) => `products[${inTile(`8 * (${group}) + 2 * (lane % 4) + ${offset}`)}]`,
    quad: '(lane % 4)',
    isWhole: true,
  });
  if (values === undefined) return { lines: [], given: {} };
  const last = `(column < ${columns} ? column : ${columns - 1})`;
  return {
    lines: [`const int group0 = ${last} / ${width} * ${width};`, ...values.lines],
    given: { given: values.given('0') },
  };
}

/** The vocabulary contraction on CUDA cores: LOGPROB_BLOCK columns per block, tn at a time. */
export function emitLogProbSimt(
  kernel: LogProbKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
): EmittedCuda {
  const prologue = rowPrologue([kernel.rowScale], operands);
  const config = simtConfig(kernel, operands, schedule, prologue.scalars.length);
  const prologueOf = prologueFunctor(prologue, operands);
  const scale = scaleFunctor(kernel, operands, prologue);
  const call = callText('  simt_head<config, head_config>', [
    kernel.rows,
    operands.nameOf(operands.get(kernel.a)),
    operands.nameOf(operands.get(kernel.weight)),
    prologueOf.instance,
    scale.instance,
    headBuffers(kernel, operands),
  ]);
  return {
    source: simtUnit(kernel, operands, config, symbol, {
      header: 'head/simt.cuh',
      functors: [headConfigText(kernel, operands), prologueOf.text, scale.text],
      body: call,
    }),
    ...launchOf(config, kernel, schedule.tm, Math.ceil(kernel.vocab / LOGPROB_BLOCK)),
  };
}
