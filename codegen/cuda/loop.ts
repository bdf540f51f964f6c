/** Kernels without a contraction: generated loops over rows and columns, and the end of the log-sum-exp. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import type { LogProbReduceKernel, LoopDomain, LoopKernel } from '../../ir/kernel.js';
import { loopDomains, ROW_SUM_BLOCK } from '../../ir/kernel.js';
import type { Dim } from '../../ir/types.js';
import { gumbelText } from './text/draw.js';
import { logprobReduceValues } from '../logprobReduce.js';
import type { CudaOperands, EmittedCuda } from './text/operands.js';
import { emittedPlain, kernelHead } from './text/operands.js';
import {
  blockFunctions,
  COLUMNS_OF_LANE,
  isWholeRow,
  laneLoads,
  lanePrograms,
  WARP_COLUMNS,
  wordsOf,
} from './text/lanePrograms.js';
import { programValues, storeLine } from './text/programs.js';
import type { Site } from './text/scalarPrinter.js';
import { Body, RowScope } from './text/scalarPrinter.js';
import { indent } from './text/statements.js';
import { render } from './text/templates.js';

/** Elements of a block at least, if its rows have few columns. */
const ELEMENTS_OF_BLOCK = 1024;
/** 32-bit words of operands that a wide lane has under way at once; a kernel then needs some 64 registers. */
const MOST_WORDS = 16;

/**
 * A loop kernel. Warps share a row and compute what depends on it alone once each. Where rows are long and memory
 * allows, a lane takes eight adjacent columns. Otherwise it takes two, or one where rows are summed: sums need whole
 * blocks in one warp.
 */
export function emitLoop(
  kernel: LoopKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  // Blocks of each domain lie one behind another along y.
  const domains = loopDomains(kernel).map((domain) => domainText(domain, operands, schedule.threads / 32));
  const most = Math.max(...domains.map(({ perRow }) => perRow));
  const { rowsAtOnce } = domains.find(({ perRow }) => perRow === most)!;
  const rowsOfBlock = Math.max(rowsAtOnce, Math.floor(ELEMENTS_OF_BLOCK / most));
  const common = { rows: kernel.rows, rowsOfBlock, sumBlock: ROW_SUM_BLOCK };
  const head = kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads: schedule.threads });
  const source = render('loop', {
    head,
    functions: blockFunctions(domains.flatMap(({ isWide, outputs }) => (isWide ? outputs : []))),
    isMany: domains.length > 1,
    domains: domains.map((domain, at) => ({ ...common, ...domain, at })),
  });
  const gridX = { kind: 'tiles', extent: kernel.rows, per: rowsOfBlock, times: 1 } as const;
  return emittedPlain(source, schedule.threads, gridX, domains.length);
}

/** How `warps` warps share rows of `columns` columns of which each takes `step` at a time. */
function sharing(columns: Dim, step: number, warps: number) {
  const pieces = typeof columns === 'string' ? warps : Math.ceil(columns / step);
  const side = divisors(warps).find((count) => count >= pieces) ?? warps;
  return { step, side, rowsAtOnce: warps / side, turns: Math.ceil(pieces / side) };
}

const divisors = (n: number): number[] => Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);

/** What the warps of a block do; `perRow`: columns of a row, as far as they matter for rows of a block. */
function domainText(domain: LoopDomain, operands: CudaOperands, warps: number) {
  const { columns, outputs } = domain;
  const perRow = typeof columns === 'string' ? ELEMENTS_OF_BLOCK : Math.min(columns, ELEMENTS_OF_BLOCK);
  const isWide = hasWideLanes(domain, operands);
  const text = isWide ? wideText(domain, operands, warps) : narrowText(domain, operands, warps);
  return { columns, outputs, perRow, isWide, ...text };
}

/** Whether lanes take eight columns each: a row has enough of them for all lanes of a warp. */
function hasWideLanes({ columns, headDim, outputs }: LoopDomain, operands: CudaOperands): boolean {
  if (typeof columns === 'string' || headDim !== undefined || columns < WARP_COLUMNS) return false;
  return outputs.every((output) => {
    if (output.kind === 'rowSum') return columns % ROW_SUM_BLOCK === 0;
    const operand = operands.get(output.buffer);
    return columns % COLUMNS_OF_LANE === 0 && operand.columns !== 1 && isWholeRow(operand);
  });
}

/** Lanes of eight columns. Loads of several turns are under way at once, before what depends on the row if all are. */
function wideText({ columns, outputs }: LoopDomain, operands: CudaOperands, warps: number) {
  const { turns, ...shared } = sharing(columns, WARP_COLUMNS, warps);
  const loads = laneLoads(outputs, operands);
  const words = loads.reduce((sum, { operand }) => sum + wordsOf(operand), 0);
  const passes = Math.ceil(turns / Math.max(1, Math.floor(MOST_WORDS / Math.max(1, words))));
  const atOnce = Math.ceil(turns / passes);
  const text = lanePrograms({ outputs, loads, atOnce }, operands);
  const apart = shared.side * WARP_COLUMNS;
  const isLate = passes === 1;
  return {
    ...{ ...shared, atOnce, apart, stride: apart * atOnce },
    row: isLate ? '' : indent(text.row, 2),
    lateRow: isLate ? indent(text.row, 3) : '',
    declared: indent(text.declared, 3),
    load: indent(text.load, 5),
    words: indent(text.words, 4),
    program: indent(text.program, 4),
    store: indent(text.store, 4),
  };
}

/** Lanes of one or two columns. */
function narrowText({ columns, headDim, outputs }: LoopDomain, operands: CudaOperands, warps: number) {
  const sums = outputs.filter((output) => output.kind === 'rowSum');
  // Partners of two adjacent columns are adjacent if half a head is even.
  const arePairs = headDim === undefined || headDim % 4 === 0;
  const lanes = sums.length === 0 && typeof columns === 'number' && columns % 2 === 0 && arePairs ? 2 : 1;
  const row = new RowScope(operands, 'row');
  const body = new Body(row);
  const plain: Site = { id: 'x', column: 'column', lanes };
  const site = headDim === undefined ? plain : withRotation(plain, headDim);
  const values = outputs.map((output) => programValues(output, body, site));
  const stores = outputs.flatMap((output, i) =>
    output.kind === 'store'
      ? [
          storeLine(operands.get(output.buffer), row, site, values[i]!, output.via) +
            (operands.markOf?.(output.value) ?? ''),
        ]
      : [],
  );
  const adds = outputs.flatMap((output, i) =>
    output.kind === 'rowSum' ? [`s${sums.indexOf(output)} = ${values[i]![0]!};`] : [],
  );
  const closes = sums.map(({ buffer }, i) => {
    const pointer = row.rowPointer(operands.get(buffer), undefined);
    return `if (lane % ${ROW_SUM_BLOCK} == 0 && column < columns) ${pointer}[column / ${ROW_SUM_BLOCK}] = s${i};`;
  });
  const shared = sharing(columns, 32 * lanes, warps);
  return {
    ...{ ...shared, lanes, stride: shared.side * shared.step },
    row: indent(row.lines, 2),
    sums: sums.map(({ by }, i) => ({ name: `s${i}`, combine: by === 'max' ? 'tw_block_max' : 'tw_block_sum' })),
    program: indent([...body.lines, ...adds, ...stores], 4),
    store: indent(closes, 3),
  };
}

/** The site with rotateHalf. The partners of its columns are half a head away. */
function withRotation(site: Site, headDim: number): Site {
  const half = headDim / 2;
  const isFirst = `${site.column} % ${headDim} < ${half}`;
  const column = `(${isFirst} ? ${site.column} + ${half} : ${site.column} - ${half})`;
  return {
    ...site,
    rotate: { partner: () => withRotation({ ...site, id: `${site.id}p`, column }, headDim), isNegated: `(${isFirst})` },
  };
}

/** Combines the parts of a row's log-sum-exp, one warp per row. */
export function emitLogProbReduce(
  kernel: LogProbReduceKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const warps = schedule.threads / 32;
  const source = render('logprobReduce', {
    head: kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads: schedule.threads }),
    warps,
    rows: kernel.rows,
    noise: kernel.draw === undefined ? '' : gumbelText(),
    ...logprobReduceValues(kernel, operands),
  });
  const gridX = { kind: 'tiles', extent: kernel.rows, per: warps, times: 1 } as const;
  return emittedPlain(source, schedule.threads, gridX);
}
