/** Kernels without a contraction: generated loops over rows and columns, and the end of the log-sum-exp. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import type { LogProbReduceKernel, LoopKernel } from '../../ir/kernel.js';
import { loopDomains } from '../../ir/kernel.js';
import type { Dim } from '../../ir/types.js';
import { logprobReduceValues } from '../logprobReduce.js';
import { domainText } from './loopDomain.js';
import { gumbelText } from './text/draw.js';
import { blockFunctions } from './text/lanePrograms.js';
import type { CudaOperands, EmittedCuda } from './text/operands.js';
import { emittedPlain, kernelHead } from './text/operands.js';
import { indent } from './text/statements.js';
import { render } from './text/templates.js';

/** Elements of a block at least, if its rows have few columns. */
const ELEMENTS_OF_BLOCK = 1024;

/** A loop kernel: its domains lie one behind another along y. */
export function emitLoop(
  kernel: LoopKernel,
  operands: CudaOperands,
  schedule: CudaLoopSchedule,
  symbol: string,
  parameters: number,
): EmittedCuda {
  const { rows, finish } = kernel;
  const finished = finish === undefined ? {} : { finish };
  const domains = loopDomains(kernel).map((domain, at) => ({
    rows,
    at,
    columns: domain.columns,
    outputs: [...domain.outputs, ...(finish ?? [])],
    ...domainText({ ...domain, ...finished }, operands, schedule.threads / 32),
  }));
  const perRow = ({ columns }: { readonly columns: Dim }): number =>
    typeof columns === 'string' ? ELEMENTS_OF_BLOCK : Math.min(columns, ELEMENTS_OF_BLOCK);
  const longest = domains.reduce((a, b) => (perRow(b) > perRow(a) ? b : a));
  const rowsOfBlock = Math.max(longest.rowsAtOnce, Math.floor(ELEMENTS_OF_BLOCK / perRow(longest)));
  const { threads } = schedule;
  const blocks = Math.max(1, Math.floor(Math.min(...domains.map(({ resident }) => resident)) / threads));
  const head = kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads, blocks });
  const source = render('loop', {
    head,
    functions: blockFunctions(
      domains.flatMap(({ isWide, outputs }) => (isWide ? outputs : [])),
      operands,
    ),
    isMany: domains.length > 1,
    domains: domains.map((domain) => ({ ...domain, rowsOfBlock, text: indent(domain.lines, 2) })),
  });
  const gridX = { kind: 'tiles', extent: rows, per: rowsOfBlock, times: 1 } as const;
  return emittedPlain(source, schedule.threads, gridX, domains.length);
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
