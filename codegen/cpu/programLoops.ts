/** Loops over rows and columns around scalar programs, and loop kernels, which are nothing else. */
import {
  isRowMax,
  type LoopDomain,
  loopDomains,
  type LoopKernel,
  type Output,
  ROW_SUM_BLOCK,
} from '../../ir/kernel.js';
import type { Scalar } from '../../ir/scalar.js';
import { type Dim, DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { C_TYPES, type Operand, type COperands, CRowScope, type VectorValue } from './operands.js';
import { VectorBody, type VectorSite } from './scalarPrinter.js';

type RowSum = Extract<Output, { kind: 'rowSum' }>;

/** Lines as text, two spaces for each level. */
export const indent = (lines: readonly string[], depth: number): string =>
  lines.map((line) => `${'  '.repeat(depth)}${line}\n`).join('');

/** The destination of an output: the pointer to its row, and the test before a store if an index of −1 means no row. */
function targetOf(
  output: Output,
  row: CRowScope,
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
function reduced(output: RowSum, { columns }: Operand, pointer: string, { column }: VectorSite, value: string): string {
  const part = `${output.by === 'max' ? 'tw_most' : 'tw_sum'}(${value})`;
  return isRowMax(output, columns)
    ? `*${pointer} = (${column}) == 0 ? ${part} : tw_s_most(*${pointer}, ${part});`
    : `${pointer}[(${column}) / ${ROW_SUM_BLOCK}] = ${part};`;
}

/** Prints the outputs at one site into `body`. A block of a row sum is one vector, whose lanes are added here. */
export function printOutputs(outputs: readonly Output[], site: VectorSite, body: VectorBody): void {
  // All values are computed before the first store, because an output may be stored over a buffer that another output
  // reads.
  const values = outputs.map((output) => body.masked(output.value, site));
  outputs.forEach((output, i) => {
    const { operand, pointer, guard } = targetOf(output, body.row);
    if (body.row.fetches && guard === '' && output.kind !== 'rowSum' && operand.columns !== 1) {
      // Once for each line, of which 16 numbers may be a part.
      const inLine = 64 / DTYPE_BYTES[operand.dtype];
      const isFirst = inLine === 16 ? '' : `if ((${site.column}) % ${inLine} == 0) `;
      body.lines.push(`${isFirst}__builtin_prefetch(${pointer} + ${operand.stride} + ${site.column}, 1);`);
    }
    const store =
      output.kind === 'rowSum'
        ? reduced(output, operand, pointer, site, values[i]!)
        : site.count !== undefined
          ? `${guard}{ ${C_TYPES[operand.dtype]} t_[16]; tw_store_${operand.dtype}(t_, ${values[i]!}); ` +
            `memcpy(${pointer} + ${site.column}, t_, (size_t)(${site.count}) * sizeof *t_); }`
          : operand.columns === 1
            ? `${guard}tw_s_store_${operand.dtype}(${pointer}, ${values[i]!}[0]);`
            : `${guard}tw_store_${operand.dtype}(${pointer} + ${site.column}, ${values[i]!});`;
    body.lines.push(store + (body.row.operands.markOf?.(output.value) ?? ''));
  });
}

/** Zeroes the padding after the last column. */
function printZeros(outputs: readonly Output[], column: string, body: VectorBody): void {
  for (const output of outputs) {
    if (output.kind === 'rowSum') continue;
    const { operand, pointer, guard } = targetOf(output, body.row);
    if (operand.columns !== 1)
      body.lines.push(`${guard}tw_store_${operand.dtype}(${pointer} + ${column}, tw_set1(0.0f));`);
  }
}

/** Makes the site of the columns from `column` on. */
export type MakeSite = (column: string, lanes: number | string) => VectorSite;

/** Loops over blocks of 32 columns [from, to) of one row; `columns` is the domain's extent, `from` a multiple of 32. */
export function columnBlocks(
  outputs: readonly Output[],
  row: CRowScope,
  columns: Dim,
  from: string,
  to: string,
  site: MakeSite,
): string {
  const full = new VectorBody(row);
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
    const body = new VectorBody(row);
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

/**
 * Loops over columns [from, to) of one row, of which neighbours on either side belong to other work items: `columns` is
 * the domain's extent. Behind its end, whole vectors are zeros up to a multiple of 32.
 */
export function looseColumns(
  outputs: readonly Output[],
  row: CRowScope,
  columns: number,
  [from, to]: readonly [string, string],
  site: MakeSite,
): string {
  const body = new VectorBody(row);
  printOutputs(outputs, { ...site('column', 16), count: `${to} - column < 16 ? ${to} - column : 16` }, body);
  const text = `    for (int64_t column = ${from}; column < ${to}; column += 16) {\n${indent(body.lines, 3)}    }\n`;
  if (columns % 32 === 0) return text;
  const end = new VectorBody(row);
  for (const output of outputs) {
    const { operand, pointer } = targetOf(output, row);
    if (output.kind === 'store' && output.via === undefined)
      end.lines.push(
        `memset(${pointer} + ${columns}, 0, ${(roundUp(columns, 32) - columns) * DTYPE_BYTES[operand.dtype]});`,
      );
  }
  return `${text}    if (${to} == ${columns}) {\n${indent(end.lines, 3)}    }\n`;
}

/** A loop over the rows of an item: what runs once for each row, and `text`. */
export const rowsLoop = (row: CRowScope, text: string): string =>
  indent(row.extentLines(), 1) +
  `  for (int64_t i = 0; i < mn; i++) {\n    const int64_t row = m0 + i;\n${indent(row.lines, 2)}${text}  }\n`;

/**
 * The site with rotateHalf. The partners of its columns are half a head away. They are read as whole vectors if half a
 * head is a whole number of vectors, otherwise lane by lane.
 */
function withRotation(site: VectorSite, headDim: number): VectorSite {
  const half = headDim / 2;
  const partnerOf = (column: string): string =>
    `((${column}) % ${headDim} < ${half} ? ${column} + ${half} : ${column} - ${half})`;
  const rotate = (a: Scalar, body: VectorBody): VectorValue => {
    if (half % 16 === 0 && site.at === undefined) {
      const partner = withRotation({ ...site, id: `${site.id}p`, column: partnerOf(site.column) }, headDim);
      const value = body.float(body.value(a, partner));
      const isFirst = `(${site.column}) % ${headDim} < ${half}`;
      return { code: body.define('tw_v', `${isFirst} ? -${value} : ${value}`), kind: 'f', isRow: false };
    }
    const columnAt = site.at ?? ((lane: string): string => `(${site.column} + ${lane})`);
    const partner: VectorSite = { ...site, id: `${site.id}p`, at: (lane) => partnerOf(columnAt(lane)) };
    const value = body.float(body.value(a, withRotation(partner, headDim)));
    const signs = body.lanes((lane) => `${columnAt(lane)} % ${headDim} < ${half} ? -1.0f : 1.0f`);
    return { code: body.define('tw_v', `${signs} * ${value}`), kind: 'f', isRow: false };
  };
  return { ...site, rotate };
}

/** Body of a function (launch, m0, mn): rows [m0, m0 + mn) of a loop kernel. */
export function loopProgram(kernel: LoopKernel, operands: COperands): string {
  const { columns, finish } = kernel;
  // A worker has whole rows: what finishes them comes behind the others.
  const domains = [...loopDomains(kernel), ...(finish === undefined ? [] : [{ columns, outputs: finish }])];
  if (domains.length === 1) return domainProgram(domains[0]!, operands);
  return domains.map((domain) => `  {\n${domainProgram(domain, operands)}  }\n`).join('');
}

function domainProgram({ outputs, columns, headDim }: LoopDomain, operands: COperands): string {
  const row = new CRowScope(operands);
  const site: MakeSite = (column, lanes) =>
    headDim === undefined ? { id: 'x', column, lanes } : withRotation({ id: 'x', column, lanes }, headDim);
  const text = columnBlocks(outputs, row, columns, '0', row.extent(columns), site);
  return rowsLoop(row, text);
}
