/**
 * Contractions of codes of 8 bits: a worker turns the rows of its items into codes, and multiplies them with panels of
 * quads (ir/quads.ts). Few rows read packed codes; for more, the columns of a register tile are widened once.
 */
import type { WeightDecl } from '../../ir/kernel.js';
import { GROUP, isQuads, type QuadName, quadPanelBytes, QUADS, unitBytes, unitDepth } from '../../ir/quads.js';
import { roundUp } from '../../ir/types.js';
import { amxBytes, amxLines, type Helper } from './micro.js';
import { C_TYPES, type Operand } from './operands.js';
import { QUAD_ISAS, quadIsas, vectorsOf } from './quadIsas.js';
import {
  BOUNDED_CHUNK,
  FEW_ROWS,
  fewQuads,
  isBounded,
  LIST_BYTES,
  manyColumns,
  manyQuads,
  QUAD_CHUNK,
  type QuadRows,
  type QuadTile,
  wholeResult,
  widenedBytes,
  widenQuads,
} from './quadTiles.js';
import { render } from './templates.js';
import { evenBlocks, type GemmPlan } from './workItems.js';

export interface QuadBlocks {
  /** The function that makes codes of rows, and for each weight the one that multiplies. */
  readonly round: string;
  readonly blocks: readonly { readonly multiply: string; readonly panelBytes: number }[];
  readonly includes: readonly string[];
  readonly source: string;
  readonly helpers: readonly Helper[];
  /** Bytes of scratch memory for rows' groups and codes, and for widened columns. */
  readonly groupsBytes: number;
  readonly codesBytes: number;
  readonly wideBytes: number;
}

/** The format of a weight in panels of quads. Throws for another. */
function quadFormat({ name, format }: WeightDecl): QuadName {
  if (!isQuads(format)) throw new Error(`Weight ${name}: ${format} is in no panels of quads.`);
  return format;
}

/**
 * Steps of 64 along k of `units` that tiles of AMX take in a pass: a panel's part stays in the first-level cache while
 * rows go by, whose tiles are streamed (docs/log/cpu.md).
 */
export const passUnits = (units: number): number => evenBlocks(units, 16, 1);
/** Heights of the last tile of many rows. */
const tailsOf = (mr: number): readonly number[] => [2, 4, 8].filter((rows) => rows < mr).concat(mr);

/** What a contraction over `k` with these weights calls. `a`: its rows, of f32 or bf16. */
export function quadBlocks(
  symbol: string,
  weights: readonly WeightDecl[],
  k: number,
  a: Pick<Operand, 'stride' | 'dtype'>,
  plan: Pick<GemmPlan, 'ldc' | 'schedule' | 'beside'>,
): QuadBlocks {
  const { schedule, ldc } = plan;
  const isas = quadIsas(schedule.isa);
  const formats = weights.map(quadFormat);
  const isWhole = formats.every((format) => QUADS[format].scaleQuads === 0);
  const hasLists = isWhole && schedule.mb > FEW_ROWS && isas.some(isBounded);
  const hasPairs = !hasLists && isas.some((isa) => QUAD_ISAS[isa].hasPairs);
  const read = roundUp(k, GROUP);
  const depth = isWhole ? roundUp(k, unitDepth(QUADS.i8)) : read;
  // Codes, and those of even and odd places, or bounded ones.
  const copies = hasPairs ? 3 : hasLists ? 2 : 1;
  const chunk = hasLists ? BOUNDED_CHUNK : QUAD_CHUNK;
  const listsBytes = hasLists ? roundUp(Math.ceil(depth / chunk) * LIST_BYTES, 64) : 0;
  const rows: QuadRows = {
    depth,
    pitch: depth * copies + listsBytes + 64,
    groups: isWhole ? 1 : depth / GROUP,
    chunk,
    ...(hasLists ? { bounded: depth, lists: 2 * depth } : {}),
  };
  const round = `${symbol}_round`;
  const pads = depth > read ? Array.from({ length: copies }, (_, copy) => copy) : [];
  let source = render('quadRound', {
    name: round,
    k,
    read,
    depth,
    twice: 2 * depth,
    lda: a.stride,
    type: C_TYPES[a.dtype],
    of: a.dtype === 'bf16' ? '_bf16' : '',
    pitch: rows.pitch,
    groups: rows.groups,
    isWhole,
    pairs: hasPairs,
    hasLists,
    lists: rows.lists,
    chunk,
    listBytes: LIST_BYTES,
    listsBytes,
    mr: schedule.mr,
    padding: pads.map((copy) => ({ from: copy * depth + read, bytes: depth - read })),
  });
  const helpers: Helper[] = plan.beside === undefined ? [] : [plan.beside.helper];
  const made = new Map<QuadName, string>();
  const blocks = formats.map((format) => {
    const multiply = made.get(format) ?? `${symbol}_${format}`;
    const printed = made.has(format) ? [] : isas.map((isa) => quadBlock(multiply, { isa, format, rows, ldc }, plan));
    made.set(format, multiply);
    printed.forEach((each) => helpers.push(...each.helpers));
    source += printed.map((each) => each.source).join('');
    const [plain, better] = isas;
    const choice = { name: multiply, plain, better, feature: better && QUAD_ISAS[better].needs };
    if (printed.length > 1) source += render('quadChoice', choice);
    return { multiply, panelBytes: quadPanelBytes(QUADS[format], k) };
  });
  const most = roundUp(schedule.mb, schedule.mr);
  const isTiled = schedule.mb <= FEW_ROWS || schedule.isa === 'amx';
  return {
    round,
    blocks,
    includes: ['lib/elementary.h', 'lib/amx.h', 'lib/codes.h', ...new Set(isas.map((isa) => QUAD_ISAS[isa].header))],
    source,
    helpers,
    groupsBytes: roundUp(most * rows.groups * 16, 64),
    codesBytes: roundUp(most * rows.pitch, 64),
    wideBytes: isTiled
      ? 0
      : Math.max(
          ...isas.flatMap((isa) => formats.map((format) => total(widenedBytes(isa, format, Math.min(depth, chunk))))),
        ),
  };
}

const total = ({ codes, scales, minima }: ReturnType<typeof widenedBytes>): number => codes + scales + minima;

/** The function that multiplies rows with the panels of one format, by tiles of one instruction set. */
function quadBlock(
  multiply: string,
  own: QuadTile,
  { schedule, beside }: Pick<GemmPlan, 'schedule' | 'beside'>,
): { readonly source: string; readonly helpers: readonly Helper[] } {
  const { isa: scheduled, mr, mb } = schedule;
  const { isa, format, rows, ldc } = own;
  const panel = QUADS[format];
  const isFew = mb <= FEW_ROWS;
  const isAmx = scheduled === 'amx';
  const isMany = !isFew && !isAmx;
  const few = isFew ? fewQuads(own, mr) : undefined;
  const heights = isFew ? [] : isAmx ? [mr, 16, ...(mr > 16 ? [mr] : [])] : [mr, ...tailsOf(mr)];
  const lines = amxLines(schedule);
  const tiles = heights.map((height, i) =>
    isAmx
      ? amxBytes({ mr: height, pitch: rows.pitch, ldc, lines: i === 0 ? lines : 0, ...(i === 0 ? { beside } : {}) })
      : manyQuads(own, height),
  );
  const widen = isMany ? widenQuads(isa, format) : undefined;
  const wide = widenedBytes(isa, format, Math.min(rows.depth, rows.chunk));
  const isAlone = quadIsas(scheduled).length === 1;
  const source = render('quadBlock', {
    beside,
    name: isAlone ? multiply : `${multiply}_${isa}`,
    format,
    isFew,
    isAmx,
    isMany,
    isWhole: panel.scaleQuads === 0,
    vectors: QUAD_ISAS[isa],
    result: wholeResult(isa, 'at'),
    zero: isMany && !vectorsOf(isa, format).widenedZero ? 0 : panel.zero,
    hasLists: isMany && rows.lists !== undefined && isBounded(isa),
    lists: rows.lists,
    listBytes: LIST_BYTES,
    padRows: mr - 1,
    panelBytes: quadPanelBytes(panel, rows.depth),
    mr,
    pitch: rows.pitch,
    rowGroups: rows.groups,
    steps: rows.depth / GROUP,
    ldc,
    units: rows.depth / unitDepth(panel),
    passUnits: passUnits(rows.depth / unitDepth(panel)),
    lines,
    tile: few?.name ?? '',
    widen: widen?.name ?? '',
    depth: rows.chunk / GROUP,
    nr: manyColumns(isa),
    unitGroups: panel.groups,
    unitBytes: unitBytes(panel),
    scalesOffset: wide.codes,
    minimaOffset: wide.codes + wide.scales,
    tiles: tiles.map(({ name }, i) => ({ name, mr: heights[i], isMain: i === 0 })),
  });
  return { source, helpers: [...tiles, ...[few, widen].filter((helper) => helper !== undefined)] };
}
