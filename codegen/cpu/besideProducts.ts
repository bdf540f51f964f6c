/**
 * Epilogues beside products: AMX multiplies while vector units have nothing to do, so each step of a register tile
 * finishes a row of the tile before it. That hides arithmetic, not memory: short pieces of rows are stored and read no
 * faster, so only epilogues that compute much are run so (docs/log/cpu.md).
 */
import type { Segment } from '../../ir/kernel.js';
import { groupWidth } from '../../ir/groupSums.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { operands as childrenOf, type Scalar } from '../../ir/scalar.js';
import { unmarked } from '../marks.js';
import type { RowStatement } from '../rowStatements.js';
import { printOutputs } from './programLoops.js';
import { matricesOf, type Operands } from './layout.js';
import { RowScope } from './rowScope.js';
import { Body, type Site } from './scalarPrinter.js';
import { render } from './templates.js';

/** An epilogue row by row of register tiles, and what it needs to know of rows. */
export interface BesideProducts {
  readonly symbol: string;
  /** Floats for each row. */
  readonly values: number;
  /** Rows for each step of the last pass along k. */
  readonly rowsOfStep: number;
  /** Buffers of the launch, from the first on. */
  readonly buffers: number;
  /** Logical columns of a register tile. */
  readonly columns: number;
  /** C functions of them (besideProducts.c.hbs). */
  readonly helper: { readonly name: string; readonly source: string };
}

/** Where an epilogue is run, and how many steps a tile has there. */
export interface BesidePlace {
  readonly symbol: string;
  readonly schedule: CpuGemmSchedule;
  readonly ldc: number;
  /** Steps of a register tile in its last pass along k. */
  readonly steps: number;
  /** What codes of weights are above their numbers, if accumulators are sums of products of codes. */
  readonly zero?: number | undefined;
}

/** Columns of a register tile of AMX. */
const TILE_COLUMNS = 32;

/** More rows for each step would take longer than its products. */
const ROWS_OF_STEP = 4;

const isCostly = (s: Scalar): boolean =>
  s.op === 'exp' || s.op === 'tanh' || s.op === 'erf' || childrenOf(s).some(isCostly);

/**
 * The epilogue of a segment beside products; undefined where there are no tiles, where it computes little, and where it
 * needs more than a tile: heads, groups of columns, or columns that do not fill the last tile.
 */
export function besideProducts(
  segment: Segment,
  operands: Operands,
  { symbol, schedule, ldc, steps, zero }: BesidePlace,
): BesideProducts | undefined {
  const { pairing, outputs, columns } = segment;
  const rowsOfStep = Math.ceil(schedule.mr / steps);
  const isTiled = schedule.isa === 'amx' && schedule.nr === TILE_COLUMNS && rowsOfStep <= ROWS_OF_STEP;
  const isPlain = pairing.kind === 'none' || (pairing.kind === 'interleave' && pairing.width === 16);
  if (!isTiled || !isPlain || columns % TILE_COLUMNS !== 0 || groupWidth(outputs) !== undefined) return undefined;
  if (!outputs.some(({ value }) => isCostly(value))) return undefined;
  const row = new RowScope(operands, { fetches: true });
  const body = new Body(row);
  const own = TILE_COLUMNS / matricesOf(pairing);
  for (let from = 0; from < own; from += 16) {
    const at = (index: number): string => `c + ${from + 16 * index}`;
    const site: Site = {
      id: `x${from}`,
      column: from === 0 ? 'column' : `(column + ${from})`,
      lanes: 16,
      acc: (index) =>
        zero === undefined
          ? `tw_load(${at(index)})`
          : `tw_float(tw_loadi((const int32_t *)(${at(index)})) - excess) * scale`,
    };
    printOutputs(outputs, site, body);
  }
  const needed = usedBy(row, body.lines, true);
  const first = zero === undefined ? 0 : 2;
  const floats = needed.filter(({ type }) => type === 'float');
  const place = new Map(floats.map(({ name }, i) => [name, first + i]));
  const values = first + floats.length;
  const stores = floats.map(({ name }, i) => `values[${first + i}] = ${name};`);
  const kept = ({ name, line }: RowStatement): string =>
    place.has(name) ? `float const ${name} = values[${place.get(name)}];` : line;
  // Tiles keep the launch's buffers in registers, which they cannot know to stay the same otherwise.
  const lines = [...needed.map(kept), ...body.lines].map((line) => line.replaceAll('launch->buffers[', 'buffers['));
  const buffers = lines.flatMap((line) =>
    [...line.matchAll(/buffers\[(\d+)\]/g)].map(([, index]) => Number(index) + 1),
  );
  const rowLines = [...usedBy(row, stores, false).map(({ line }) => line), ...stores];
  const source = render('besideProducts', {
    symbol,
    ldc,
    values,
    isCodes: zero !== undefined,
    zero,
    rowLines,
    rowExtents: row.extentLines(rowLines.map(textOf)),
    lines: [...row.extentLines(lines.map(textOf)), ...lines],
  });
  const helper = { name: `${symbol}_beside`, source };
  return { symbol, values, rowsOfStep, buffers: Math.max(0, ...buffers), columns: own, helper };
}

/** A statement without the marks that tell of it. */
const textOf = (line: string): string => unmarked(line).text;

/** Statements of a row that lines use, and those that these use; not those behind floats if they are kept. */
function usedBy(row: RowScope, lines: readonly string[], keepsFloats: boolean): readonly RowStatement[] {
  const used = new Set<string>();
  const read = (line: string): void => {
    for (const [name] of textOf(line).matchAll(/\br\d+\b/g)) used.add(name);
  };
  lines.forEach(read);
  for (const { name, type, line } of [...row.statements].reverse())
    if (used.has(name) && !(keepsFloats && type === 'float')) read(line.slice(line.indexOf('=')));
  return row.statements.filter(({ name }) => used.has(name));
}
