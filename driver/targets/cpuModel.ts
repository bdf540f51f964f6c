/** A model compiled for a CPU. */
import type { CpuFacts } from '../../codegen/cpu/index.js';
import type { CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { isBlockFormat } from '../../ir/storage.js';
import type { StoredFormats } from '../../passes/keepBlockWeights.js';
import { chooseIsa, type CpuContractions, FLOATS, type Machine, scheduleFacts, upTo } from '../machine.js';
import type { Precision } from '../target.js';
import type { CompiledModel } from './target.js';

/** A CPU, and the strongest micro-kernel that a plan uses on it. */
export interface CpuDevice extends CpuFacts {
  readonly isa: CpuIsa;
  readonly contractions: CpuContractions;
  /** Its name, for people. */
  readonly cpu: string;
}

export type CpuModel = CompiledModel<CpuSchedule, CpuDevice>;

/** This machine, for a plan whose strongest micro-kernel is `isa`. */
export const cpuDeviceFor = (machine: Machine, isa: CpuIsa, contractions: CpuContractions = FLOATS): CpuDevice => ({
  ...scheduleFacts(machine),
  isas: upTo(machine, isa),
  isa,
  contractions,
  cpu: machine.cpu.model.slice(0, 200),
});

/**
 * This machine as a plan's target. Matrices stay as they are `stored` where the precision is left to the target, or is
 * int8, for which matrices of floats are rounded. Throws UserError if it cannot compute in the requested precision.
 */
export function cpuDevice(
  machine: Machine,
  precision: Precision,
  wanted?: CpuIsa,
  stored: StoredFormats = new Map(),
): CpuDevice {
  const own = new Map([...stored].filter(([, format]) => format !== 'e4m3'));
  const isKept = precision === 'int8' || (precision === 'auto' && !(wanted === 'amx' && hasBlocks(own)));
  const kept: StoredFormats = isKept ? own : new Map();
  const isa = chooseIsa(machine, precision, wanted, hasBlocks(kept));
  return cpuDeviceFor(machine, isa, { stored: kept, rounds: precision === 'int8' && kept.size === 0 });
}

const hasBlocks = (stored: StoredFormats): boolean => [...stored.values()].some(isBlockFormat);
