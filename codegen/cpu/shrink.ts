/** The first factor of adapters on a CPU. */
import type { ShrinkKernel } from '../../ir/kernel.js';
import type { CpuLoopSchedule } from '../../ir/plan.js';
import type { COperands } from './operands.js';
import type { Emitted } from './unit.js';

export function emitShrink(kernel: ShrinkKernel, _: COperands, __: CpuLoopSchedule, ___: string): Emitted {
  throw new Error(`${kernel.path}: adapters are not supported on CPUs`);
}
