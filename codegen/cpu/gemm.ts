/** Contractions: work items of mb×nb, register tiles inside, and an epilogue on the finished tile. */
import type { GemmKernel, Segment } from '../../ir/kernel.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { emitDriver } from './gemmDriver.js';
import { evenBlocks, tileStride, type Emitted } from './gemmItems.js';
import type { Operands } from './layout.js';
import { columnStep, matricesOf, physicalColumns } from './layout.js';
import { epilogueProgram } from './epilogues.js';

const staticFunction = (name: string, parameters: string, text: string): string =>
  `static void ${name}(\n    const tw_launch *launch, ${parameters}) {\n  (void)launch;\n${text}}\n`;

/** Prints a gemm kernel as C. The schedule must be legal for it (isLegal). */
export function emitGemm(kernel: GemmKernel, operands: Operands, schedule: CpuGemmSchedule, symbol: string): Emitted {
  const blocks = kernel.segments.map((segment) => {
    const physical = physicalColumns(segment.columns, segment.pairing);
    return { physical, nb: evenBlocks(physical, schedule.nb, columnStep(segment)) };
  });
  const ldc = tileStride(Math.max(...blocks.map(({ nb }) => nb)));
  let functions = '';
  let lines = 0;
  const segments = kernel.segments.map((segment: Segment, i) => {
    const epilogue = epilogueProgram(segment, operands, ldc, schedule.isa === 'amx');
    const name = `${symbol}_epilogue${i}`;
    const usesLines = epilogue.lines > 0;
    lines = Math.max(lines, epilogue.lines);
    const linesParameter = usesLines ? ', float *lines' : '';
    const parameters = `float *tile, int64_t m0, int64_t mn, int64_t c0, int64_t cn${linesParameter}`;
    functions += staticFunction(name, parameters, epilogue.text);
    return {
      weight: segment.weight,
      ...blocks[i]!,
      matrices: matricesOf(segment.pairing),
      epilogue: name,
      usesLines,
    };
  });
  const driver = emitDriver(
    {
      ...{ symbol, rows: kernel.rows, k: kernel.k, a: kernel.a, schedule, ldc, segments, lines },
      ...(kernel.experts === undefined ? {} : { experts: kernel.experts }),
    },
    operands,
  );
  return { ...driver, source: functions + driver.source };
}
