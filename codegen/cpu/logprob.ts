/** The contraction with the vocabulary. */
import { drawOperands, storedLogits } from '../operands.js';
import type { LogProbKernel } from '../../ir/kernel.js';
import { LOGPROB_BLOCK, partWidth } from '../../ir/kernel.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { emitDriver } from './gemmDriver.js';
import { evenBlocks, tileStride, type Emitted } from './gemmItems.js';
import type { Operands } from './layout.js';
import { physicalColumns } from './layout.js';
import { capOf } from './literals.js';
import { RowScope } from './rowScope.js';
import { Body } from './scalarPrinter.js';
import { render } from './templates.js';

/** The vocabulary contraction: a gemm whose epilogue is an online log-sum-exp over each LOGPROB_BLOCK columns. */
export function emitLogProb(
  kernel: LogProbKernel,
  operands: Operands,
  schedule: CpuGemmSchedule,
  symbol: string,
): Emitted {
  const physical = physicalColumns(kernel.vocab, { kind: 'none' });
  const nb = evenBlocks(physical, schedule.nb, LOGPROB_BLOCK);
  const ldc = tileStride(nb);
  const row = new RowScope(operands);
  const scale = new Body(row).value(kernel.rowScale, { id: 'x', column: '0', lanes: 16 });
  if (!scale.isRow) throw new Error(`Kernel ${kernel.name} (${kernel.path}): its row scale differs between columns.`);
  const parts = operands.get(kernel.parts);
  const name = `${symbol}_epilogue`;
  const logits = storedLogits(kernel, operands);
  const epilogue = render('logprob', {
    name,
    ldc,
    extentLines: row.extentLines(),
    rowLines: row.lines,
    scale: scale.kind === 'f' ? scale.code : `(float)${scale.code}`,
    cap: kernel.cap === undefined ? undefined : capOf(kernel.cap),
    vocab: kernel.vocab,
    isPartial: kernel.vocab % 16 !== 0,
    block: LOGPROB_BLOCK,
    width: partWidth(kernel),
    draw:
      kernel.draw === undefined ? undefined : { noise: render('gumbel', {}), ...drawOperands(kernel.draw, operands) },
    target: operands.get(kernel.target).index,
    logits: logits === undefined ? undefined : { ...logits, rows: operands.extentIndex(logits.extent) },
    parts: parts.index,
    partsStride: parts.stride,
  });
  const segment = {
    weight: kernel.weight,
    physical,
    nb,
    matrices: 1,
    epilogue: name,
    usesLines: false,
  };
  const driver = emitDriver(
    { symbol, rows: kernel.rows, k: kernel.k, a: kernel.a, schedule, ldc, segments: [segment], lines: 0 },
    operands,
  );
  return { ...driver, source: epilogue + driver.source };
}
