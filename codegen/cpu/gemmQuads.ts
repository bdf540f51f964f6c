/**
 * Contractions of codes of 8 bits: a worker turns the rows of its items into codes, and multiplies them with panels of
 * quads (ir/quads.ts). Few rows read packed codes; for more, the columns of a register tile are widened once.
 */
import { isQuads, QUADS, quadPanelBytes, unitBytes, unitDepth, type QuadName } from '../../ir/quads.js';
import type { WeightDecl } from '../../ir/kernel.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import type { Helper } from './micro.js';
import { QUAD_ISAS, type QuadIsa } from './quadIsas.js';
import {
  FEW_ROWS,
  fewQuads,
  manyColumns,
  manyQuads,
  QUAD_CHUNK,
  widenedBytes,
  widenQuads,
  type QuadTile,
} from './quadTile.js';
import { render } from './templates.js';

export interface QuadBlocks {
  /** The function that makes codes of rows, and for each weight the one that multiplies. */
  readonly round: string;
  readonly blocks: readonly { readonly multiply: string; readonly panelBytes: number }[];
  readonly source: string;
  readonly helpers: readonly Helper[];
  /** Bytes of scratch memory for rows' groups and codes, and for widened columns. */
  readonly groupsBytes: number;
  readonly codesBytes: number;
  readonly wideBytes: number;
}

/** The format of a weight in panels of quads. Throws for another. */
export function quadFormat({ name, format }: WeightDecl): QuadName {
  if (!isQuads(format)) throw new Error(`Weight ${name}: ${format} is in no panels of quads.`);
  return format;
}

/** Heights of the last tile of many rows. */
const tailsOf = (mr: number): readonly number[] => [2, 4, 8].filter((rows) => rows < mr).concat(mr);

/** What a contraction over `k` with these weights calls. `lda`: floats from one row to the next. */
export function quadBlocks(
  symbol: string,
  weights: readonly WeightDecl[],
  k: number,
  lda: number,
  ldc: number,
  schedule: CpuGemmSchedule,
): QuadBlocks {
  const isa: QuadIsa = schedule.isa === 'amx' ? 'avx512' : schedule.isa;
  const { hasPairs } = QUAD_ISAS[isa];
  const depth = roundUp(k, 32);
  const rows = { depth, pitch: depth * (hasPairs ? 3 : 1) + 64, groups: depth / 32 };
  const isFew = schedule.mb <= FEW_ROWS;
  const formats = weights.map(quadFormat);
  const isWhole = formats.every((format) => QUADS[format].scaleQuads === 0);
  const round = `${symbol}_round`;
  let source = render('quadRound', {
    name: round,
    k,
    depth,
    twice: 2 * depth,
    lda,
    pitch: rows.pitch,
    groups: rows.groups,
    isWhole,
    pairs: hasPairs,
  });
  const helpers: Helper[] = [{ name: 'quadRows', source: render('quadRows', {}) }];
  const wide = widenedBytes(isa, Math.min(depth, QUAD_CHUNK));
  const made = new Map<QuadName, string>();
  const blocks = formats.map((format) => {
    const panel = QUADS[format];
    const panelBytes = quadPanelBytes(panel, k);
    const multiply = made.get(format) ?? `${symbol}_${format}`;
    if (made.has(format)) return { multiply, panelBytes };
    made.set(format, multiply);
    const own: QuadTile = { isa, format, rows, ldc };
    const few = isFew ? fewQuads(own, schedule.mr) : undefined;
    const heights = isFew ? [] : [schedule.mr, ...tailsOf(schedule.mr)];
    const many = heights.map((mr) => manyQuads(own, mr));
    const widen = isFew ? undefined : widenQuads(isa, format);
    helpers.push(...many, ...[few, widen].filter((helper) => helper !== undefined));
    source += render('quadBlock', {
      name: multiply,
      format,
      isFew,
      isWhole,
      padRows: schedule.mr - 1,
      panelBytes,
      mr: schedule.mr,
      pitch: rows.pitch,
      groups: rows.groups,
      ldc,
      units: Math.ceil(k / unitDepth(panel)),
      tile: few?.name ?? '',
      widen: widen?.name ?? '',
      depth: QUAD_CHUNK / 32,
      nr: manyColumns(isa),
      unitGroups: panel.groups,
      unitBytes: unitBytes(panel),
      scalesOffset: wide.codes,
      minimaOffset: wide.codes + wide.scales,
      tiles: many.map(({ name }, i) => ({ name, mr: heights[i], isMain: i === 0 })),
    });
    return { multiply, panelBytes };
  });
  const most = roundUp(schedule.mb, schedule.mr);
  return {
    round,
    blocks,
    source,
    helpers,
    groupsBytes: roundUp(most * rows.groups * 16, 64),
    codesBytes: roundUp(most * rows.pitch, 64),
    wideBytes: isFew ? 0 : wide.codes + wide.scales + wide.minima,
  };
}
