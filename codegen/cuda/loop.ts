/** Kernels without a contraction: generated loops over rows and columns, and the end of the log-sum-exp. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import type { LogProbReduceKernel, LoopDomain, LoopKernel } from '../../ir/kernel.js';
import { loopDomains, ROW_SUM_BLOCK } from '../../ir/kernel.js';
import { gumbelText } from './text/draw.js';
import { logprobReduceValues } from '../logprobReduce.js';
import type { CudaOperands, EmittedCuda } from './text/operands.js';
import { emittedPlain, kernelHead } from './text/operands.js';
import { programValues, storeLine } from './text/programs.js';
import type { Site } from './text/scalarPrinter.js';
import { Body, RowScope } from './text/scalarPrinter.js';
import { indent } from './text/statements.js';
import { render } from './text/templates.js';

/** Rows per block if they have few columns: enough to occupy the block's threads. */
const ELEMENTS_OF_BLOCK = 1024;

/**
 * A loop kernel. Each warp takes 32·lanes columns of a row. Row sums need whole blocks in one warp, one column per
 * lane. Without row sums a lane takes two adjacent columns if the number of columns is even.
 */
export function emitLoop(
  kernel: LoopKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  // Blocks of each domain lie one behind another along y.
  const domains = loopDomains(kernel).map((domain) => domainText(domain, operands));
  const most = Math.max(...domains.map(({ perRow }) => perRow));
  const rowsOfBlock = Math.max(1, Math.floor(ELEMENTS_OF_BLOCK / most));
  const common = { rows: kernel.rows, threads: schedule.threads, rowsOfBlock, sumBlock: ROW_SUM_BLOCK };
  const head = kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads: schedule.threads });
  const source = render('loop', {
    ...common,
    head,
    isMany: domains.length > 1,
    domains: domains.map((domain, at) => ({ ...common, ...domain, at })),
  });
  const gridX = { kind: 'tiles', extent: kernel.rows, per: rowsOfBlock, times: 1 } as const;
  return emittedPlain(source, schedule.threads, gridX, domains.length);
}

/** What a warp does for a piece of a row; `perRow`: columns of it, as far as they matter for rows of a block. */
function domainText({ columns, headDim, outputs }: LoopDomain, operands: CudaOperands) {
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
  return {
    columns,
    lanes,
    step: 32 * lanes,
    perRow: typeof columns === 'string' ? ELEMENTS_OF_BLOCK : Math.min(columns, ELEMENTS_OF_BLOCK),
    row: indent(row.lines, 2),
    sums: sums.map(({ by }, i) => ({ name: `s${i}`, combine: by === 'max' ? 'tw_block_max' : 'tw_block_sum' })),
    program: indent([...body.lines, ...adds, ...stores], 4),
    close: indent(closes, 3),
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
