/** A model compiled for a CPU. */
import type { CpuFacts } from '../../codegen/cpu/index.js';
import type { CpuIsa, CpuSchedule } from '../../ir/plan.js';
import type { StoredBlocks } from '../../passes/multiplyBlocks.js';
import { chooseIsa, scheduleFacts, upTo, type Machine } from '../machine.js';
import type { Precision } from '../target.js';
import type { CompiledModel } from './target.js';

/** A CPU, and the strongest micro-kernel that a plan uses on it. */
export interface CpuDevice extends CpuFacts {
  readonly isa: CpuIsa;
  /** Matrices that are multiplied as the blocks in which they are stored. */
  readonly blocks: StoredBlocks;
  /** Its name, for people. */
  readonly cpu: string;
}

export type CpuModel = CompiledModel<CpuSchedule, CpuDevice>;

/** This machine, for a plan whose strongest micro-kernel is `isa`. */
export const cpuDeviceFor = (machine: Machine, isa: CpuIsa, blocks: StoredBlocks = new Map()): CpuDevice => ({
  ...scheduleFacts(machine),
  isas: upTo(machine, isa),
  isa,
  blocks,
  cpu: machine.cpu.model.slice(0, 200),
});

/**
 * This machine as a plan's target. Matrices stay in `blocks` where the precision is left to the target. Throws
 * UserError if it cannot compute in the requested precision.
 */
export function cpuDevice(
  machine: Machine,
  precision: Precision,
  wanted?: CpuIsa,
  blocks: StoredBlocks = new Map(),
): CpuDevice {
  const kept = precision === 'auto' && wanted !== 'amx' ? blocks : new Map();
  return cpuDeviceFor(machine, chooseIsa(machine, precision, wanted, kept.size > 0), kept);
}
