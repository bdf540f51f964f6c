/** Contractions: work items of mb×nb, register tiles inside, and an epilogue on the finished tile. */
import { defined } from '../../system/defined.js';
import type { GemmKernel, Segment } from '../../ir/kernel.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import { isQuads, QUADS, unitDepth } from '../../ir/quads.js';
import { besideProducts, type BesideProducts } from './besideProducts.js';
import { emitDriver } from './gemmDriver.js';
import { evenBlocks, tileStride, type Emitted } from './gemmItems.js';
import { passUnits } from './gemmQuads.js';
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
  const beside = besideOf(kernel, operands, schedule, symbol, ldc);
  let functions = '';
  let lines = 0;
  const segments = kernel.segments.map((segment: Segment, i) => {
    if (beside !== undefined)
      return { weight: segment.weight, ...blocks[i]!, matrices: matricesOf(segment.pairing), usesLines: false };
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
      symbol,
      rows: kernel.rows,
      k: kernel.k,
      a: kernel.a,
      schedule,
      ldc,
      segments,
      lines,
      beside,
      ...defined({ experts: kernel.experts }),
    },
    operands,
  );
  return { ...driver, source: functions + driver.source };
}

/** The epilogue of a kernel of one segment beside its products. */
function besideOf(
  { segments, k }: GemmKernel,
  operands: Operands,
  schedule: CpuGemmSchedule,
  symbol: string,
  ldc: number,
): BesideProducts | undefined {
  const [segment] = segments;
  if (segments.length !== 1 || segment === undefined) return undefined;
  const { format } = operands.weight(segment.weight).weight;
  const place = { symbol, schedule, ldc };
  if (isQuads(format)) {
    const units = Math.ceil(k / unitDepth(QUADS[format]));
    const steps = lastOf(units, passUnits(units));
    return besideProducts(segment, operands, { ...place, steps, zero: QUADS[format].zero });
  }
  return besideProducts(segment, operands, { ...place, steps: lastOf(Math.ceil(k / 32), Math.ceil(schedule.kc / 32)) });
}

/** How many of `all` are in the last pass if a pass takes `most`. */
const lastOf = (all: number, most: number): number => ((all - 1) % most) + 1;
