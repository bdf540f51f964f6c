/** This machine's processors as a target: micro-kernels, numerics, arithmetic. */
import type { CpuFacts } from '../../codegen/cpu/index.js';
import { UsageError, UserError } from '../../errors.js';
import { CPU_ISAS, type CpuIsa } from '../../ir/plan.js';
import { isBlockFormat } from '../../ir/storage.js';
import type { StoredFormats } from '../../passes/keepBlockWeights.js';
import type { Numerics } from '../../passes/numerics.js';
import { type CpuInfo, loadAddon } from '../../runtime/addon.js';
import { defined } from '../../system/defined.js';
import type { CpuArithmetic, Precision } from '../precision.js';

export interface Machine {
  readonly cpu: CpuInfo;
  /** Micro-kernels it can run, weakest first. */
  readonly isas: readonly CpuIsa[];
}

export function detectMachine(): Machine {
  const cpu = loadAddon().cpuInfo();
  const has: Readonly<Record<CpuIsa, boolean>> = {
    portable: true,
    avx2: cpu.isas.avx2,
    avx512: cpu.isas.avx512,
    amx: cpu.isas.amx && cpu.isas.avx512,
  };
  return { cpu, isas: CPU_ISAS.filter((isa) => has[isa]) };
}

/** Facts that schedules are judged by. If a cache size is unknown, a small common one is assumed. */
export const scheduleFacts = (machine: Machine): { isas: readonly CpuIsa[]; l1: number; l2: number } => ({
  isas: machine.isas,
  l1: machine.cpu.l1dBytes || 32 << 10,
  l2: machine.cpu.l2Bytes || 1 << 20,
});

/**
 * The strongest micro-kernel that computes in `precision`; `wanted` overrides the choice. `hasBlocks`: matrices are
 * multiplied in blocks, which amx does not.
 */
export function chooseIsa(machine: Machine, precision: Precision, wanted?: CpuIsa, hasBlocks = false): CpuIsa {
  if (precision === 'f16')
    throw new UsageError('--precision f16 is for GPUs: CPUs compute in bf16 or f32 here', 'use --precision auto');
  if (precision === 'fp8')
    throw new UsageError(
      '--quantize fp8 is for GPUs (Hopper): CPUs multiply 8 bits as int8',
      'use --quantize int8, or leave it out',
    );
  if (precision === 'int4')
    throw new UsageError(
      '--quantize int4 is for GPUs (Hopper): CPUs multiply the values of 4-bit codes as floats',
      'leave it out: the checkpoint is computed as it is',
    );
  if (precision === 'bf16' && (wanted ?? 'amx') !== 'amx')
    throw new UsageError(`${wanted!} computes in f32, not bf16`, 'drop --isa, or use --precision auto');
  if (precision === 'bf16' && !machine.isas.includes('amx'))
    throw new UserError(`this CPU (${machine.cpu.model}) has no AMX, which bf16 needs`, 'use --precision auto');
  if (wanted !== undefined) {
    if (!machine.isas.includes(wanted))
      throw new UserError(
        `this CPU (${machine.cpu.model}) has no ${wanted}; it has ${machine.isas.join(', ')}`,
        `use --isa ${machine.isas.at(-1)!}`,
      );
    if (wanted === 'amx' && precision === 'f32')
      throw new UsageError('amx multiplies bf16, not f32', 'drop --isa amx, or use --precision auto');
    return wanted;
  }
  return machine.isas.filter((isa) => isa !== 'amx' || (precision !== 'f32' && !hasBlocks)).at(-1)!;
}

/** Micro-kernels that a plan for `isa` may use: weaker ones run kernels that `isa` lacks (attention on amx). */
export const upTo = (machine: Machine, isa: CpuIsa): readonly CpuIsa[] =>
  machine.isas.filter((each) => CPU_ISAS.indexOf(each) <= CPU_ISAS.indexOf(isa));

/** What a CPU's contractions multiply: matrices as they are `stored`, or rounded to codes of 8 bits while they load. */
export interface CpuContractions {
  readonly stored: StoredFormats;
  readonly rounds: boolean;
}

/** Matrices of floats, whatever the checkpoint stores. */
export const FLOATS: CpuContractions = { stored: new Map(), rounds: false };

/**
 * amx: bf16 operands in VNNI order. Others: f32 activations, and weights as they are stored, widened in registers.
 * Matrices of blocks and of codes are multiplied as codes. All accumulate in f32.
 */
export function numericsOf(isa: CpuIsa, { stored, rounds }: CpuContractions = FLOATS): Numerics {
  const own: Numerics =
    isa === 'amx'
      ? { activations: 'bf16', weights: { layout: 'vnni', format: 'bf16' } }
      : { activations: 'f32', weights: { layout: 'panels', format: 'stored' } };
  const codes = new Set([...stored].flatMap(([name, format]) => (format === 'i8' ? [name] : [])));
  const narrow: Numerics['narrow'] = rounds
    ? { format: 'i8', from: 'values', keep: [], wide: 'ends' }
    : codes.size > 0
      ? { format: 'i8', from: 'codes', keep: [], only: codes }
      : undefined;
  return { ...own, ...(stored.size === 0 ? {} : { stored }), ...defined({ narrow }) };
}

/** Name of the arithmetic in results and journals. Answers are comparable only if it is equal. */
export function arithmeticOf(isa: CpuIsa, { stored, rounds }: CpuContractions = FLOATS): CpuArithmetic {
  const isNarrow = rounds || stored.size > 0;
  if (isa === 'amx') return isNarrow ? 'int8 and bf16' : 'bf16';
  return isNarrow ? 'int8' : 'f32';
}

/** A CPU, and the strongest micro-kernel that a plan uses on it. */
export interface CpuDevice extends CpuFacts {
  readonly isa: CpuIsa;
  readonly contractions: CpuContractions;
  /** Its name, for people. */
  readonly cpu: string;
}

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
