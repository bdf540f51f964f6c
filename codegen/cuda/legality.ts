/**
 * Decides which schedules are legal for a kernel on a GPU: a pure function of the kernel, the schedule and facts about
 * the device.
 */
import { everyExtent } from '../../ir/function.js';
import type { CudaArch, CudaGemmSchedule, CudaGemmSkeleton, CudaSchedule } from '../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import { oncePer } from '../../ir/oncePer.js';
import { LOGPROB_BLOCK } from '../../ir/kernel.js';
import { FORMATS, layoutProblem } from '../../ir/storage.js';
import { isFloat, type BufferDType } from '../../ir/types.js';
import { parametersOf } from '../signature.js';
import { isLegalAttention } from './attentionSchedules.js';
import type { Contraction } from './text/contraction.js';
import { expertsOf, rowProgramsOf, segmentsOf } from './text/contraction.js';
import { mmaProblem, mmaSharedBytes } from './gemmMma.js';
import { simtSharedBytes, simtStep } from './gemmSimt.js';
import { groupedScheduleProblem } from './grouped/schedules.js';
import { CudaOperands } from './text/operands.js';
import { rowPrologue } from './text/rowPrologue.js';
import { FEW_ROWS } from './skinny/skeletons.js';
import { isLegalWgmma } from './wgmma/index.js';
import { WGMMA_TYPES } from './wgmma/instruction.js';

/** What a GPU provides. */
export interface CudaFacts {
  readonly arch: CudaArch;
  /** Bytes of shared memory available to a block. */
  readonly sharedBytesPerBlock: number;
  readonly multiprocessors: number;
}

/** Shared memory that a compiler adds to what a schedule asks for: a few words for every kernel. */
const STATIC_SHARED = 1024;
const MAX_THREADS = 1024;
/** Products in FP8 are added up with fewer bits than f32 has, and mma.sync adds them in another order than wgmma. */
const WARPGROUPS_ONLY = 'products of e4m3 have the same bits only where warpgroups make all of them';
/** Largest tile on CUDA cores: a thread's accumulators take tm/16 × tn/16 registers. */
const MAX_SIMT_ACCUMULATORS = 80;

export const isCount = (value: number, step = 1): boolean =>
  Number.isSafeInteger(value) && value > 0 && value % step === 0;

/** Number of row values, in floats per row, that the kernel's epilogue keeps. */
export const rowValuesOf = oncePer((kernel: Contraction, module: KernelModule): number => {
  const operands = new CudaOperands(kernel, module, parametersOf(kernel, module), everyExtent(module.interface, 1));
  return rowPrologue(rowProgramsOf(kernel), operands).scalars.length;
});

/** The dtypes of the operands. */
interface ContractionTypes {
  readonly a: BufferDType;
  readonly w: BufferDType;
}

/** The dtypes of the operands, or the reason why no skeleton reads them. */
export const contractionTypes = oncePer((kernel: Contraction, module: KernelModule): ContractionTypes | string => {
  const a = module.buffers.find((buffer) => buffer.name === kernel.a)?.dtype;
  if (a === undefined) return `the left operand ${kernel.a} is not declared`;
  if (!isFloat(a) && a !== 'e4m3') return `the left operand ${kernel.a} is ${a}, not floats`;
  let w: BufferDType | undefined;
  const { group } = module.weights.find(({ name }) => name === segmentsOf(kernel)[0]?.weight) ?? {};
  for (const segment of segmentsOf(kernel)) {
    const weight = module.weights.find(({ name }) => name === segment.weight);
    if (weight === undefined) return `the weight ${segment.weight} is not declared`;
    if (weight.layout !== 'kmajor' && weight.layout !== 'groups')
      return `GPUs cannot read weight ${weight.name} in layout ${weight.layout}`;
    const problem = layoutProblem(weight.layout, weight.format);
    if (problem !== undefined) return `GPUs cannot read weight ${weight.name}: ${problem}`;
    const { element } = FORMATS[weight.format];
    if (w !== undefined && w !== element) return 'the weights of one kernel differ in format';
    w = element;
    if (weight.group !== group) return 'the weights of one kernel differ in groups';
  }
  return w === undefined ? 'the kernel has no segment' : { a, w };
});

const FEW_ROWS_TILES: readonly CudaGemmSkeleton[] = ['skinny', 'skinnyWgmma', 'grouped'];

function contraction(kernel: Contraction, module: KernelModule, s: CudaGemmSchedule, facts: CudaFacts): true | string {
  const types = contractionTypes(kernel, module);
  if (typeof types === 'string') return types;
  if (!isCount(s.tm, FEW_ROWS_TILES.includes(s.skeleton) ? 8 : 16) || !isCount(s.tn, 16) || !isCount(s.tk, 16))
    return 'tm, tn and tk must be positive multiples of 16';
  if (!isCount(s.stages) || !isCount(s.raster)) return 'stages and raster must be positive';
  if (expertsOf(kernel) !== undefined && FEW_ROWS_TILES.includes(s.skeleton))
    return `${s.skeleton} has no row tiles of experts; simt, mma and wgmma have`;
  switch (s.skeleton) {
    case 'simt':
      return simt(kernel, module, s, facts);
    case 'mma':
      return mma(kernel, module, s, facts, types);
    case 'wgmma':
      return isLegalWgmma(kernel, module, s, facts);
    case 'skinny':
    case 'skinnyWgmma':
      return fewRows(kernel, module, s, facts, types, FEW_ROWS[s.skeleton]);
    case 'grouped':
      if (kernel.anchor !== 'gemm') return 'the vocabulary is in no groups';
      return groupedScheduleProblem(kernel, module, s, facts, rowValuesOf(kernel, module)) ?? true;
    default:
      return s.skeleton satisfies never;
  }
}

function simt(kernel: Contraction, module: KernelModule, s: CudaGemmSchedule, facts: CudaFacts): true | string {
  if (s.cluster !== 1) return 'clusters are for wgmma';
  const step = simtStep(segmentsOf(kernel));
  if (s.tn % step !== 0) return `tn must be a multiple of ${step}: whole heads, pairs and blocks of 32`;
  if (kernel.anchor === 'logprob' && LOGPROB_BLOCK % s.tn !== 0) return `tn must divide ${LOGPROB_BLOCK}`;
  if ((s.tm / 16) * (s.tn / 16) > MAX_SIMT_ACCUMULATORS)
    return `a thread has ${MAX_SIMT_ACCUMULATORS} accumulators at most`;
  const bytes = simtSharedBytes(s, rowValuesOf(kernel, module), kernel);
  return bytes + STATIC_SHARED <= facts.sharedBytesPerBlock
    ? true
    : `a block needs ${bytes} bytes of shared memory, ${facts.sharedBytesPerBlock} are there`;
}

function mma(
  kernel: Contraction,
  module: KernelModule,
  s: CudaGemmSchedule,
  facts: CudaFacts,
  { a, w }: ContractionTypes,
): true | string {
  if (s.cluster !== 1) return 'clusters are for wgmma';
  if (a !== w) return `tensor cores want both operands in one dtype: ${kernel.a} is ${a}, the weights are ${w}`;
  if (a === 'e4m3') return WARPGROUPS_ONLY;
  const problem = mmaProblem(segmentsOf(kernel), s, kernel.anchor === 'logprob');
  if (problem !== undefined) return problem;
  const bytes = mmaSharedBytes(s, rowValuesOf(kernel, module), kernel);
  return bytes + STATIC_SHARED <= facts.sharedBytesPerBlock
    ? true
    : `a block needs ${bytes} bytes of shared memory, ${facts.sharedBytesPerBlock} are there`;
}

function fewRows(
  kernel: Contraction,
  module: KernelModule,
  s: CudaGemmSchedule,
  facts: CudaFacts,
  { a, w }: ContractionTypes,
  { problem, sharedBytes, archProblem }: (typeof FEW_ROWS)[keyof typeof FEW_ROWS],
): true | string {
  const isLogProb = kernel.anchor === 'logprob';
  if (s.cluster !== 1 && s.skeleton !== 'skinnyWgmma') return 'clusters are for wgmma';
  if (a !== w) return `tensor cores want both operands in one dtype: ${kernel.a} is ${a}, the weights are ${w}`;
  const dtype = WGMMA_TYPES.find((each) => each === a);
  if (dtype === undefined) return `tensor cores read operands of ${WGMMA_TYPES.join(', ')}, ${kernel.a} is ${a}`;
  if (dtype === 'e4m3' && s.skeleton === 'skinny') return WARPGROUPS_ONLY;
  if (kernel.k < 2) return 'tensor maps need rows of more than one element';
  const reason = archProblem(facts.arch, isLogProb) ?? problem(segmentsOf(kernel), s, isLogProb, dtype);
  if (reason !== undefined) return reason;
  const bytes = sharedBytes(s, rowValuesOf(kernel, module), isLogProb, dtype);
  return bytes + STATIC_SHARED <= facts.sharedBytesPerBlock
    ? true
    : `a block needs ${bytes} bytes of shared memory, ${facts.sharedBytesPerBlock} are there`;
}

/** `true`, or the reason why `schedule` cannot be used for `kernel` on a GPU with these facts. */
export function isLegalCuda(
  kernel: Kernel,
  module: KernelModule,
  schedule: CudaSchedule,
  facts: CudaFacts,
): true | string {
  switch (kernel.anchor) {
    case 'gemm':
    case 'logprob':
      return schedule.kind === 'gemm'
        ? contraction(kernel, module, schedule, facts)
        : `a ${kernel.anchor} kernel has a gemm schedule, not ${schedule.kind}`;
    case 'attention':
      if (schedule.kind !== 'attention') return `an attention kernel has an attention schedule, not ${schedule.kind}`;
      return isLegalAttention(kernel, module, schedule, facts);
    case 'loop':
    case 'logprobReduce':
    case 'sample':
    case 'route':
    case 'sortByExpert':
      if (schedule.kind !== 'loop') return `a ${kernel.anchor} kernel has a loop schedule, not ${schedule.kind}`;
      return isCount(schedule.threads, 32) && schedule.threads <= MAX_THREADS
        ? true
        : `threads must be a multiple of 32, at most ${MAX_THREADS}`;
    default:
      return kernel satisfies never;
  }
}
