/** Contractions: work items of mb×nb, register tiles inside, and an epilogue on the finished tile. */
import { type GemmKernel, LOGPROB_BLOCK, type LogProbKernel, partWidth, type Segment } from '../../ir/kernel.js';
import { panelColumns } from '../../ir/packing.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { isQuads, QUAD_COLUMNS, QUADS, unitDepth } from '../../ir/quads.js';
import { roundUp } from '../../ir/types.js';
import { defined } from '../../system/defined.js';
import { drawOperands, storedLogits } from '../operands.js';
import { besideProducts, type BesideProducts, epilogueProgram } from './epilogues.js';
import { amxLines, amxTile, fmaTile, type Helper, type StreamAhead, VECTOR_ISAS } from './micro.js';
import {
  C_TYPES,
  capOf,
  columnStep,
  matricesOf,
  type COperands,
  panelElements,
  panelFormat,
  physicalColumns,
  CRowScope,
} from './operands.js';
import { passUnits, quadBlocks } from './quadBlocks.js';
import { VectorBody } from './scalarPrinter.js';
import { render } from './templates.js';
import type { Emitted } from './unit.js';
import {
  evenBlocks,
  type GemmPlan,
  itemValues,
  lastOffsets,
  minItems,
  placeSegments,
  tileBytesOf,
  tileStride,
} from './workItems.js';

const staticFunction = (name: string, parameters: string, text: string): string =>
  `static void ${name}(\n    const tw_launch *launch, ${parameters}) {\n  (void)launch;\n${text}}\n`;

/** Prints a gemm kernel as C. The schedule must be legal for it (isLegal). */
export function emitGemm(kernel: GemmKernel, operands: COperands, schedule: CpuGemmSchedule, symbol: string): Emitted {
  const blocks = kernel.segments.map((segment) => {
    const physical = physicalColumns(segment.columns, segment.pairing);
    return { physical, nb: evenBlocks(physical, schedule.nb, columnStep(segment)) };
  });
  const ldc = tileStride(Math.max(...blocks.map(({ nb }) => nb)));
  const beside = besideOf(kernel, operands, schedule, symbol, ldc);
  let functions = '';
  let lines = 0;
  const segments = kernel.segments.map((segment: Segment, i) => {
    if (beside !== undefined)
      return { weight: segment.weight, ...blocks[i]!, matrices: matricesOf(segment.pairing), usesLines: false };
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
    };
  });
  const driver = emitDriver(
    {
      symbol,
      rows: kernel.rows,
      k: kernel.k,
      a: kernel.a,
      schedule,
      ldc,
      segments,
      lines,
      beside,
      ...defined({ experts: kernel.experts }),
    },
    operands,
  );
  return { ...driver, source: functions + driver.source };
}

/** The epilogue of a kernel of one segment beside its products. */
function besideOf(
  { segments, k }: GemmKernel,
  operands: COperands,
  schedule: CpuGemmSchedule,
  symbol: string,
  ldc: number,
): BesideProducts | undefined {
  const [segment] = segments;
  if (segments.length !== 1 || segment === undefined) return undefined;
  const { format } = operands.weight(segment.weight).weight;
  const place = { symbol, schedule, ldc };
  if (isQuads(format)) {
    const units = Math.ceil(k / unitDepth(QUADS[format]));
    const steps = lastOf(units, passUnits(units));
    return besideProducts(segment, operands, { ...place, steps, zero: QUADS[format].zero });
  }
  return besideProducts(segment, operands, { ...place, steps: lastOf(Math.ceil(k / 32), Math.ceil(schedule.kc / 32)) });
}

/** How many of `all` are in the last pass if a pass takes `most`. */
const lastOf = (all: number, most: number): number => ((all - 1) % most) + 1;

// What contractions do with a work item: panels by register tiles of floats, of AMX, or of codes.

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

/** A contraction of codes. */
function emitQuadDriver(plan: GemmPlan, operands: COperands): Emitted {
  const { schedule, symbol } = plan;
  const a = operands.get(plan.a);
  const weights = plan.segments.map((segment) => operands.weight(segment.weight).weight);
  const quads = quadBlocks(symbol, weights, plan.k, a, plan);
  const wideOffset = tileBytesOf(plan);
  const groupsOffset = wideOffset + quads.wideBytes;
  const codesOffset = groupsOffset + quads.groupsBytes;
  const { scratchBytes, ...last } = lastOffsets(plan, codesOffset + quads.codesBytes);
  const { segments, across } = placeSegments(plan, operands, QUAD_COLUMNS, (i) => quads.blocks[i]!.panelBytes);
  const source =
    quads.source +
    render('gemm', {
      ...itemValues(plan, operands),
      aType: C_TYPES[a.dtype],
      quads: { ...quads, groupsOffset, codesOffset },
      isNested: plan.experts === undefined,
      ignoresWorkers: plan.experts !== undefined,
      minItems: minItems(schedule.isa),
      isAmx: schedule.isa === 'amx',
      expands: false,
      wideOffset,
      ...last,
      across,
      segments: segments.map((segment, i) => ({ ...segment, ...quads.blocks[i]! })),
    });
  return { includes: quads.includes, source, helpers: quads.helpers, scratchBytes };
}

/** Prints the function of the kernel, and those that multiply. */
export function emitDriver(plan: GemmPlan, operands: COperands): Emitted {
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
    ? amxLines(schedule)
    : Math.max(AHEAD_B, Math.min(16, Math.ceil((((16 * schedule.nr) / panel) * schedule.mr) / schedule.mb)));
  const { beside } = plan;
  const helpers: Helper[] = beside === undefined ? [] : [beside.helper];
  const tile = (mr: number, nr: number, isTail: boolean): string => {
    // Only whole tiles prefetch; the last rows of a block are too few to matter.
    const isMain = mr === schedule.mr && !isTail;
    const aheadA = isMain && fetches ? AHEAD_A : 0;
    const aheadB = isMain && fetches ? fetchedLines : 0;
    const helper = isAmx
      ? amxTile({ mr, nr, lda: a.stride, bp, ldc, lines: isMain ? fetchedLines : 0, ...(isMain ? { beside } : {}) })
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
    beside,
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
  const { scratchBytes, ...last } = lastOffsets(plan, wideOffset + (expands ? kc * schedule.nr * 4 : 0));
  const source =
    block +
    render('gemm', {
      ...types,
      ...itemValues(plan, operands),
      quads: undefined,
      expands,
      wideOffset,
      ...last,
      isAmx,
      across,
      block: blockName,
      panel,
      bp,
      segments,
    });
  return { includes: ['lib/elementary.h', 'lib/amx.h'], source, helpers, scratchBytes };
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

/**
 * Cache lines that tiles of floats prefetch every 16 steps of k, of the rows of the next pass and of the next panel.
 */
const AHEAD_A = 2;
const AHEAD_B = 4;

// The contraction with the vocabulary.

/** The vocabulary contraction: a gemm whose epilogue is an online log-sum-exp over each LOGPROB_BLOCK columns. */
export function emitLogProb(
  kernel: LogProbKernel,
  operands: COperands,
  schedule: CpuGemmSchedule,
  symbol: string,
): Emitted {
  const physical = physicalColumns(kernel.vocab, { kind: 'none' });
  const nb = evenBlocks(physical, schedule.nb, LOGPROB_BLOCK);
  const ldc = tileStride(nb);
  const row = new CRowScope(operands);
  const scale = new VectorBody(row).value(kernel.rowScale, { id: 'x', column: '0', lanes: 16 });
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
    draw: kernel.draw === undefined ? undefined : { ...drawOperands(kernel.draw, operands) },
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
  };
  const driver = emitDriver(
    { symbol, rows: kernel.rows, k: kernel.k, a: kernel.a, schedule, ldc, segments: [segment], lines: 0 },
    operands,
  );
  return { ...driver, includes: [...driver.includes, 'lib/gumbel.h'], source: epilogue + driver.source };
}
