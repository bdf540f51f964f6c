/**
 * Decides which schedules are legal for a kernel on a GPU: a pure function of the kernel, the schedule and facts about
 * the device.
 */
import { UserError } from '../../errors.js';
import {
  type CudaArch,
  type CudaGemmSchedule,
  type CudaGemmSkeleton,
  type CudaSchedule,
  MULTIPROCESSOR_BYTES,
  RESERVED_BYTES,
} from '../../ir/cuda.js';
import { extentIn } from '../../ir/extents.js';
import { everyExtent } from '../../ir/function.js';
import {
  type ContractionKernel,
  type GemmKernel,
  type Kernel,
  type KernelModule,
  LOGPROB_BLOCK,
  type Segment,
} from '../../ir/kernel.js';
import { oncePer } from '../../ir/oncePer.js';
import type { Bucket } from '../../ir/plan.js';
import { FORMATS, layoutProblem } from '../../ir/storage.js';
import { type BufferDType, isFloat } from '../../ir/types.js';
import { defined } from '../../system/defined.js';
import { parametersOf, withoutAdapters } from '../signature.js';
import { defaultShrinkRows, SHRINK_THREADS, shrinkProblem } from './adapter/index.js';
import { defaultAttentionSchedule, isLegalAttention } from './attention/schedules.js';
import { mmaProblem, mmaSharedBytes, mmaStep } from './gemmMma.js';
import { simtSharedBytes, simtStep } from './gemmSimt.js';
import { routeThreads } from './experts.js';
import { defaultGroupedSchedule, groupedScheduleProblem, groupOfKernel } from './grouped/layout.js';
import { loopRows, loopThreads } from './loop.js';
import { defaultScanLanes, scanProblem } from './recurrent/index.js';
import { routingBytes, routingProblem } from './routing.js';
import { defaultMicroSchedule, microProblem } from './micro/layout.js';
import { defaultSkinnySchedule, FEW_ROWS, SKINNY_ROWS, withShrinkers } from './skinny/layout.js';
import { adapterProblem, hasAdapters } from './text/adapters.js';
import { expertsOf, rowProgramsOf, rowPrologue, segmentsOf } from './text/contraction.js';
import { CudaOperands } from './text/operands.js';
import { defaultWgmmaSchedule, isLegalWgmma, shrinkingFirst } from './wgmma/index.js';
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
export const rowValuesOf = oncePer((kernel: ContractionKernel, module: KernelModule): number => {
  const operands = new CudaOperands(kernel, module, parametersOf(kernel, module), everyExtent(module.interface, 1));
  return rowPrologue(rowProgramsOf(kernel), operands).scalars.length;
});

/** The dtypes of the operands. */
interface ContractionTypes {
  readonly a: BufferDType;
  readonly w: BufferDType;
}

/** The dtypes of the operands, or the reason why no skeleton reads them. */
export const contractionTypes = oncePer(
  (kernel: ContractionKernel, module: KernelModule): ContractionTypes | string => {
    const a = module.buffers.find((buffer) => buffer.name === kernel.a)?.dtype;
    if (a === undefined) return `the left operand ${kernel.a} is not declared`;
    if (!isFloat(a) && a !== 'e4m3') return `the left operand ${kernel.a} is ${a}, not floats`;
    let w: BufferDType | undefined;
    const { group } = module.weights.find(({ name }) => name === segmentsOf(kernel)[0]?.weight) ?? {};
    for (const segment of segmentsOf(kernel)) {
      const weight = module.weights.find(({ name }) => name === segment.weight);
      if (weight === undefined) return `the weight ${segment.weight} is not declared`;
      if (weight.layout !== 'kmajor' && weight.layout !== 'groups' && weight.layout !== 'microscaled')
        return `GPUs cannot read weight ${weight.name} in layout ${weight.layout}`;
      const problem = layoutProblem(weight.layout, weight.format);
      if (problem !== undefined) return `GPUs cannot read weight ${weight.name}: ${problem}`;
      const { element } = FORMATS[weight.format];
      if (w !== undefined && w !== element) return 'the weights of one kernel differ in format';
      w = element;
      if (weight.group !== group) return 'the weights of one kernel differ in groups';
    }
    return w === undefined ? 'the kernel has no segment' : { a, w };
  },
);

const FEW_ROWS_TILES: readonly CudaGemmSkeleton[] = ['skinny', 'skinnyWgmma', 'grouped'];

function contractionProblem(
  kernel: ContractionKernel,
  module: KernelModule,
  s: CudaGemmSchedule,
  facts: CudaFacts,
): true | string {
  const types = contractionTypes(kernel, module);
  if (typeof types === 'string') return types;
  if (s.adapters !== undefined && !hasAdapters(kernel)) return 'its rows have no adapters';
  if (s.adapters === 'shrinks' && s.skeleton !== 'skinnyWgmma' && s.skeleton !== 'wgmma')
    return `${s.skeleton} cannot shrink its rows`;
  const routing = s.adapters === 'none' ? undefined : routingProblem(kernel, s);
  if (routing !== undefined) return routing;
  if (s.adapters === 'none') {
    const { adapters: _, ...same } = s;
    return contractionProblem(withoutAdapters(kernel), module, same, facts);
  }
  if (
    !isCount(s.tm, FEW_ROWS_TILES.includes(s.skeleton) || s.skeleton === 'micro' ? 8 : 16) ||
    !isCount(s.tn, 16) ||
    !isCount(s.tk, 16)
  )
    return 'tm, tn and tk must be positive multiples of 16';
  if (!isCount(s.stages) || !isCount(s.raster)) return 'stages and raster must be positive';
  if (s.parts !== undefined && s.skeleton !== 'skinnyWgmma') return `${s.skeleton} has whole groups of columns`;
  if (kernel.anchor === 'gemm' && kernel.heads !== undefined && s.skeleton !== 'simt' && s.skeleton !== 'mma')
    return `${s.skeleton} takes no heads one by one; simt and mma do`;
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
    case 'micro':
      if (kernel.anchor !== 'gemm') return 'the vocabulary is not microscaled';
      if (hasAdapters(kernel)) return 'adapters are not supported beside microscaled weights';
      if (types.a !== 'bf16') return `microscaled weights are multiplied by bf16, ${kernel.a} is ${types.a}`;
      return microProblem(kernel, module, s, facts, rowValuesOf(kernel, module)) ?? true;
    default:
      return s.skeleton satisfies never;
  }
}

function simt(kernel: ContractionKernel, module: KernelModule, s: CudaGemmSchedule, facts: CudaFacts): true | string {
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
  kernel: ContractionKernel,
  module: KernelModule,
  s: CudaGemmSchedule,
  facts: CudaFacts,
  { a, w }: ContractionTypes,
): true | string {
  if (s.cluster !== 1) return 'clusters are for wgmma';
  if (a !== w) return `tensor cores want both operands in one dtype: ${kernel.a} is ${a}, the weights are ${w}`;
  if (a === 'e4m3') return WARPGROUPS_ONLY;
  const problem =
    mmaProblem(segmentsOf(kernel), s, kernel.anchor === 'logprob') ??
    (kernel.anchor === 'gemm' ? headsProblem(kernel, s) : undefined);
  if (problem !== undefined) return problem;
  const bytes = mmaSharedBytes(s, rowValuesOf(kernel, module), kernel);
  return bytes + STATIC_SHARED <= facts.sharedBytesPerBlock
    ? true
    : `a block needs ${bytes} bytes of shared memory, ${facts.sharedBytesPerBlock} are there`;
}

/** Why tiles are no parts of heads with matrices of their own, or their copies not aligned. */
function headsProblem({ heads, k, segments }: GemmKernel, { tn }: CudaGemmSchedule): string | undefined {
  const columns = (segments[0]?.columns ?? 0) / (heads ?? 1);
  if (heads === undefined || (columns % tn === 0 && k % 8 === 0)) return undefined;
  return `heads of ${columns} columns and a depth of ${k}: mma takes multiples of ${tn}, and of 8`;
}

function fewRows(
  kernel: ContractionKernel,
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
  const reason =
    archProblem(facts.arch, isLogProb) ??
    adapterProblem(kernel, s.cluster) ??
    problem(segmentsOf(kernel), s, isLogProb, dtype);
  if (reason !== undefined) return reason;
  const routing = kernel.anchor === 'gemm' && s.routes !== undefined ? kernel.routing : undefined;
  const beside = routing === undefined ? 0 : routingBytes(routing.route);
  const bytes = sharedBytes(s, rowValuesOf(kernel, module), dtype, kernel) + beside;
  return bytes + STATIC_SHARED <= facts.sharedBytesPerBlock
    ? true
    : `a block needs ${bytes} bytes of shared memory, ${facts.sharedBytesPerBlock} are there`;
}

/** Whether a block of skinnyWgmma has room for its schedule and `bytes` beside. */
export function hasRoomBeside(kernel: GemmKernel, module: KernelModule, s: CudaGemmSchedule, bytes: number): boolean {
  const types = contractionTypes(kernel, module);
  const dtype = typeof types === 'string' ? undefined : WGMMA_TYPES.find((each) => each === types.a);
  if (dtype === undefined || s.skeleton !== 'skinnyWgmma') return false;
  const own = s.adapters === 'none' ? withoutAdapters(kernel) : kernel;
  const room = MULTIPROCESSOR_BYTES - RESERVED_BYTES - STATIC_SHARED;
  return FEW_ROWS.skinnyWgmma.sharedBytes(s, rowValuesOf(own, module), dtype, own) + bytes <= room;
}

const LANES_OF_SCANS = 'lanes are for scans';

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
        ? contractionProblem(kernel, module, schedule, facts)
        : `a ${kernel.anchor} kernel has a gemm schedule, not ${schedule.kind}`;
    case 'attention':
      if (schedule.kind !== 'attention') return `an attention kernel has an attention schedule, not ${schedule.kind}`;
      return isLegalAttention(kernel, module, schedule, facts);
    case 'loop':
    case 'logprobReduce':
    case 'sample':
    case 'route':
    case 'sortByExpert':
    case 'links':
    case 'scan':
      if (schedule.kind !== 'loop') return `a ${kernel.anchor} kernel has a loop schedule, not ${schedule.kind}`;
      if (!isCount(schedule.threads, 32) || schedule.threads > MAX_THREADS)
        return `threads must be a multiple of 32, at most ${MAX_THREADS}`;
      if (kernel.anchor === 'scan')
        return scanProblem(kernel, schedule, facts.sharedBytesPerBlock - STATIC_SHARED) ?? true;
      return schedule.lanes === undefined ? true : LANES_OF_SCANS;
    case 'shrink':
      if (schedule.kind !== 'loop') return `a shrink kernel has a loop schedule, not ${schedule.kind}`;
      if (schedule.lanes !== undefined) return LANES_OF_SCANS;
      return shrinkProblem(kernel, module, schedule, facts.arch) ?? true;
    default:
      return kernel satisfies never;
  }
}

// Default schedules for a GPU that has not been tuned: good, but not optimal.

/** A legal schedule of a kernel for micro-batches of `bucket`. Throws if the kernel has none on a GPU. */
export function defaultCudaSchedule(own: Kernel, module: KernelModule, facts: CudaFacts, bucket: Bucket): CudaSchedule {
  const kernel = bucket.withoutAdapters === true ? withoutAdapters(own) : own;
  switch (kernel.anchor) {
    case 'gemm':
    case 'logprob':
      return defaultContraction(kernel, module, facts, extentIn(kernel.rows, bucket.extents));
    case 'attention':
      return defaultAttentionSchedule(kernel, module, facts, {
        rows: extentIn(kernel.rows, bucket.extents),
        multiprocessors: facts.multiprocessors,
        run: bucket.run,
      });
    case 'loop': {
      const rows = extentIn(kernel.rows, bucket.extents);
      return {
        kind: 'loop',
        threads: loopThreads(kernel, rows, facts.multiprocessors),
        ...defined({ rows: loopRows(kernel, rows, facts.multiprocessors) }),
      };
    }
    case 'shrink':
      return {
        ...{ kind: 'loop', threads: SHRINK_THREADS },
        rows: defaultShrinkRows(kernel, module, facts.arch, extentIn(kernel.rows, bucket.extents)),
      };
    case 'logprobReduce':
      return { kind: 'loop', threads: 128 };
    case 'route':
      return { kind: 'loop', threads: routeThreads(kernel, extentIn(kernel.rows, bucket.extents)) };
    case 'links':
      return { kind: 'loop', threads: 128 };
    case 'scan': {
      const run = Math.min(bucket.run ?? Infinity, extentIn(kernel.rows, bucket.extents));
      return { kind: 'loop', threads: 128, ...defined({ lanes: defaultScanLanes(kernel, run) }) };
    }
    case 'sample':
    case 'sortByExpert':
      return { kind: 'loop', threads: 1024 };
    default:
      return kernel satisfies never;
  }
}

function defaultContraction(
  kernel: ContractionKernel,
  module: KernelModule,
  facts: CudaFacts,
  rows: number,
): CudaGemmSchedule {
  // Rows of one column lie one behind another, without the zeros that tiles of k read.
  if (kernel.k === 1)
    throw new UserError(`${kernel.path}: its matrix has one column; on GPUs two are the least`, 'use --target cpu');
  if (kernel.anchor === 'gemm' && groupOfKernel(kernel, module) !== undefined) {
    const grouped = defaultGroupedSchedule(kernel, module, facts, rowValuesOf(kernel, module), rows);
    if (grouped !== undefined) return grouped;
  }
  if (kernel.anchor === 'gemm') {
    const micro = defaultMicroSchedule(kernel, module, facts, rowValuesOf(kernel, module), rows);
    if (micro !== undefined) return micro;
  }
  const skinny = rows <= SKINNY_ROWS ? skinnySchedule(kernel, module, facts, rows) : undefined;
  if (skinny !== undefined) return skinny;
  const wgmma = defaultWgmmaSchedule(kernel, module, facts, rows);
  if (wgmma !== undefined) return wgmma;
  let reason = '';
  for (const schedule of candidates(kernel, rows)) {
    const verdict = isLegalCuda(kernel, module, schedule, facts);
    if (verdict === true) return schedule;
    reason = verdict;
  }
  throw new Error(`Kernel ${kernel.name} (${kernel.path}) has no legal schedule on this GPU: ${reason}.`);
}

/** The schedule for a kernel of few rows, unless the device cannot run it. */
function skinnySchedule(
  kernel: ContractionKernel,
  module: KernelModule,
  facts: CudaFacts,
  rows: number,
): CudaGemmSchedule | undefined {
  const types = contractionTypes(kernel, module);
  if (typeof types === 'string') return undefined;
  const dtype = WGMMA_TYPES.find((each) => each === types.a);
  const schedule = defaultSkinnySchedule(kernel, facts, rowValuesOf(kernel, module), rows, dtype);
  return schedule !== undefined && isLegalCuda(kernel, module, schedule, facts) === true ? schedule : undefined;
}

/** The schedule with which a product of so many rows shrinks them itself; undefined if it cannot. */
export function shrinkingSchedule(
  kernel: ContractionKernel,
  module: KernelModule,
  schedule: CudaGemmSchedule,
  rows: number,
): CudaGemmSchedule | undefined {
  const types = contractionTypes(kernel, module);
  if (schedule.skeleton === 'wgmma') return shrinkingFirst(kernel, module, schedule, rows);
  if (schedule.skeleton !== 'skinnyWgmma' || rows > SKINNY_ROWS || typeof types === 'string') return undefined;
  const dtype = WGMMA_TYPES.find((each) => each === types.a);
  // Every device of sm_90a has this room.
  const room = MULTIPROCESSOR_BYTES - RESERVED_BYTES - STATIC_SHARED;
  return dtype === undefined ? undefined : withShrinkers(kernel, schedule, dtype, rowValuesOf(kernel, module), room);
}

/** Schedules to try, best first. */
function candidates(kernel: ContractionKernel, rows: number): CudaGemmSchedule[] {
  const common = { kind: 'gemm', cluster: 1, raster: 8, mode: 'cooperative' } as const;
  const step = simtStep(segmentsOf(kernel));
  const tn = kernel.anchor === 'logprob' ? 64 : step * Math.max(1, Math.floor(64 / step));
  const simt = (tm: number): CudaGemmSchedule => ({ ...common, skeleton: 'simt', tm, tn, tk: 32, stages: 1 });
  const mma = (tm: number, columns: number): CudaGemmSchedule => ({
    ...common,
    skeleton: 'mma',
    tm,
    tn: columns,
    tk: 32,
    stages: 4,
  });
  return [
    ...(kernel.anchor === 'gemm' && kernel.heads !== undefined && rows <= SKINNY_ROWS ? headTiles(rows) : []),
    ...[128, 64, 32, 16]
      .filter((tm) => tm === 16 || tm < 2 * rows)
      .flatMap((tm) => mmaWidths(segmentsOf(kernel)).map((width) => mma(tm, width))),
    ...simts(rows, simt),
  ];
}

/** Few rows of heads with matrices of their own: small tiles, so that many blocks read the rows and the matrices. */
const headTiles = (rows: number): CudaGemmSchedule[] =>
  [64, 32].map((tn) => ({
    ...{ kind: 'gemm', skeleton: 'mma', cluster: 1, raster: 8, mode: 'cooperative' },
    ...{ tm: rows > 16 ? 32 : 16, tn, tk: 64, stages: 8 },
  }));

/** 128 columns and 64, or as many whole parts of warps as these hold; at least one. */
function mmaWidths(segments: readonly Segment[]): readonly number[] {
  const step = mmaStep(segments);
  return [...new Set([128, 64].map((width) => step * Math.max(1, Math.floor(width / step))))];
}

const simts = (rows: number, simt: (tm: number) => CudaGemmSchedule): CudaGemmSchedule[] => [
  ...(rows <= 32 ? [] : [simt(64)]),
  simt(32),
  simt(16),
];
