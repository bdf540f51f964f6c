/** Contractions: work items of mb×nb, register tiles inside, and an epilogue on the finished tile. */
import { drawOperands, storedLogits } from '../operands.js';
import type { ExtentName } from '../../ir/types.js';
import type { ExpertRows, GemmKernel, LogProbKernel, Segment } from '../../ir/kernel.js';
import { LOGPROB_BLOCK, partWidth } from '../../ir/kernel.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { panelColumns } from '../../ir/packing.js';
import { isQuads, QUAD_COLUMNS } from '../../ir/quads.js';
import { roundUp } from '../../ir/types.js';
import { quadBlocks } from './gemmQuads.js';
import { VECTOR_ISAS } from './intrinsics.js';
import type { Operands } from './layout.js';
import { C_TYPES, columnStep, matricesOf, panelElements, panelFormat, physicalColumns } from './layout.js';
import type { Helper, StreamAhead } from './micro.js';
import { amxLines, amxTile, fmaTile } from './micro.js';
import { epilogueProgram } from './programLoops.js';
import { capOf } from './literals.js';
import { RowScope } from './rowScope.js';
import { Body } from './scalarPrinter.js';
import { render } from './templates.js';

/** A kernel's source, the functions that it calls, and the scratch memory that each worker needs. */
export interface Emitted {
  readonly source: string;
  readonly helpers: readonly Helper[];
  readonly scratchBytes: number;
}

/** Heights of the last register tile, below mr: every even height if mr is even, because rows are padded to 32. */
function tailRows(mr: number): number[] {
  const step = mr % 2 === 0 ? 2 : 1;
  const tails: number[] = [];
  for (let rows = step; rows < mr; rows += step) tails.push(rows);
  if (step === 2) tails.push(mr);
  return tails;
}

/** Widths of register tiles that cover any multiple of 32 columns. */
function tailColumns(nr: number): number[] {
  const widths = [nr];
  for (let width = nr - 16; width >= 16; width -= 16) if (nr > 32 || 32 % nr !== 0) widths.push(width);
  return widths;
}

interface Plan {
  readonly symbol: string;
  readonly rows: ExtentName;
  readonly k: number;
  readonly a: string;
  readonly schedule: CpuGemmSchedule;
  /** Columns of the tile in memory. */
  readonly ldc: number;
  readonly segments: readonly {
    weight: string;
    physical: number;
    nb: number;
    matrices: number;
    epilogue: string;
    usesLines: boolean;
    columnsPerItem: boolean;
  }[];
  readonly lines: number;
  readonly experts?: ExpertRows;
}

/** Columns of a work item: nb, evened out over the segment in whole steps. */
function evenBlocks(physical: number, nb: number, step: number): number {
  const blocks = Math.ceil(physical / nb);
  return Math.min(nb, roundUp(Math.ceil(physical / blocks), step));
}

/** Work items of all segments, one segment after another. */
function placeSegments(plan: Plan, operands: Operands, panel: number, bp: (index: number) => number): Placed {
  let start = 0;
  const segments = plan.segments.map((segment, i) => {
    const blocks = Math.ceil(segment.physical / segment.nb);
    const matrix = (segment.physical / panel) * bp(i);
    const weight = operands.weight(segment.weight).index;
    const placed = { ...segment, matrix, panel, start, end: start + blocks, weight };
    start += blocks;
    return placed;
  });
  return { segments, across: start };
}

interface Placed {
  readonly segments: readonly object[];
  readonly across: number;
}

/** What the loop over work items is, whatever multiplies. */
function itemValues(plan: Plan, operands: Operands): object {
  const { schedule, symbol, experts } = plan;
  const takesRuns = schedule.isa !== 'amx' && schedule.mb <= STREAM_ROWS && experts === undefined;
  return {
    symbol,
    rows: operands.extentIndex(plan.rows),
    experts: experts === undefined ? undefined : { count: experts.count, starts: operands.get(experts.starts).index },
    usesLines: plan.lines > 0,
    mb: schedule.mb,
    mr: schedule.mr,
    takesRuns,
    isNested: takesRuns,
    a: operands.get(plan.a).index,
    lda: operands.get(plan.a).stride,
  };
}

const tileBytesOf = ({ schedule, ldc }: Plan): number => roundUp(roundUp(schedule.mb, schedule.mr) * ldc * 4, 64);
const linesBytesOf = ({ lines, ldc }: Plan): number => (lines > 0 ? (lines * ldc + 1024) * 4 : 0);

/** A contraction of codes. */
function emitQuadDriver(plan: Plan, operands: Operands): Emitted {
  const { schedule, symbol, ldc } = plan;
  const a = operands.get(plan.a);
  const weights = plan.segments.map((segment) => operands.weight(segment.weight).weight);
  const quads = quadBlocks(symbol, weights, plan.k, a, ldc, schedule);
  const wideOffset = tileBytesOf(plan);
  const groupsOffset = wideOffset + quads.wideBytes;
  const codesOffset = groupsOffset + quads.groupsBytes;
  const linesOffset = codesOffset + quads.codesBytes;
  const { segments, across } = placeSegments(plan, operands, QUAD_COLUMNS, (i) => quads.blocks[i]!.panelBytes);
  const source =
    quads.source +
    render('gemm', {
      ...itemValues(plan, operands),
      aType: C_TYPES[a.dtype],
      quads: { ...quads, groupsOffset, codesOffset },
      isNested: plan.experts === undefined,
      leastItems: LEAST_ITEMS,
      isAmx: schedule.isa === 'amx',
      expands: false,
      wideOffset,
      linesOffset,
      across,
      segments: segments.map((segment, i) => ({ ...segment, ...quads.blocks[i]! })),
    });
  return { source, helpers: quads.helpers, scratchBytes: roundUp(linesOffset + linesBytesOf(plan), 4096) };
}

function emitDriver(plan: Plan, operands: Operands): Emitted {
  const { schedule, symbol, ldc } = plan;
  const a = operands.get(plan.a);
  const weights = plan.segments.map((segment) => operands.weight(segment.weight));
  if (weights.some(({ weight }) => isQuads(weight.format))) return emitQuadDriver(plan, operands);
  const [first] = weights;
  if (first === undefined) throw new Error(`Kernel ${symbol} has no segment.`);
  const isAmx = schedule.isa === 'amx';
  const format = panelFormat(first.weight);
  // With one register tile for all rows, weights are a stream from memory to registers.
  const isStream = !isAmx && schedule.mb === schedule.mr;
  const fetches = !isStream;
  const panel = panelColumns(first.weight);
  const splitsPanel = schedule.nr % panel !== 0;
  // Narrow panels are widened once per work item if enough rows share them, or if tiles would begin between panels;
  // otherwise in registers. Columns of one register tile at a time: what was widened stays in the first-level cache.
  const expands =
    !isAmx && format.elementBits < 32 && (schedule.mb > WIDENED_ROWS || (splitsPanel && panel % schedule.nr !== 0));
  const bp = panelElements(first.weight);
  const vectors = VECTOR_ISAS[schedule.isa];
  const kc = Math.min(schedule.kc, roundUp(plan.k, 32));
  const microPanel = expands ? WIDE_PANEL : panel;
  const microBp = expands ? kc * WIDE_PANEL : bp;
  // Together the tiles that share panels fetch the next ones: 16 cache lines of a panel for 16 steps of k.
  const fetchedLines = isAmx
    ? amxLines(schedule.mb)
    : Math.max(AHEAD_B, Math.min(16, Math.ceil((((16 * schedule.nr) / panel) * schedule.mr) / schedule.mb)));
  const helpers: Helper[] = [];
  const tile = (mr: number, nr: number, isTail: boolean): string => {
    // Only whole tiles prefetch; the last rows of a block are too few to matter.
    const isMain = mr === schedule.mr && !isTail;
    const aheadA = isMain && fetches ? AHEAD_A : 0;
    const aheadB = isMain && fetches ? fetchedLines : 0;
    const helper = isAmx
      ? amxTile({ mr, nr, lda: a.stride, bp, ldc, lines: isMain ? fetchedLines : 0 })
      : fmaTile({
          isa: schedule.isa,
          mr,
          nr,
          rs: a.stride,
          ks: 1,
          panel: microPanel,
          bk: microPanel,
          bp: microBp,
          ldc,
          unroll: isMain ? 4 : 1,
          aheadA,
          aheadB,
          ahead: isStream && !expands && isMain ? streamAhead(mr) : undefined,
          bDtype: expands ? 'f32' : format.element,
        });
    helpers.push(helper);
    return helper.name;
  };
  // A stream computes its padding too: the memory limits it, not arithmetic.
  const tails = isStream ? [] : isAmx ? (schedule.mr === 32 ? [16, 32] : [16]) : tailRows(schedule.mr);
  const columns = tailColumns(schedule.nr).map((nr, n) => ({
    nr,
    panel,
    bp,
    // Tiles side by side on one panel fetch parts of the next one.
    sharesPanel: nr % panel !== 0,
    isMain: n === 0,
    tiles: [
      { mr: schedule.mr, isMain: true, isFirstTail: false, name: tile(schedule.mr, nr, false) },
      ...tails.map((mr, i) => ({ mr, isMain: false, isFirstTail: i === 0, name: tile(mr, nr, true) })),
    ],
  }));
  const blockName = `${symbol}_block`;
  const types = { aType: C_TYPES[a.dtype], wType: C_TYPES[first.dtype] };
  const block = render('block', {
    ...types,
    name: blockName,
    k: plan.k,
    kc,
    isAmx,
    expands,
    bp,
    panel,
    splitsPanel: !expands && splitsPanel,
    microPanel,
    wideColumns: WIDE_PANEL,
    wideVectors: Array.from({ length: WIDE_PANEL / vectors.lanes }, (_, i) => i * vectors.lanes),
    store: vectors.store,
    loadPanel: vectors.loadPanel[format.element],
    microBp,
    lda: a.stride,
    ldc,
    columns,
    mr: schedule.mr,
    nr: schedule.nr,
    isStream,
    fetches,
    // Tile loads leave no room to fetch rows as well.
    fetchesRows: fetches && !isAmx,
    aheadB: fetchedLines,
    bType: expands ? C_TYPES.f32 : types.wType,
    padRows: schedule.mr - 1,
  });
  const { segments, across } = placeSegments(plan, operands, panel, () => bp);
  const wideOffset = tileBytesOf(plan);
  const linesOffset = wideOffset + (expands ? kc * schedule.nr * 4 : 0);
  const source =
    block +
    render('gemm', {
      ...types,
      ...itemValues(plan, operands),
      quads: undefined,
      expands,
      wideOffset,
      linesOffset,
      isAmx,
      across,
      block: blockName,
      panel,
      bp,
      segments,
    });
  return { source, helpers, scratchBytes: roundUp(linesOffset + linesBytesOf(plan), 4096) };
}

/** Columns of a panel that was widened to f32. */
const WIDE_PANEL = 16;

/** Rows up to which every register tile widens panels for itself. For more, storing them widened costs less. */
const WIDENED_ROWS = 48;

/**
 * How far ahead, and into which cache, a stream of weights is prefetched. A core's own prefetcher stops at the end of a
 * page, and what widening a line takes of its window leaves room for few loads under way. With one or two rows lines
 * come into the first-level cache, because nothing but their latency remains. More rows need that cache for themselves.
 */
const streamAhead = (rows: number): StreamAhead =>
  rows <= 2 ? { bytes: 6144, cache: 'first' } : { bytes: 8192, cache: 'second' };

/** Items, of 256 columns or so, that pay for codes of their rows, made once more so that another worker ends sooner. */
const LEAST_ITEMS = 4;

/** Rows of a work item up to which a kernel mostly waits for weights, so that workers take neighbouring items. */
const STREAM_ROWS = 8;

/**
 * Cache lines prefetched every 16 steps of k (every 32 with AMX) from the rows of the next pass and from the next
 * panel.
 */
const AHEAD_A = 2;
const AHEAD_B = 4;

const staticFunction = (name: string, parameters: string, text: string): string =>
  `static void ${name}(\n    const tw_launch *launch, ${parameters}) {\n  (void)launch;\n${text}}\n`;

/** Prints a gemm kernel as C. The schedule must be legal for it (isLegal). */
export function emitGemm(kernel: GemmKernel, operands: Operands, schedule: CpuGemmSchedule, symbol: string): Emitted {
  const blocks = kernel.segments.map((segment) => {
    const physical = physicalColumns(segment.columns, segment.pairing);
    return { physical, nb: evenBlocks(physical, schedule.nb, columnStep(segment)) };
  });
  const ldc = tileStride(Math.max(...blocks.map(({ nb }) => nb)));
  let functions = '';
  let lines = 0;
  const segments = kernel.segments.map((segment: Segment, i) => {
    const epilogue = epilogueProgram(segment, operands, ldc, schedule.isa === 'amx');
    const name = `${symbol}_epilogue${i}`;
    const usesLines = epilogue.lines > 0;
    lines = Math.max(lines, epilogue.lines);
    const linesParameter = usesLines ? ', float *lines' : '';
    const parameters = `float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn${linesParameter}`;
    functions += staticFunction(name, parameters, epilogue.text);
    return {
      weight: segment.weight,
      ...blocks[i]!,
      matrices: matricesOf(segment.pairing),
      epilogue: name,
      usesLines,
      columnsPerItem: true,
    };
  });
  const driver = emitDriver(
    {
      ...{ symbol, rows: kernel.rows, k: kernel.k, a: kernel.a, schedule, ldc, segments, lines },
      ...(kernel.experts === undefined ? {} : { experts: kernel.experts }),
    },
    operands,
  );
  return { ...driver, source: functions + driver.source };
}

/** The vocabulary contraction: a gemm whose epilogue is an online log-sum-exp over each LOGPROB_BLOCK columns. */
export function emitLogProb(
  kernel: LogProbKernel,
  operands: Operands,
  schedule: CpuGemmSchedule,
  symbol: string,
): Emitted {
  const physical = physicalColumns(kernel.vocab, { kind: 'none' });
  const nb = evenBlocks(physical, schedule.nb, LOGPROB_BLOCK);
  const ldc = tileStride(nb);
  const row = new RowScope(operands);
  const scale = new Body(row).value(kernel.rowScale, { id: 'x', column: '0', lanes: 16 });
  if (!scale.isRow) throw new Error(`Kernel ${kernel.name} (${kernel.path}): its row scale differs between columns.`);
  const parts = operands.get(kernel.parts);
  const name = `${symbol}_epilogue`;
  const logits = storedLogits(kernel, operands);
  const epilogue = render('logprob', {
    name,
    ldc,
    extentLines: row.extentLines(),
    rowLines: row.lines,
    scale: scale.kind === 'f' ? scale.code : `(float)${scale.code}`,
    cap: kernel.cap === undefined ? undefined : capOf(kernel.cap),
    vocab: kernel.vocab,
    isPartial: kernel.vocab % 16 !== 0,
    block: LOGPROB_BLOCK,
    width: partWidth(kernel),
    draw:
      kernel.draw === undefined ? undefined : { noise: render('gumbel', {}), ...drawOperands(kernel.draw, operands) },
    target: operands.get(kernel.target).index,
    logits: logits === undefined ? undefined : { ...logits, rows: operands.extentIndex(logits.extent) },
    parts: parts.index,
    partsStride: parts.stride,
  });
  const segment = {
    weight: kernel.weight,
    physical,
    nb,
    matrices: 1,
    epilogue: name,
    usesLines: false,
    columnsPerItem: true,
  };
  const driver = emitDriver(
    { symbol, rows: kernel.rows, k: kernel.k, a: kernel.a, schedule, ldc, segments: [segment], lines: 0 },
    operands,
  );
  return { ...driver, source: epilogue + driver.source };
}

/**
 * Floats from one row of the tile to the next in memory. Never a multiple of 4 KiB, which would put all rows into the
 * same L1 sets.
 */
const tileStride = (columns: number): number => ((columns * 4) % 4096 === 0 ? columns + 16 : columns);
