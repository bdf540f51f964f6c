/** A model compiled for a CPU. */
import type { CpuFacts } from '../../codegen/cpu/index.js';
import type { CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { chooseIsa, scheduleFacts, upTo, type Machine } from '../machine.js';
import type { Precision } from '../target.js';
import type { CompiledModel } from './target.js';

/** A CPU, and the strongest micro-kernel that a plan uses on it. */
export interface CpuDevice extends CpuFacts {
  readonly isa: CpuIsa;
  /** Its name, for people. */
  readonly cpu: string;
}

export type CpuModel = CompiledModel<CpuSchedule, CpuDevice>;

/** This machine, for a plan whose strongest micro-kernel is `isa`. */
export const cpuDeviceFor = (machine: Machine, isa: CpuIsa): CpuDevice => ({
  ...scheduleFacts(machine),
  isas: upTo(machine, isa),
  isa,
  cpu: machine.cpu.model.slice(0, 200),
});

/** This machine as a plan's target. Throws UserError if it cannot compute in the requested precision. */
export const cpuDevice = (machine: Machine, precision: Precision, wanted?: CpuIsa): CpuDevice =>
  cpuDeviceFor(machine, chooseIsa(machine, precision, wanted));
