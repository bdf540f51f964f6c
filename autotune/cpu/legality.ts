/** The CPU schedules that the tuner considers: those that code generation can print and whose blocks fit in caches. */
import { isLegal, type CpuFacts } from '../../codegen/cpu/index.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { CpuGemmSchedule, CpuSchedule } from '../../ir/plan.js';
import { FORMATS } from '../../ir/storage.js';

export type { CpuFacts } from '../../codegen/cpu/index.js';

type Contraction = Extract<Kernel, { anchor: 'gemm' | 'logprob' }>;

/** Bytes of one element of the packed weights that a contraction reads. */
export function weightBytes(kernel: Contraction, module: KernelModule): number {
  const name = kernel.anchor === 'gemm' ? kernel.segments[0]?.weight : kernel.weight;
  const weight = module.weights.find((w) => w.name === name);
  return FORMATS[weight?.format ?? 'f32'].elementBits / 8;
}

/** Bytes of weights that one pass over k reads again for each register tile of rows. */
const weightBlockBytes = (kernel: Contraction, module: KernelModule, s: CpuGemmSchedule): number =>
  s.nb * Math.min(s.kc, kernel.k) * weightBytes(kernel, module);

/** Bytes of a work item's accumulator tile. */
const tileBytes = (s: CpuGemmSchedule): number => s.mb * s.nb * 4;

/**
 * `true`, or why the tuner leaves `schedule` out. Code generation decides what is correct (codegen/cpu/legality.ts).
 * Here, only sizes that cannot be fast are refused: weight blocks larger than twice the L2 cache would be read from
 * memory for every register tile, and so would accumulator tiles larger than four times the L2 cache. Pure: depends on
 * its arguments only.
 */
export function isCandidate(
  kernel: Kernel,
  module: KernelModule,
  schedule: CpuSchedule,
  facts: CpuFacts,
): true | string {
  const legal = isLegal(kernel, module, schedule, facts);
  if (legal !== true) return legal;
  if (schedule.kind === 'gemm' && (kernel.anchor === 'gemm' || kernel.anchor === 'logprob')) {
    const block = weightBlockBytes(kernel, module, schedule);
    if (block > 2 * facts.l2) return `a block of weights has ${block} bytes; the L2 cache has ${facts.l2}`;
    const tile = tileBytes(schedule);
    if (tile > 4 * facts.l2) return `the tile of a work item has ${tile} bytes; the L2 cache has ${facts.l2}`;
  }
  if (schedule.kind === 'attention' && kernel.anchor === 'attention') {
    const block = 2 * schedule.keys * kernel.headDim * 4;
    if (block > 2 * facts.l2) return `a block of keys and values has ${block} bytes; the L2 cache has ${facts.l2}`;
  }
  return true;
}
