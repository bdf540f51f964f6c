/** Epilogues of contractions: scalar programs over the rows and columns of a finished tile. */
import { groupSumsOf, groupValuesOf, groupWidth } from '../../ir/groupSums.js';
import type { Output, Pairing, Segment } from '../../ir/kernel.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { operands as childrenOf, printScalar, type Scalar } from '../../ir/scalar.js';
import { unmarked } from '../marks.js';
import type { RowStatement } from '../scalarPrograms.js';
import { matricesOf, type COperands, CRowScope, type VectorValue } from './operands.js';
import { columnBlocks, indent, looseColumns, type MakeSite, printOutputs, rowsLoop } from './programLoops.js';
import { VectorBody, type VectorSite } from './scalarPrinter.js';
import { render } from './templates.js';

export interface Epilogue {
  /** Body of a function (launch, tile, m0, mn, c0, cn, lines): logical columns [c0, c0 + cn) of rows [m0, m0 + mn). */
  readonly text: string;
  /** Number of scratch lines of `ldc` floats that it needs. */
  readonly lines: number;
}

/** Position, in a row of the tile, of the accumulator of logical column `c` (relative to the work item). */
function tileColumn(pairing: Pairing, c: string, index: 0 | 1): string {
  switch (pairing.kind) {
    case 'none':
      return c;
    case 'rotate':
      return c;
    case 'interleave':
      return pairing.width === 16
        ? `2 * (${c}) + ${16 * index}`
        : `(${c}) / ${pairing.width} * ${2 * pairing.width} + (${c}) % ${pairing.width} + ${index * pairing.width}`;
    default:
      return pairing satisfies never;
  }
}

/** The epilogue of a segment over a tile with `ldc` floats per row. `fetches`: RowScope's. */
export function epilogueProgram(segment: Segment, operands: COperands, ldc: number, fetches = false): Epilogue {
  const { pairing, outputs } = segment;
  const isWhole = pairing.kind === 'none' || pairing.width % 16 === 0;
  if (pairing.kind === 'rotate' && isWhole && outputs.every((output) => output.kind === 'store')) {
    return rotatePairs(segment, pairing, operands, { ldc, fetches });
  }
  const row = new CRowScope(operands, { fetches });
  const acc = row.define('tile', 'float *', `tile + i * ${ldc}`);
  if (isWhole && pairing.kind !== 'rotate') {
    const plain: MakeSite = (column, lanes) => ({
      id: 'x',
      column,
      lanes,
      acc: (index) => `tw_load(${acc} + ${tileColumn(pairing, `${column} - c0`, index)})`,
    });
    const groups = groupLines(segment, row, (column) => plain(column, 16), 0, ldc);
    const site: MakeSite = (column, lanes) => ({ ...plain(column, lanes), ...groups.given(column) });
    const blocks = columnBlocks(outputs, row, segment.columns, 'c0', 'c0 + cn', site);
    return { text: rowsLoop(row, indent(groups.text, 2) + blocks), lines: groups.lines };
  }
  return throughLines(segment, row, acc, ldc);
}

/** The epilogue of heads with matrices of their own, of `each` columns: an item has columns of one head. */
export function headEpilogue(segment: Segment, each: number, operands: COperands, ldc: number): Epilogue {
  const row = new CRowScope(operands);
  const acc = row.define('tile', 'float *', `tile + i * ${ldc}`);
  const site: MakeSite = (column, lanes) => ({
    id: 'x',
    column,
    lanes,
    acc: () => `tw_load(${acc} + ${column} - c0)`,
  });
  const { outputs, columns } = segment;
  const blocks =
    each % 32 === 0
      ? columnBlocks(outputs, row, columns, 'c0', 'c0 + cn', site)
      : looseColumns(outputs, row, columns, ['c0', 'c0 + cn'], site);
  return { text: rowsLoop(row, blocks), lines: 0 };
}

/** Rotary pairs in whole vectors: both halves of a head at once, so that each has the values of the other. */
function rotatePairs(
  segment: Segment,
  pairing: Extract<Pairing, { kind: 'rotate' }>,
  operands: COperands,
  { ldc, fetches }: { readonly ldc: number; readonly fetches: boolean },
): Epilogue {
  const { headDim, width } = pairing;
  const half = headDim / 2;
  const row = new CRowScope(operands, { fetches });
  const acc = row.define('tile', 'float *', `tile + i * ${ldc}`);
  const body = new VectorBody(row);
  const at = `(head - c0 + ${width === 16 ? '2 * j' : `j / ${width} * ${2 * width} + j % ${width}`})`;
  const lying = (c: string): string =>
    `${c} / ${headDim} * ${headDim} + ${c} % ${half} / ${width} * ${2 * width} + ${c} % ${width} + ` +
    `${c} % ${headDim} / ${half} * ${width}`;
  const inOrder = (column: string): VectorSite => ({
    id: 'x',
    column,
    lanes: 16,
    acc: () => `tw_load(${acc} + ${lying(`(${column} - c0)`)})`,
  });
  const groups = groupLines(segment, row, inOrder, 0, ldc);
  const first: VectorSite = {
    id: 'a',
    column: '(head + j)',
    lanes: 16,
    ...groups.given('head'),
    acc: () => `tw_load(${acc} + ${at})`,
    rotate: (a, b) => ({ code: b.define('tw_v', `-${b.float(b.value(a, second))}`), kind: 'f', isRow: false }),
  };
  const second: VectorSite = {
    id: 'b',
    column: `(head + j + ${half})`,
    lanes: 16,
    ...groups.given('head'),
    acc: () => `tw_load(${acc} + ${at} + ${width})`,
    rotate: (a, b) => b.value(a, first),
  };
  printOutputs(segment.outputs, first, body);
  printOutputs(segment.outputs, second, body);
  let text = `    const int64_t end = c0 + cn < ${segment.columns} ? c0 + cn : ${segment.columns};\n`;
  text +=
    `    for (int64_t head = c0; head < end; head += ${headDim}) {\n` +
    `      for (int64_t j = 0; j < ${half}; j += 16) {\n${indent(body.lines, 4)}      }\n    }\n`;
  return { text: rowsLoop(row, indent(groups.text, 2) + text), lines: groups.lines };
}

/** Pairs that do not fill whole vectors: each row is first copied in logical order to lines of its own. */
function throughLines(segment: Segment, row: CRowScope, acc: string, ldc: number): Epilogue {
  const { pairing, outputs, columns } = segment;
  if (pairing.kind === 'none') throw new Error('Columns that are not paired need no lines.');
  const { width } = pairing;
  let text = '';
  if (pairing.kind === 'rotate') {
    const half = pairing.headDim / 2;
    text += `    for (int64_t h = 0; h < cn; h += ${pairing.headDim}) for (int64_t j = 0; j < ${half}; j++) {\n`;
    text +=
      `      const int64_t p = h + j / ${width} * ${2 * width} + j % ${width};\n` +
      `      lines[h + j] = ${acc}[p];\n      lines[h + j + ${half}] = ${acc}[p + ${width}];\n    }\n`;
  } else {
    text +=
      `    for (int64_t c = 0; c < cn; c++) {\n` +
      `      const int64_t p = c / ${width} * ${2 * width} + c % ${width};\n`;
    text += `      lines[c] = ${acc}[p];\n      lines[${ldc} + c] = ${acc}[p + ${width}];\n    }\n`;
  }
  const base = matrixLines(pairing);
  const arguments_ = pairing.kind === 'rotate' ? rotated(outputs) : [];
  const lineOf = new Map(arguments_.map((a, i) => [printScalar(a), (base + i) * ldc]));
  const partner = (line: number, column: string, body: VectorBody): VectorValue => {
    const { headDim } = pairing as Extract<Pairing, { kind: 'rotate' }>;
    const name = `t${lineOf.size}_${body.lines.length}`;
    body.lines.push(
      `float ${name}[16];`,
      `for (int l_ = 0; l_ < 16; l_++) {`,
      `  const int64_t c_ = ${column} - c0 + l_;`,
      `  ${name}[l_] = c_ % ${headDim} < ${headDim / 2} ? ` +
        `-lines[${line} + c_ + ${headDim / 2}] : lines[${line} + c_ - ${headDim / 2}];`,
      '}',
    );
    return { code: body.define('tw_v', `tw_load(${name})`), kind: 'f', isRow: false };
  };
  const plain: MakeSite = (column, lanes) => ({
    id: 'x',
    column,
    lanes,
    acc: (index) => `tw_load(lines + ${index * ldc} + ${column} - c0)`,
    rotate: (a, body) => partner(lineOf.get(printScalar(a))!, column, body),
  });
  const groups = groupLines(segment, row, (column) => plain(column, 16), base + arguments_.length, ldc);
  text += indent(groups.text, 2);
  const site: MakeSite = (column, lanes) => ({ ...plain(column, lanes), ...groups.given(column) });
  // Arguments of rotateHalf, innermost first, each into a line of its own. Columns past the end read the tile's
  // padding.
  arguments_.forEach((a) => {
    const body = new VectorBody(row);
    const vector = body.float(body.value(a, site('column', 16)));
    body.lines.push(`tw_store(lines + ${lineOf.get(printScalar(a))!} + column - c0, ${vector});`);
    const end = `(c0 + cn < ${columns} ? c0 + cn : ${columns})`;
    text += `    for (int64_t column = c0; column < ${end}; column += 16) {\n${indent(body.lines, 3)}    }\n`;
  });
  text += columnBlocks(outputs, row, columns, 'c0', 'c0 + cn', site);
  return { text: rowsLoop(row, text), lines: base + arguments_.length + groups.lines };
}

const matrixLines = (pairing: Pairing): number => (pairing.kind === 'interleave' ? 2 : 1);

/** The arguments of rotateHalf, innermost first. */
function rotated(outputs: readonly Output[]): Scalar[] {
  const found = new Map<string, Scalar>();
  const visit = (s: Scalar): void => {
    childrenOf(s).forEach(visit);
    if (s.op === 'rotateHalf') found.set(printScalar(s.a), s.a);
  };
  outputs.forEach((output) => {
    visit(output.value);
  });
  return [...found.values()];
}

// Values that a group of columns shares, such as 1/rms of a head: computed before the epilogue's programs run, and
// kept in scratch lines as a vector for every 16 columns.

export interface GroupLines {
  /** Statements of a row, as lines. */
  readonly text: readonly string[];
  /** What a site at the column sees of them. */
  readonly given: (column: string) => Pick<VectorSite, 'given'>;
  /** Number of scratch lines. */
  readonly lines: number;
}

/**
 * The group values of a segment over columns [c0, c0 + cn) of a row. `site`: 16 columns in logical order; `first`: the
 * first free line; `ldc`: floats of a line. A sum adds vectors from the group's first to its last, then their lanes.
 */
export function groupLines(
  { outputs, columns }: Segment,
  row: CRowScope,
  site: (column: string) => VectorSite,
  first: number,
  ldc: number,
): GroupLines {
  const width = groupWidth(outputs);
  if (width === undefined) return { text: [], given: () => ({}), lines: 0 };
  const sums = groupSumsOf(outputs);
  const adding = new VectorBody(row);
  adding.lines.push(...sums.map(({ a }, i) => `g${i}_ = g${i}_ + ${adding.float(adding.value(a, site('column')))};`));
  const totals = new Map(sums.map((s, i) => [printScalar(s), `tw_set1(tw_sum(g${i}_))`]));
  const shared = new VectorBody(row);
  const values = groupValuesOf(outputs);
  const codes = values.map((s) =>
    shared.float(shared.value(s, { id: 'g', column: 'group', lanes: 16, given: totals })),
  );
  const line = (i: number): number => (first + i) * ldc;
  const text = [
    `const int64_t end_ = c0 + cn < ${columns} ? c0 + cn : ${columns};`,
    `for (int64_t group = c0; group < end_; group += ${width}) {`,
    ...sums.map((_, i) => `  tw_v g${i}_ = tw_set1(0.0f);`),
    `  for (int64_t column = group; column < group + ${width}; column += 16) {`,
    ...adding.lines.map((each) => `    ${each}`),
    '  }',
    ...shared.lines.map((each) => `  ${each}`),
    `  for (int64_t at = group - c0; at < group - c0 + ${width}; at += 16) {`,
    ...codes.map((code, i) => `    tw_store(lines + ${line(i)} + at, ${code});`),
    '  }',
    '}',
  ];
  const given = (column: string): Pick<VectorSite, 'given'> => ({
    given: new Map(values.map((s, i) => [printScalar(s), `tw_load(lines + ${line(i)} + ${column} - c0)`])),
  });
  return { text, given, lines: values.length };
}

// Epilogues beside products: AMX multiplies while vector units have nothing to do, so each step of a register tile
// finishes a row of the tile before it. That hides arithmetic, not memory: short pieces of rows are stored and read
// no faster, so only epilogues that compute much are run so (docs/log/cpu.md).

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
  operands: COperands,
  { symbol, schedule, ldc, steps, zero }: BesidePlace,
): BesideProducts | undefined {
  const { pairing, outputs, columns } = segment;
  const rowsOfStep = Math.ceil(schedule.mr / steps);
  const isTiled = schedule.isa === 'amx' && schedule.nr === TILE_COLUMNS && rowsOfStep <= ROWS_OF_STEP;
  const isPlain = pairing.kind === 'none' || (pairing.kind === 'interleave' && pairing.width === 16);
  if (!isTiled || !isPlain || columns % TILE_COLUMNS !== 0 || groupWidth(outputs) !== undefined) return undefined;
  if (!outputs.some(({ value }) => isCostly(value))) return undefined;
  const row = new CRowScope(operands, { fetches: true });
  const body = new VectorBody(row);
  const own = TILE_COLUMNS / matricesOf(pairing);
  for (let from = 0; from < own; from += 16) {
    const at = (index: number): string => `c + ${from + 16 * index}`;
    const site: VectorSite = {
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
function usedBy(row: CRowScope, lines: readonly string[], keepsFloats: boolean): readonly RowStatement[] {
  const used = new Set<string>();
  const read = (line: string): void => {
    for (const [name] of textOf(line).matchAll(/\br\d+\b/g)) used.add(name);
  };
  lines.forEach(read);
  for (const { name, type, line } of [...row.statements].reverse())
    if (used.has(name) && !(keepsFloats && type === 'float')) read(line.slice(line.indexOf('=')));
  return row.statements.filter(({ name }) => used.has(name));
}
