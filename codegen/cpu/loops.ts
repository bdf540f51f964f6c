/** Kernels that are loops over rows: scalar programs, and the headers of head/ and experts/. */
import {
  LOGPROB_BLOCK,
  type LogProbReduceKernel,
  type LoopKernel,
  partWidth,
  type RouteKernel,
  type SampleKernel,
  type SortByExpertKernel,
} from '../../ir/kernel.js';
import type { CpuLoopSchedule } from '../../ir/plan.js';
import { routeValues, sampleValues, sortByExpertValues } from '../templateValues.js';
import { type COperands, elementType } from './operands.js';
import { loopProgram } from './programLoops.js';
import { constantNumbers, type ConfigFields, type Emitted, kernelFunction } from './unit.js';

/** A kernel that is a call of a header's function. */
const emitCall = (
  symbol: string,
  include: string,
  call: string,
  type: string,
  config: ConfigFields,
  tables: readonly string[] = [],
): Emitted => ({
  includes: [include],
  helpers: [],
  source: kernelFunction({ symbol, tables, type, config, call }),
  scratchBytes: 0,
});

export const emitLoop = (
  kernel: LoopKernel,
  operands: COperands,
  { rows }: CpuLoopSchedule,
  symbol: string,
): Emitted => ({
  includes: ['lib/elementary.h', 'lib/rows.h'],
  helpers: [],
  source:
    `static void ${symbol}_rows(const tw_launch *launch, int64_t m0, int64_t mn) {\n` +
    `${loopProgram(kernel, operands)}}\n` +
    `void ${symbol}(const tw_launch *launch, int32_t worker, int32_t workers) {\n  (void)worker;\n  (void)workers;\n` +
    `  for (RowBlock block; tw_next_rows(launch, launch->extents[${operands.extentIndex(kernel.rows)}], ${rows}, ` +
    `&block);)\n    ${symbol}_rows(launch, block.begin, block.end - block.begin);\n}\n`,
  scratchBytes: 0,
});

export const emitSample = (
  kernel: SampleKernel,
  operands: COperands,
  { rows: step }: CpuLoopSchedule,
  symbol: string,
): Emitted =>
  emitCall(symbol, 'head/sample.h', 'tw_sample', 'SampleConfig', {
    rows: operands.extentIndex(kernel.rows),
    entries: operands.extentIndex(operands.rowsOf(kernel.inputs.entryToken).extent),
    step,
    ...sampleValues(kernel, operands),
  });

export function emitRoute(
  kernel: RouteKernel,
  operands: COperands,
  { rows: step }: CpuLoopSchedule,
  symbol: string,
): Emitted {
  const { weights, rule, ...values } = routeValues(kernel, operands);
  const bias = kernel.bias === undefined ? undefined : operands.get(kernel.bias);
  const tables = [
    constantNumbers(
      'weights',
      weights.map(({ buffer }) => buffer),
    ),
  ];
  const added = bias === undefined ? {} : { hasBias: true, bias: bias.index, biasType: elementType(bias) };
  const rows = operands.extentIndex(kernel.rows);
  const config = { rows, step, ...values, weights: 'weights', ...rule, ...added };
  return emitCall(symbol, 'experts/route.h', 'tw_route', 'RouteConfig', config, tables);
}

export function emitSortByExpert(kernel: SortByExpertKernel, operands: COperands, symbol: string): Emitted {
  const { places, ...values } = sortByExpertValues(kernel, operands);
  const tables = [
    constantNumbers(
      'places',
      places.map(({ buffer }) => buffer),
    ),
  ];
  const config = { rows: operands.extentIndex(kernel.rows), ...values, places: 'places' };
  return emitCall(symbol, 'experts/sortByExpert.h', 'tw_sort_by_expert', 'SortConfig', config, tables);
}

export function emitLogProbReduce(
  kernel: LogProbReduceKernel,
  operands: COperands,
  { rows: step }: CpuLoopSchedule,
  symbol: string,
): Emitted {
  const index = (name: string): number => operands.get(name).index;
  const { draw, totals } = kernel;
  return emitCall(symbol, 'head/reduce.h', 'tw_log_prob_reduce', 'ReduceConfig', {
    rows: operands.extentIndex(kernel.rows),
    step,
    vocab: kernel.vocab,
    block: LOGPROB_BLOCK,
    width: partWidth(kernel),
    parts: index(kernel.parts),
    target: index(kernel.target),
    logProb: index(kernel.logProb),
    isArgmax: index(kernel.isArgmax),
    partsStride: operands.get(kernel.parts).stride,
    hasTotals: totals !== undefined,
    top: totals && index(totals.top),
    sum: totals && index(totals.sum),
    draws: draw !== undefined,
    drawnToken: draw && index(draw.token),
    drawnLogProb: draw && index(draw.logProb),
    maps: draw?.ids !== undefined,
    ids: draw?.ids && index(draw.ids),
  });
}
