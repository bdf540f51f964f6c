/**
 * Contractions on CUDA cores. They support any shape and any pairing, serve as the reference for the other skeletons,
 * and run small heads.
 */
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { BLOCK_COLUMNS, blockWords, groupedBytes } from '../../ir/groups.js';
import { groupWidth } from '../../ir/groupSums.js';
import {
  type GemmKernel,
  LOGPROB_BLOCK,
  type LogProbKernel,
  type Pairing,
  ROW_SUM_BLOCK,
  type Segment,
  type WeightDecl,
} from '../../ir/kernel.js';
import { columnStep, storedLogits } from '../operands.js';
import { expertTiles } from './experts.js';
import { finishesRows, groupValues, programsOf, rowPrologue, type RowPrologue } from './text/contraction.js';
import { finishOfTile } from './text/lanePrograms.js';
import { drawValues, LOGPROB_PIECE, partsBytes } from './text/logprob.js';
import {
  CUDA_TYPES,
  type CudaOperands,
  type EmittedCuda,
  kernelHead,
  leastCommonMultiple,
  matricesOf,
  physicalColumns,
  CudaRowScope,
} from './text/operands.js';
import { LaneBody, programValues, type LaneSite, storeLine } from './text/scalarPrinter.js';
import { capFunctions, capText, indent, render } from './text/statements.js';

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

function tileText(
  kernel: GemmKernel | LogProbKernel,
  weight: string,
  operands: CudaOperands,
  { tm, tn, tk }: CudaGemmSchedule,
): { text: string; values: object } {
  const a = operands.get(kernel.a);
  const w = operands.weight(weight);
  const values = {
    tm,
    tn,
    tk,
    k: kernel.k,
    lda: tm + 1,
    ldb: tn + 1,
    ldt: tn + 1,
    down: tm / 16,
    across: tn / 16,
    a: a.index,
    aType: CUDA_TYPES[a.dtype],
    aDtype: a.dtype,
    aStride: a.stride,
    wType: CUDA_TYPES[w.dtype],
    isGrouped: w.weight.group !== undefined,
    ...weightLoad(w),
  };
  return { text: groupFunctions(w.weight) + render('simtTile', values), values };
}

/** How element (r, k0 + c) behind row 0 of `w` is read, and elements from row to row, of eight rows at a time. */
function weightLoad({ dtype, stride, weight: { group } }: ReturnType<CudaOperands['weight']>) {
  return group === undefined
    ? { wStride: stride, loadW: `tw_load_${dtype}(w + (long long)r * ${stride} + k0 + c)` }
    : { wStride: groupedBytes(1, BLOCK_COLUMNS, group), loadW: 'tw_load_group(w, blocks, r, k0 + c)' };
}

/** The function that reads weights in groups. */
const groupFunctions = ({ group }: WeightDecl): string =>
  group === undefined
    ? ''
    : render('groupedLoad', {
        group,
        words: blockWords(group),
        groups: BLOCK_COLUMNS / group,
      });

/** A gemm kernel on CUDA cores. The schedule must be legal for it (isLegalCuda). */
export function emitGemmSimt(
  kernel: GemmKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { tm, tn } = schedule;
  const tile = tileText(kernel, kernel.segments[0]!.weight, operands, schedule);
  const prologue = rowPrologue(programsOf(kernel.segments), operands);
  let start = 0;
  const segments = kernel.segments.map((segment) => {
    const physical = physicalColumns(segment.columns, segment.pairing);
    const matrices = matricesOf(segment.pairing);
    const placed = {
      start,
      end: start + Math.ceil(physical / tn),
      physical,
      matrices,
      columns: segment.columns,
      blocks: tn / matrices / WARP_COLUMNS,
      weight: operands.get(segment.weight).index,
      ...epilogue(segment, operands, prologue, tn + 1),
    };
    start = placed.end;
    return placed;
  });
  const experts = expertTiles(kernel, operands, tm);
  const warps = SIMT_THREADS / 32;
  const finish = finishOfTile(kernel, operands, { tm, across: start, warps, isSmall: false }, `m0 / ${tm}`);
  const source =
    tile.text +
    experts.text +
    finish.functions +
    render('gemmSimt', {
      ...experts.values,
      ...tile.values,
      head: kernelHead({
        symbol,
        extents: operands.extents,
        parameters,
        tensorMaps: [],
        threads: SIMT_THREADS,
        isRestrict: !finishesRows(kernel),
      }),
      rows: kernel.rows,
      segments,
      finish: finish.finish,
      sumBlock: ROW_SUM_BLOCK,
      ...prologueText(prologue, bufferBytes(schedule)),
    });
  return {
    source,
    tensorMaps: [],
    waitsForPredecessor: true,
    launch: {
      threads: SIMT_THREADS,
      sharedBytes: simtSharedBytes(schedule, prologue.scalars.length, kernel),
      cluster: 1,
      gridX: { kind: 'tiles', extent: kernel.rows, per: experts.per, times: 1 },
      gridY: { kind: 'constant', count: start },
    },
  };
}

const prologueText = (prologue: RowPrologue, offset: number): object => ({
  valuesOffset: offset / 4,
  hasValues: prologue.scalars.length > 0,
  prologue: prologue.text('row', `values + i * ${prologue.scalars.length}`, 2),
});

/** Position, in a row of the tile, of logical column `c`. The tile consists of whole heads or pairs. */
function lying(pairing: Pairing, c: string, index: 0 | 1): string {
  switch (pairing.kind) {
    case 'none':
      return c;
    case 'interleave':
      return `(${c}) / ${pairing.width} * ${2 * pairing.width} + (${c}) % ${pairing.width} + ${index * pairing.width}`;
    case 'rotate': {
      const { headDim, width } = pairing;
      const half = headDim / 2;
      return [
        `(${c}) / ${headDim} * ${headDim}`,
        `(${c}) % ${half} / ${width} * ${2 * width}`,
        `(${c}) % ${half} % ${width}`,
        `(${c}) % ${headDim} / ${half} * ${width}`,
      ].join(' + ');
    }
    default:
      return pairing satisfies never;
  }
}

/** A warp's epilogue for 32 logical columns of one row, one column per lane. */
function epilogue(
  segment: Segment,
  operands: CudaOperands,
  prologue: RowPrologue,
  ldt: number,
): { row: string; program: string; close: string; sums: string[] } {
  const { pairing, outputs } = segment;
  const row = new CudaRowScope(operands, 'row', 'r', prologue.given(`values + i * ${prologue.scalars.length}`));
  const body = new LaneBody(row);
  const at = (id: string, column: string): LaneSite => ({
    id,
    column,
    lanes: 1,
    acc: (index) => `tile[i * ${ldt} + ${lying(pairing, `${column} - c0`, index)}]`,
  });
  const groups = laneGroups(segment, row, ldt);
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
  const values = outputs.map((output) => programValues(output, body, site)[0]!);
  const then = outputs.map((output, i) =>
    output.kind === 'rowSum'
      ? `s${sums.indexOf(output)} = ${values[i]!};`
      : storeLine(operands.get(output.buffer), row, site, [values[i]!], output.via),
  );
  const close = sums.map(
    ({ buffer }, i) =>
      `if (lane % ${ROW_SUM_BLOCK} == 0 && column < ${segment.columns}) ` +
      `${row.rowPointer(operands.get(buffer), undefined)}[column / ${ROW_SUM_BLOCK}] = s${i};`,
  );
  return {
    row: indent([...row.lines, ...groups.lines], 3),
    program: indent([...body.lines, ...then], 4),
    close: indent(close, 3),
    sums: sums.map((_, i) => `s${i}`),
  };
}

/** What the group of a lane's column shares. Each quad of lanes lies in one group, whose products are in the tile. */
function laneGroups(
  segment: Segment,
  row: CudaRowScope,
  ldt: number,
): { readonly lines: readonly string[]; readonly given: Pick<LaneSite, 'given'> } {
  const { pairing, outputs, columns } = segment;
  const width = groupWidth(outputs);
  if (width === undefined) return { lines: [], given: {} };
  const inTile = (c: string): string => lying(pairing, `(group0 - c0 + ${c})`, 0);
  const values = groupValues({ ...segment, pairing: { kind: 'none' } }, row, {
    prefix: 'l',
    count: 1,
    column: 'group0',
    acc: (group, offset) => `tile[i * ${ldt} + ${inTile(`8 * (${group}) + 2 * (lane % 4) + ${offset}`)}]`,
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
  parameters: number,
): EmittedCuda {
  const { tm, tn } = schedule;
  const tile = tileText(kernel, kernel.weight, operands, schedule);
  const prologue = rowPrologue([kernel.rowScale], operands);
  const row = new CudaRowScope(operands, 'row', 'r', prologue.given(`values + i * ${prologue.scalars.length}`));
  const scale = new LaneBody(row).floats(kernel.rowScale, { id: 'x', column: '0', lanes: 1 })[0]!;
  const parts = operands.get(kernel.parts);
  const draw = drawValues(kernel, operands);
  const valueBytes = tm * prologue.scalars.length * 4;
  const source =
    tile.text +
    capFunctions(kernel.cap) +
    render('logprobParts', { tm, block: LOGPROB_BLOCK, pieces: LOGPROB_BLOCK / LOGPROB_PIECE, ...draw }) +
    render('logprobSimt', {
      ...draw,
      ...tile.values,
      head: kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads: SIMT_THREADS }),
      rows: kernel.rows,
      ...prologueText(prologue, bufferBytes(schedule)),
      partsOffset: (bufferBytes(schedule) + valueBytes) / 4,
      block: LOGPROB_BLOCK,
      weight: operands.get(kernel.weight).index,
      physical: physicalColumns(kernel.vocab, { kind: 'none' }),
      blocks: tn / LOGPROB_PIECE,
      row: indent(row.lines, 3),
      scale,
      ...capText(kernel.cap),
      vocab: kernel.vocab,
      target: operands.get(kernel.target).index,
      parts: parts.index,
      partsStride: parts.stride,
      logits: storedLogits(kernel, operands),
    });
  return {
    source,
    tensorMaps: [],
    waitsForPredecessor: true,
    launch: {
      threads: SIMT_THREADS,
      sharedBytes: simtSharedBytes(schedule, prologue.scalars.length, kernel),
      cluster: 1,
      gridX: { kind: 'tiles', extent: kernel.rows, per: tm, times: 1 },
      gridY: { kind: 'constant', count: Math.ceil(kernel.vocab / LOGPROB_BLOCK) },
    },
  };
}
