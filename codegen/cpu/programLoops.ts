/** Loops over rows and columns around scalar programs: the epilogues of contractions and whole loop kernels. */
import type { Dim } from '../../ir/types.js';
import type { LoopDomain, LoopKernel, Output, Pairing, Segment } from '../../ir/kernel.js';
import { isRowMax, loopDomains, ROW_SUM_BLOCK } from '../../ir/kernel.js';
import type { Scalar } from '../../ir/scalar.js';
import { operands as childrenOf, printScalar } from '../../ir/scalar.js';
import type { Operand, Operands } from './layout.js';
import { groupLines } from './groupLines.js';
import { RowScope, type Value } from './rowScope.js';
import { Body, type Site } from './scalarPrinter.js';

type RowSum = Extract<Output, { kind: 'rowSum' }>;

const indent = (lines: readonly string[], depth: number): string =>
  lines.map((line) => `${'  '.repeat(depth)}${line}\n`).join('');

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

/** The destination of an output: the pointer to its row, and the test before a store if an index of −1 means no row. */
function targetOf(
  output: Output,
  row: RowScope,
): { readonly operand: Operand; readonly pointer: string; readonly guard: string } {
  const operand = row.operands.get(output.buffer);
  if (output.kind === 'rowSum' || output.via === undefined)
    return { operand, pointer: row.rowPointer(operand, undefined), guard: '' };
  const index = row.rowIndex(output.via);
  return {
    operand,
    pointer: `${row.operands.base(operand)} + ${index} * ${operand.stride}`,
    guard: `if (${index} >= 0) `,
  };
}

/** Makes one number of a block's lanes: a part of its own, or one that goes into the largest of the row. */
function reduced(output: RowSum, { columns }: Operand, pointer: string, { column }: Site, value: string): string {
  const part = `${output.by === 'max' ? 'tw_most' : 'tw_sum'}(${value})`;
  return isRowMax(output, columns)
    ? `*${pointer} = (${column}) == 0 ? ${part} : tw_s_most(*${pointer}, ${part});`
    : `${pointer}[(${column}) / ${ROW_SUM_BLOCK}] = ${part};`;
}

/** Prints the outputs at one site into `body`. A block of a row sum is one vector, whose lanes are added here. */
function printOutputs(outputs: readonly Output[], site: Site, body: Body): void {
  // All values are computed before the first store, because an output may be stored over a buffer that another output
  // reads.
  const values = outputs.map((output) => body.masked(output.value, site));
  outputs.forEach((output, i) => {
    const { operand, pointer, guard } = targetOf(output, body.row);
    if (body.row.fetches && guard === '' && output.kind !== 'rowSum' && operand.columns !== 1)
      body.lines.push(`__builtin_prefetch(${pointer} + ${operand.stride} + ${site.column}, 1);`);
    const store =
      output.kind === 'rowSum'
        ? reduced(output, operand, pointer, site, values[i]!)
        : operand.columns === 1
          ? `${guard}tw_s_store_${operand.dtype}(${pointer}, ${values[i]!}[0]);`
          : `${guard}tw_store_${operand.dtype}(${pointer} + ${site.column}, ${values[i]!});`;
    body.lines.push(store + (body.row.operands.markOf?.(output.value) ?? ''));
  });
}

/** Zeroes the padding after the last column. */
function printZeros(outputs: readonly Output[], column: string, body: Body): void {
  for (const output of outputs) {
    if (output.kind === 'rowSum') continue;
    const { operand, pointer, guard } = targetOf(output, body.row);
    if (operand.columns !== 1)
      body.lines.push(`${guard}tw_store_${operand.dtype}(${pointer} + ${column}, tw_set1(0.0f));`);
  }
}

type MakeSite = (column: string, lanes: number | string) => Site;

/** Loops over blocks of 32 columns [from, to) of one row; `columns` is the domain's extent, `from` a multiple of 32. */
function columnBlocks(
  outputs: readonly Output[],
  row: RowScope,
  columns: Dim,
  from: string,
  to: string,
  site: MakeSite,
): string {
  const full = new Body(row);
  printOutputs(outputs, site('column', 16), full);
  const total = row.extent(columns);
  let text = `    const int64_t whole = ${to} < ${total} / 32 * 32 ? ${to} : ${total} / 32 * 32;\n`;
  // Two vectors per iteration: the lanes of their sums are added side by side.
  text += '    for (int64_t block = ' + from + '; block < whole; block += 32) {\n';
  text +=
    '      for (int64_t column = block; column < block + 32; column += 16) {\n' +
    indent(full.lines, 4) +
    '      }\n    }\n';
  if (typeof columns === 'number' && columns % 32 === 0) return text;
  const tail: string[] = [];
  for (const half of [0, 16]) {
    const body = new Body(row);
    const lanes =
      typeof columns === 'string' ? `(int32_t)(${total} - block - ${half})` : Math.min(16, (columns % 32) - half);
    if (typeof lanes === 'number' && lanes <= 0) printZeros(outputs, `block + ${half}`, body);
    else printOutputs(outputs, site(`(block + ${half})`, lanes), body);
    tail.push('{', ...body.lines.map((line) => `  ${line}`), '}');
  }
  text +=
    `    if (whole < ${total} && ${to} >= ${total}) {\n` +
    `      const int64_t block = whole;\n${indent(tail, 3)}    }\n`;
  return text;
}

const rowsLoop = (row: RowScope, text: string): string =>
  indent(row.extentLines(), 1) +
  `  for (int64_t i = 0; i < mn; i++) {\n    const int64_t row = m0 + i;\n${indent(row.lines, 2)}${text}  }\n`;

/**
 * The site with rotateHalf. The partners of its columns are half a head away. They are read as whole vectors if half a
 * head is a whole number of vectors, otherwise lane by lane.
 */
function withRotation(site: Site, headDim: number): Site {
  const half = headDim / 2;
  const partnerOf = (column: string): string =>
    `((${column}) % ${headDim} < ${half} ? ${column} + ${half} : ${column} - ${half})`;
  const rotate = (a: Scalar, body: Body): Value => {
    if (half % 16 === 0 && site.at === undefined) {
      const partner = withRotation({ ...site, id: `${site.id}p`, column: partnerOf(site.column) }, headDim);
      const value = body.float(body.value(a, partner));
      const isFirst = `(${site.column}) % ${headDim} < ${half}`;
      return { code: body.define('tw_v', `${isFirst} ? -${value} : ${value}`), kind: 'f', isRow: false };
    }
    const columnAt = site.at ?? ((lane: string): string => `(${site.column} + ${lane})`);
    const partner: Site = { ...site, id: `${site.id}p`, at: (lane) => partnerOf(columnAt(lane)) };
    const value = body.float(body.value(a, withRotation(partner, headDim)));
    const signs = body.lanes((lane) => `${columnAt(lane)} % ${headDim} < ${half} ? -1.0f : 1.0f`);
    return { code: body.define('tw_v', `${signs} * ${value}`), kind: 'f', isRow: false };
  };
  return { ...site, rotate };
}

/** Body of a function (launch, m0, mn): rows [m0, m0 + mn) of a loop kernel. */
export function loopProgram(kernel: LoopKernel, operands: Operands): string {
  const { columns, finish } = kernel;
  // A worker has whole rows: what finishes them comes behind the others.
  const domains = [...loopDomains(kernel), ...(finish === undefined ? [] : [{ columns, outputs: finish }])];
  if (domains.length === 1) return domainProgram(domains[0]!, operands);
  return domains.map((domain) => `  {\n${domainProgram(domain, operands)}  }\n`).join('');
}

function domainProgram({ outputs, columns, headDim }: LoopDomain, operands: Operands): string {
  const row = new RowScope(operands);
  const site: MakeSite = (column, lanes) =>
    headDim === undefined ? { id: 'x', column, lanes } : withRotation({ id: 'x', column, lanes }, headDim);
  const text = columnBlocks(outputs, row, columns, '0', row.extent(columns), site);
  return rowsLoop(row, text);
}

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
export function epilogueProgram(segment: Segment, operands: Operands, ldc: number, fetches = false): Epilogue {
  const { pairing, outputs } = segment;
  const isWhole = pairing.kind === 'none' || pairing.width % 16 === 0;
  if (pairing.kind === 'rotate' && isWhole && outputs.every((output) => output.kind === 'store')) {
    return rotatePairs(segment, pairing, operands, { ldc, fetches });
  }
  const row = new RowScope(operands, { fetches });
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

/** Rotary pairs in whole vectors: both halves of a head at once, so that each has the values of the other. */
function rotatePairs(
  segment: Segment,
  pairing: Extract<Pairing, { kind: 'rotate' }>,
  operands: Operands,
  { ldc, fetches }: { readonly ldc: number; readonly fetches: boolean },
): Epilogue {
  const { headDim, width } = pairing;
  const half = headDim / 2;
  const row = new RowScope(operands, { fetches });
  const acc = row.define('tile', 'float *', `tile + i * ${ldc}`);
  const body = new Body(row);
  const at = `(head - c0 + ${width === 16 ? '2 * j' : `j / ${width} * ${2 * width} + j % ${width}`})`;
  const lying = (c: string): string =>
    `${c} / ${headDim} * ${headDim} + ${c} % ${half} / ${width} * ${2 * width} + ${c} % ${width} + ` +
    `${c} % ${headDim} / ${half} * ${width}`;
  const inOrder = (column: string): Site => ({
    ...{ id: 'x', column, lanes: 16 },
    acc: () => `tw_load(${acc} + ${lying(`(${column} - c0)`)})`,
  });
  const groups = groupLines(segment, row, inOrder, 0, ldc);
  const first: Site = {
    id: 'a',
    column: '(head + j)',
    lanes: 16,
    ...groups.given('head'),
    acc: () => `tw_load(${acc} + ${at})`,
    rotate: (a, b) => ({ code: b.define('tw_v', `-${b.float(b.value(a, second))}`), kind: 'f', isRow: false }),
  };
  const second: Site = {
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
function throughLines(segment: Segment, row: RowScope, acc: string, ldc: number): Epilogue {
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
  const partner = (line: number, column: string, body: Body): Value => {
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
    const body = new Body(row);
    const vector = body.float(body.value(a, site('column', 16)));
    body.lines.push(`tw_store(lines + ${lineOf.get(printScalar(a))!} + column - c0, ${vector});`);
    const end = `(c0 + cn < ${columns} ? c0 + cn : ${columns})`;
    text += `    for (int64_t column = c0; column < ${end}; column += 16) {\n${indent(body.lines, 3)}    }\n`;
  });
  text += columnBlocks(outputs, row, columns, 'c0', 'c0 + cn', site);
  return { text: rowsLoop(row, text), lines: base + arguments_.length + groups.lines };
}

const matrixLines = (pairing: Pairing): number => (pairing.kind === 'interleave' ? 2 : 1);
