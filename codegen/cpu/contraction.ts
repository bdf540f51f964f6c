/** Contractions: work items of mb×nb, register tiles inside, and an epilogue on the finished tile. */
import { type GemmKernel, LOGPROB_BLOCK, type LogProbKernel, partWidth, type Segment } from '../../ir/kernel.js';
import { panelColumns } from '../../ir/packing.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { isQuads, QUADS, unitDepth } from '../../ir/quads.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { defined } from '../../system/defined.js';
import { drawOperands, storedLogits } from '../operands.js';
import { besideProducts, type BesideProducts, epilogueProgram, headEpilogue } from './epilogues.js';
import { amxLines, amxTile, fmaTile, type Helper, type StreamAhead } from './micro.js';
import {
  capOf,
  columnStep,
  ELEMENT_TYPES,
  elementType,
  matricesOf,
  type COperands,
  panelElements,
  panelFormat,
  physicalColumns,
  CRowScope,
} from './operands.js';
import { rowsLoop } from './programLoops.js';
import { passUnits, quadBlocks } from './quadBlocks.js';
import { VectorBody } from './scalarPrinter.js';
import { adapterFields } from './shrink.js';
import { argumentsText, constantTable, type Emitted, kernelFunction } from './unit.js';
import {
  evenBlocks,
  type GemmPlan,
  itemsConfig,
  lastOffsets,
  segmentsTable,
  tileBytesOf,
  tileStride,
} from './workItems.js';

/** A GemmEpilogue of gemm/items.h. */
const epilogueFunction = (name: string, text: string): string =>
  `static void ${name}(\n    const tw_launch *launch, float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn, ` +
  `float *lines) {\n  (void)launch;\n  (void)lines;\n${text}}\n`;

/** Prints a gemm kernel as C. The schedule must be legal for it (isLegal). */
export function emitGemm(kernel: GemmKernel, operands: COperands, schedule: CpuGemmSchedule, symbol: string): Emitted {
  const { heads } = kernel;
  const blocks = kernel.segments.map((segment) => {
    // Columns of a head, where each head has a matrix of its own.
    const physical = physicalColumns(segment.columns / (heads ?? 1), segment.pairing);
    return { physical, nb: evenBlocks(physical, schedule.nb, columnStep(segment)) };
  });
  const ldc = tileStride(Math.max(...blocks.map(({ nb }) => nb)));
  const beside = besideOf(kernel, operands, schedule, symbol, ldc);
  let functions = '';
  let lines = 0;
  const segments = kernel.segments.map((segment: Segment, i) => {
    if (beside !== undefined) return { weight: segment.weight, ...blocks[i]!, matrices: matricesOf(segment.pairing) };
    const epilogue =
      heads === undefined
        ? epilogueProgram(segment, operands, ldc, schedule.isa === 'amx')
        : headEpilogue(segment, segment.columns / heads, operands, ldc);
    const name = `${symbol}_epilogue${i}`;
    lines = Math.max(lines, epilogue.lines);
    functions += epilogueFunction(name, epilogue.text);
    return {
      weight: segment.weight,
      ...blocks[i]!,
      matrices: matricesOf(segment.pairing),
      epilogue: name,
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
      ...defined({ experts: kernel.experts, adapter: adapterFields(kernel, operands) }),
      ...(heads === undefined ? {} : { heads: { count: heads, columns: kernel.segments[0]!.columns / heads } }),
    },
    operands,
  );
  return { ...driver, source: functions + driver.source };
}

/** The epilogue of a kernel of one segment beside its products. */
function besideOf(
  { segments, k, heads }: GemmKernel,
  operands: COperands,
  schedule: CpuGemmSchedule,
  symbol: string,
  ldc: number,
): BesideProducts | undefined {
  const [segment] = segments;
  if (segments.length !== 1 || segment === undefined || heads !== undefined) return undefined;
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

const adapterTable = ({ adapter }: GemmPlan): readonly string[] => (adapter === undefined ? [] : [adapter.table]);

/** A contraction of codes (gemm/codes.h). */
function emitCodes(plan: GemmPlan, operands: COperands): Emitted {
  const { schedule, symbol, beside } = plan;
  const a = operands.get(plan.a);
  const weights = plan.segments.map((segment) => operands.weight(segment.weight).weight);
  const quads = quadBlocks(symbol, weights, plan.k, a, plan);
  const wideOffset = tileBytesOf(plan);
  const groupsOffset = wideOffset + quads.wideBytes;
  const codesOffset = groupsOffset + quads.groupsBytes;
  const { scratchBytes, linesOffset, valuesOffset } = lastOffsets(plan, codesOffset + quads.codesBytes);
  const config = {
    items: itemsConfig(plan, operands, true),
    a: a.index,
    rowBytes: a.stride * DTYPE_BYTES[a.dtype],
    products: 'products',
    round: quads.round,
    rowValues: (beside?.values ?? 0) > 0 && beside ? `${beside.symbol}_values` : undefined,
    isAmx: schedule.isa === 'amx',
    wideOffset,
    groupsOffset,
    codesOffset,
    linesOffset,
    valuesOffset,
  };
  const tables = [segmentsTable(plan, operands), constantTable('CodesProduct', 'products', quads.blocks)];
  const source = quads.source + kernelFunction({ symbol, tables, type: 'CodesConfig', config, call: 'tw_gemm_codes' });
  return { includes: ['gemm/codes.h', ...quads.includes], source, helpers: quads.helpers, scratchBytes };
}

/** A contraction by tiles of AMX (gemm/amx.h). */
function emitAmx(plan: GemmPlan, operands: COperands): Emitted {
  const { schedule, symbol, ldc, beside } = plan;
  const a = operands.get(plan.a);
  const { weight } = operands.weight(plan.segments[0]!.weight);
  const tile = { nr: schedule.nr, lda: a.stride, bp: panelElements(weight), ldc };
  const lines = amxLines(schedule);
  const main = amxTile({ ...tile, mr: schedule.mr, lines, beside });
  const half = amxTile({ ...tile, mr: 16, lines: 0 });
  const whole = schedule.mr === 32 ? amxTile({ ...tile, mr: 32, lines: 0 }) : undefined;
  const { scratchBytes, linesOffset, valuesOffset } = lastOffsets(plan, tileBytesOf(plan));
  const config = {
    items: itemsConfig(plan, operands, false),
    a: a.index,
    lda: a.stride,
    ldc,
    k: plan.k,
    kc: Math.min(schedule.kc, roundUp(plan.k, 32)),
    panelElements: tile.bp,
    lines,
    tiles: { [beside === undefined ? 'fetching' : 'finishing']: main.name, half: half.name, whole: whole?.name },
    beside: beside && { values: beside.values, columns: beside.columns, rest: `${beside.symbol}_rest` },
    rowValues: (beside?.values ?? 0) > 0 && beside ? `${beside.symbol}_values` : undefined,
    linesOffset,
    valuesOffset,
    adapter: plan.adapter?.config,
  };
  const tables = [segmentsTable(plan, operands), ...adapterTable(plan)];
  const source = kernelFunction({ symbol, tables, type: 'AmxGemmConfig', config, call: 'tw_gemm_amx' });
  const helpers = [beside?.helper, main, half, whole].filter((helper) => helper !== undefined);
  return { includes: ['gemm/amx.h', 'lib/elementary.h'], source, helpers, scratchBytes };
}

/** A contraction by register tiles of floats (gemm/floats.h). */
function emitFloats(plan: GemmPlan, operands: COperands): Emitted {
  const { schedule, symbol, ldc } = plan;
  const a = operands.get(plan.a);
  const { weight } = operands.weight(plan.segments[0]!.weight);
  const format = panelFormat(weight);
  // With one register tile for all rows, weights are a stream from memory to registers.
  const isStream = schedule.mb === schedule.mr;
  const panel = panelColumns(weight);
  const splitsPanel = schedule.nr % panel !== 0;
  // Narrow panels are widened once per work item if enough rows share them, or if tiles would begin between panels;
  // otherwise in registers. Columns of one register tile at a time: what was widened stays in the first-level cache.
  const widens = format.elementBits < 32 && (schedule.mb > WIDENED_ROWS || (splitsPanel && panel % schedule.nr !== 0));
  const bp = panelElements(weight);
  const kc = Math.min(schedule.kc, roundUp(plan.k, 32));
  const microPanel = widens ? WIDE_PANEL : panel;
  // Together the tiles that share panels fetch the next ones: 16 cache lines of a panel for 16 steps of k.
  const nearLines = Math.max(
    AHEAD_B,
    Math.min(16, Math.ceil((((16 * schedule.nr) / panel) * schedule.mr) / schedule.mb)),
  );
  const helpers: Helper[] = [];
  const tile = (mr: number, nr: number, isTail: boolean): string => {
    // Only whole tiles prefetch; the last rows of a block are too few to matter.
    const isMain = mr === schedule.mr && !isTail;
    const helper = fmaTile({
      isa: schedule.isa,
      mr,
      nr,
      rs: a.stride,
      ks: 1,
      panel: microPanel,
      bk: microPanel,
      bp: widens ? kc * WIDE_PANEL : bp,
      ldc,
      unroll: isMain ? 4 : 1,
      aheadA: isMain && !isStream ? AHEAD_A : 0,
      aheadB: isMain && !isStream ? nearLines : 0,
      ahead: isStream && !widens && isMain ? streamAhead(mr) : undefined,
      bDtype: widens ? 'f32' : format.element,
    });
    helpers.push(helper);
    return helper.name;
  };
  // A stream computes its padding too: the memory limits it, not arithmetic.
  const tails = isStream ? [] : tailRows(schedule.mr);
  const tables = [segmentsTable(plan, operands), ...adapterTable(plan)];
  const widths = tailColumns(schedule.nr).map((nr) => {
    const main = tile(schedule.mr, nr, false);
    if (isStream) return { columns: nr, stream: main };
    const rows = tails.map((mr) => ({ rows: mr, tile: tile(mr, nr, true) }));
    tables.push(constantTable('FmaTail', `tails${nr}`, rows));
    return { columns: nr, fetching: main, tails: `tails${nr}`, tailCount: rows.length };
  });
  tables.push(constantTable('FmaTiles', 'widths', widths));
  const wideOffset = tileBytesOf(plan);
  const { scratchBytes, linesOffset } = lastOffsets(plan, wideOffset + (widens ? kc * schedule.nr * 4 : 0));
  const config = {
    items: itemsConfig(plan, operands, false),
    a: a.index,
    lda: a.stride,
    ldc,
    k: plan.k,
    kc,
    element: ELEMENT_TYPES[format.element],
    panel,
    panelElements: bp,
    widths: 'widths',
    widthCount: widths.length,
    nearLines,
    widens,
    wideOffset,
    linesOffset,
    adapter: plan.adapter?.config,
  };
  const source = kernelFunction({ symbol, tables, type: 'FloatsConfig', config, call: 'tw_gemm_floats' });
  return { includes: ['gemm/floats.h', 'lib/elementary.h'], source, helpers, scratchBytes };
}

/** Prints the function of the kernel, and those that multiply. */
function emitDriver(plan: GemmPlan, operands: COperands): Emitted {
  const weights = plan.segments.map((segment) => operands.weight(segment.weight));
  if (weights.length === 0) throw new Error(`Kernel ${plan.symbol} has no segment.`);
  if (weights.some(({ weight }) => isQuads(weight.format))) {
    if (plan.adapter !== undefined) throw new Error(`${plan.symbol}: products of codes have no adapters.`);
    return emitCodes(plan, operands);
  }
  return plan.schedule.isa === 'amx' ? emitAmx(plan, operands) : emitFloats(plan, operands);
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

function biasConfig({ bias }: LogProbKernel, operands: COperands) {
  if (bias === undefined) return {};
  const operand = operands.get(bias);
  return { hasBias: true, bias: operand.index, biasType: elementType(operand) };
}

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
  const config = {
    vocab: kernel.vocab,
    block: LOGPROB_BLOCK,
    cap: kernel.cap === undefined ? undefined : capOf(kernel.cap).value,
    inverseCap: kernel.cap === undefined ? undefined : capOf(kernel.cap).inverse,
    ...biasConfig(kernel, operands),
    target: operands.get(kernel.target).index,
    parts: parts.index,
    partsStride: parts.stride,
    width: partWidth(kernel),
    keepsLogits: logits !== undefined,
    logits: logits?.buffer,
    logitsRows: logits && operands.extentIndex(logits.extent),
    logitsStride: logits?.stride,
    draws: kernel.draw !== undefined,
    ...(kernel.draw === undefined ? {} : drawOperands(kernel.draw, operands)),
  };
  const value = scale.kind === 'f' ? scale.code : `(float)${scale.code}`;
  const epilogue = epilogueFunction(
    name,
    `  const HeadConfig config = {\n${argumentsText(config, 2)},\n  };\n` +
      rowsLoop(row, `    tw_head_row(config, launch, tile + i * ${ldc}, row, c0, cn, ${value});\n`),
  );
  const segment = {
    weight: kernel.weight,
    physical,
    nb,
    matrices: 1,
    epilogue: name,
  };
  const driver = emitDriver(
    { symbol, rows: kernel.rows, k: kernel.k, a: kernel.a, schedule, ldc, segments: [segment], lines: 0 },
    operands,
  );
  return { ...driver, includes: [...driver.includes, 'head/logProb.h'], source: epilogue + driver.source };
}
