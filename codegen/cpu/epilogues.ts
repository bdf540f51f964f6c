/** Epilogues of contractions: scalar programs over the rows and columns of a finished tile. */
import type { Output, Pairing, Segment } from '../../ir/kernel.js';
import type { Scalar } from '../../ir/scalar.js';
import { operands as childrenOf, printScalar } from '../../ir/scalar.js';
import { groupLines } from './groupLines.js';
import type { Operands } from './layout.js';
import { columnBlocks, indent, printOutputs, rowsLoop, type MakeSite } from './programLoops.js';
import { RowScope, type Value } from './rowScope.js';
import { Body, type Site } from './scalarPrinter.js';

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
    id: 'x',
    column,
    lanes: 16,
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
