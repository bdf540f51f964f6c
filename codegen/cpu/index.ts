/** Kernel IR and a schedule to C: the entry point of codegen/cpu. */
import type { Extents } from '../../ir/extents.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { CpuSchedule } from '../../ir/plan.js';
import { emitAttention } from './attention.js';
import type { Emitted } from './gemmItems.js';
import { emitGemm } from './gemm.js';
import { emitLogProb } from './logprob.js';
import { Operands } from './layout.js';
import { sortByExpertValues, routeValues } from '../experts.js';
import { sampleValues } from '../sample.js';
import { logprobReduceValues } from '../logprobReduce.js';
import { loopProgram } from './programLoops.js';
import type { MarkOf } from '../marks.js';
import { kernelSignature, parametersOf, scheduleHash } from '../signature.js';
import { render } from './templates.js';
import type { EmittedKernel } from './units.js';

export { kernelSignature, parametersOf } from '../signature.js';
export { isLegal } from './legality.js';
export type { CpuFacts } from './legality.js';
export { defaultSchedule } from './defaults.js';
export { templatesHash } from './templates.js';
export { compilerFlags } from './intrinsics.js';
export { emitTranslationUnit, unitOf, unitsOf, type EmittedKernel, type KernelUnit, type Unit } from './units.js';

/**
 * Prints `kernel` under `schedule`. `capacity` is the largest call: it fixes the strides of [T, T] buffers and the
 * scratch memory of attention. Throws if kernel and schedule are of different kinds or a program cannot be printed. The
 * text is undefined for a schedule that isLegal refuses. `markOf`: marks of statements, see marks.ts.
 */
export function emitKernel(
  kernel: Kernel,
  module: KernelModule,
  schedule: CpuSchedule,
  capacity: Extents,
  markOf?: MarkOf,
): EmittedKernel {
  const parameters = parametersOf(kernel, module);
  const signature = kernelSignature(kernel, module, capacity);
  const symbol = `k_${kernel.anchor.toLowerCase()}_${signature}_${scheduleHash(schedule)}`;
  const operands = new Operands(kernel, module, parameters, capacity, markOf);
  const { source, helpers, scratchBytes } = emitAnchor(kernel, operands, schedule, symbol);
  const unique = new Map(helpers.map((helper) => [helper.name, helper.source]));
  return { symbol, source: [...unique.values(), source].join('\n'), scratchBytes, parameters };
}

function emitAnchor(kernel: Kernel, operands: Operands, schedule: CpuSchedule, symbol: string): Emitted {
  const mismatch = (): never => {
    throw new Error(
      `Kernel ${kernel.name} (${kernel.path}) is a ${kernel.anchor}, but its schedule is for ${schedule.kind}.`,
    );
  };
  switch (kernel.anchor) {
    case 'gemm':
      return schedule.kind === 'gemm' ? emitGemm(kernel, operands, schedule, symbol) : mismatch();
    case 'logprob':
      return schedule.kind === 'gemm' ? emitLogProb(kernel, operands, schedule, symbol) : mismatch();
    case 'attention':
      return schedule.kind === 'attention' ? emitAttention(kernel, operands, schedule, symbol) : mismatch();
    case 'loop': {
      if (schedule.kind !== 'loop') return mismatch();
      const program = loopProgram(kernel, operands);
      return {
        source: render('loop', { symbol, program, rows: operands.extentIndex(kernel.rows), step: schedule.rows }),
        helpers: [],
        scratchBytes: 0,
      };
    }
    case 'sample': {
      if (schedule.kind !== 'loop') return mismatch();
      const source = render('sample', {
        symbol,
        noise: render('gumbel', {}),
        rows: operands.extentIndex(kernel.rows),
        entries: operands.extentIndex(operands.rowsOf(kernel.inputs.entryToken).extent),
        step: schedule.rows,
        ...sampleValues(kernel, operands),
      });
      return { source, helpers: [], scratchBytes: 0 };
    }
    case 'route':
    case 'sortByExpert': {
      if (schedule.kind !== 'loop') return mismatch();
      const values = kernel.anchor === 'route' ? routeValues(kernel, operands) : sortByExpertValues(kernel, operands);
      const rows = operands.extentIndex(kernel.rows);
      const source = render(kernel.anchor, { symbol, rows, step: schedule.rows, ...values });
      return { source, helpers: [], scratchBytes: 0 };
    }
    case 'logprobReduce': {
      if (schedule.kind !== 'loop') return mismatch();
      const source = render('logprobReduce', {
        symbol,
        rows: operands.extentIndex(kernel.rows),
        step: schedule.rows,
        ...logprobReduceValues(kernel, operands),
      });
      return { source, helpers: [], scratchBytes: 0 };
    }
    default:
      return kernel satisfies never;
  }
}
