/** Which schedules of the wgmma skeleton are legal for a kernel. */
import { type CudaArch, type CudaGemmSchedule, MULTIPROCESSOR_BYTES, RESERVED_BYTES } from '../../../ir/cuda.js';
import { everyExtent } from '../../../ir/function.js';
import { groupWidth } from '../../../ir/groupSums.js';
import { type ContractionKernel, type KernelModule, LOGPROB_BLOCK, type Segment } from '../../../ir/kernel.js';
import { oncePer } from '../../../ir/oncePer.js';
import { operands as childrenOf, type Scalar } from '../../../ir/scalar.js';
import { FORMATS } from '../../../ir/storage.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { parametersOf } from '../../signature.js';
import { adapterOf, expertsOf, rowProgramsOf, rowPrologue, segmentsOf } from '../text/contraction.js';
import { fragmentProblem, tileStep } from '../text/fragment.js';
import { CudaOperands, leastCommonMultiple } from '../text/operands.js';
import { columnValuesOf } from './config.js';
import { CONSUMERS, slabOf, WGMMA_ROWS, WGMMA_TYPES, type WgmmaType } from './instruction.js';
import {
  MAX_ACCUMULATORS,
  MAX_ACCUMULATORS_OF_ADAPTERS,
  MAX_ACCUMULATORS_OF_HEADS,
  MAX_BOX_ROWS,
  MAX_COLUMNS,
  wgmmaLayout,
} from './layout.js';

/** The facts about a GPU that this skeleton depends on. */
export interface WgmmaFacts {
  readonly arch: CudaArch;
  /** Bytes of shared memory available to a block. */
  readonly sharedBytesPerBlock: number;
}

const MIN_STAGES = 2;
const MAX_STAGES = 16;
/** Each consumer holds one instruction of 64 rows. */
const DEFERRED_ROWS = CONSUMERS * WGMMA_ROWS;
const MAX_RASTER = 1024;

/** `true`, or the reason why `schedule` cannot be used for `kernel` on such a GPU. */
export function isLegalWgmma(
  kernel: ContractionKernel,
  module: KernelModule,
  schedule: CudaGemmSchedule,
  facts: WgmmaFacts,
): true | string {
  const known = knownOf(kernel, module);
  return known.problem ?? tileProblem(kernel, known, schedule, facts) ?? sharedProblem(known, schedule, facts) ?? true;
}

/**
 * Most rows that a product shrinks first, and most works of eight rows and eight columns that its blocks do for it
 * (adapter/shrinkFirst.cuh): those of 512 rows of q, k and v at rank 16. Of more, a shrink kernel costs less.
 */
const [MOST_ROWS, MOST_WORKS] = [512, 384];
/** Stages that are left where one has to make room. */
const FEWEST_STAGES = 6;
/** Of every device of sm_90a. */
const HOPPER = { arch: 'sm_90a', sharedBytesPerBlock: MULTIPROCESSOR_BYTES - RESERVED_BYTES } as const;

/** The schedule with which a product of so many rows shrinks them first; undefined where it should not. */
export function shrinkingFirst(
  kernel: ContractionKernel,
  module: KernelModule,
  schedule: CudaGemmSchedule,
  rows: number,
): CudaGemmSchedule | undefined {
  const adapter = adapterOf(kernel);
  const columns = Number(module.buffers.find(({ name }) => name === adapter?.shrunk)?.columns);
  if (rows > MOST_ROWS || !(Math.ceil(rows / 8) * (columns / 8) <= MOST_WORKS)) return undefined;
  const own: CudaGemmSchedule = { ...schedule, adapters: 'shrinks' };
  if (isLegalWgmma(kernel, module, own, HOPPER) === true) return own;
  const less = { ...own, stages: own.stages - 1 };
  return less.stages >= FEWEST_STAGES && isLegalWgmma(kernel, module, less, HOPPER) === true ? less : undefined;
}

/** The deepest legal pipeline of a tile, of at most `most` stages, or undefined where none is legal. */
export function deepestStages(
  kernel: ContractionKernel,
  module: KernelModule,
  tile: Omit<CudaGemmSchedule, 'stages'>,
  facts: WgmmaFacts,
  most: number,
): number | undefined {
  const known = knownOf(kernel, module);
  // Only shared memory sees how many stages there are.
  if (known.problem !== undefined || tileProblem(kernel, known, { ...tile, stages: most }, facts) !== undefined)
    return undefined;
  for (let stages = most; stages >= MIN_STAGES; stages--)
    if (sharedBytesOf(known, { ...tile, stages }) <= facts.sharedBytesPerBlock) return stages;
  return undefined;
}

function operandProblem(kernel: ContractionKernel, module: KernelModule): string | undefined {
  const a = module.buffers.find(({ name }) => name === kernel.a);
  if (a === undefined) return `the left operand ${kernel.a} is not declared`;
  if (!WGMMA_TYPES.some((each) => each === a.dtype))
    return `wgmma reads operands of ${WGMMA_TYPES.join(', ')}, ${a.name} is ${a.dtype}`;
  if (kernel.anchor === 'gemm' && kernel.heads !== undefined) return 'wgmma takes no heads one by one; simt and mma do';
  if (kernel.k < 2) return 'tensor maps need rows of more than one element';
  for (const segment of segmentsOf(kernel)) {
    const weight = module.weights.find(({ name }) => name === segment.weight);
    if (weight === undefined) return `the weight ${segment.weight} is not declared`;
    if (weight.layout !== 'kmajor') return `wgmma cannot read weight ${weight.name} in layout ${weight.layout}`;
    if (FORMATS[weight.format].element !== a.dtype)
      return `weight ${weight.name} is ${weight.format}, its left operand ${a.dtype}`;
    const second = module.weights.find(({ name }) => name === segment.adapter?.weight);
    if (second !== undefined && (second.layout !== 'kmajor' || FORMATS[second.format].element !== a.dtype))
      return `the adapters' weight ${second.name} is ${second.format} in ${second.layout}, not kmajor ${a.dtype}`;
    const problem = kernel.anchor === 'gemm' ? fragmentProblem(segment) : undefined;
    if (problem !== undefined) return `segment ${segment.weight} has ${problem}`;
  }
  return undefined;
}

/** Whether the epilogue reads products rounded as the handoff rounds them (handoff.ts). */
const readsRounded = ({ outputs }: Segment): boolean => outputs.every(({ value }) => isRounded(value));
const isRounded = (s: Scalar): boolean =>
  (s.op === 'roundF20' && s.a.op === 'acc') || (s.op !== 'acc' && childrenOf(s).every(isRounded));

const isCount = (value: number, step: number, most: number): boolean =>
  Number.isSafeInteger(value) && value > 0 && value <= most && value % step === 0;

/** Element type of a kernel's operands. Only asked where operandProblem has found none. */
export const typeOf = (kernel: ContractionKernel, { buffers }: Pick<KernelModule, 'buffers'>): WgmmaType => {
  const dtype = buffers.find(({ name }) => name === kernel.a)?.dtype;
  return WGMMA_TYPES.find((each) => each === dtype) ?? 'bf16';
};

/** Whether its epilogues read values of rows, such as 1/rms. */
export const hasRowValues = (kernel: ContractionKernel, module: KernelModule): boolean =>
  knownOf(kernel, module).rowValues > 0;

function tileProblem(
  kernel: ContractionKernel,
  known: FactsOfKernel,
  s: CudaGemmSchedule,
  facts: WgmmaFacts,
): string | undefined {
  const forExperts = expertProblem(known, s);
  if (forExperts !== undefined) return forExperts;
  if (facts.arch !== 'sm_90a') return `wgmma needs sm_90a, the target is ${facts.arch}`;
  if (s.skeleton !== 'wgmma') return `the schedule is for ${s.skeleton}`;
  const rows = WGMMA_ROWS * (s.mode === 'pingpong' ? 1 : CONSUMERS);
  if (!isCount(s.tm, rows, MAX_BOX_ROWS))
    return `${s.mode} tiles take a multiple of ${rows} rows, at most ${MAX_BOX_ROWS}`;
  const step = s.tn > MAX_COLUMNS ? 32 : 16;
  if (!isCount(s.tn, step, 2 * MAX_COLUMNS))
    return `tn must be a multiple of 16 up to ${MAX_COLUMNS}, of 32 up to ${2 * MAX_COLUMNS}`;
  const slab = slabOf(known.type);
  if (!isCount(s.tk, slab, 2 * slab)) return `tk must be ${slab} or ${2 * slab}`;
  if (!isCount(s.stages, 1, MAX_STAGES) || s.stages < MIN_STAGES)
    return `stages must be ${MIN_STAGES} to ${MAX_STAGES}`;
  if (s.cluster !== 1 && s.cluster !== 2) return 'a cluster is 1 or 2 blocks';
  if (!isCount(s.raster, 1, MAX_RASTER)) return `raster must be 1 to ${MAX_RASTER}`;
  for (const whole of known.steps) {
    if (s.tn % whole !== 0) return `tn must be a multiple of ${whole}: whole pairs, heads and row-sum blocks`;
  }
  if (s.remainderTn !== undefined) {
    const whole = known.steps.at(-1)!;
    if (s.mode !== 'deferred') return 'remainder tiles need the deferred mode';
    if (kernel.anchor === 'gemm' && kernel.finish !== undefined)
      return 'a kernel that finishes rows counts whole tiles, so it has no remainder tiles';
    if (!isCount(s.remainderTn, leastCommonMultiple(16, whole), s.tn - 1))
      return `remainderTn must be a multiple of 16 and ${whole}, less than tn`;
  }
  if (s.epilogueGroups !== undefined) {
    if (s.mode !== 'deferred') return 'warpgroups for epilogues need the deferred mode';
    if (known.type !== 'e4m3') return 'products of 16 bits take long enough for the epilogues of three warps';
    if (s.remainderTn !== undefined || s.tn % 32 !== 0)
      return 'blocks of four warpgroups take tiles of a multiple of 32 columns, and no remainder tiles';
  }
  if (s.mode === 'deferred') {
    if (s.tm !== DEFERRED_ROWS || s.tn > MAX_COLUMNS)
      return `deferred tiles take ${DEFERRED_ROWS} rows and at most ${MAX_COLUMNS} columns`;
    if (!known.readsRounded) return 'a deferred epilogue reads its products rounded to 20 bits, and this one does not';
  }
  if (kernel.anchor === 'logprob' && s.tn !== LOGPROB_BLOCK)
    return `tn must be ${LOGPROB_BLOCK}: a block of the vocabulary`;
  const accumulators = (s.tm / rows) * (s.tn / 2);
  const most = known.sumsHeads
    ? MAX_ACCUMULATORS_OF_HEADS
    : known.hasAdapters
      ? MAX_ACCUMULATORS_OF_ADAPTERS
      : MAX_ACCUMULATORS;
  return accumulators <= most ? undefined : `a thread would hold ${accumulators} accumulators, ${most} at most`;
}

/** Facts that do not depend on the schedule. */
interface FactsOfKernel {
  /** The reason why wgmma cannot read the kernel's operands; the other facts mean nothing then. */
  readonly problem: string | undefined;
  readonly type: WgmmaType;
  /** What tiles of each segment are a multiple of. */
  readonly steps: readonly number[];
  readonly readsRounded: boolean;
  /** Whether an epilogue adds up whole heads. */
  readonly sumsHeads: boolean;
  readonly experts: number | undefined;
  /** Whether rows have adapters. */
  readonly hasAdapters: boolean;
  /** Number of row values that the epilogue reads from shared memory. */
  readonly rowValues: number;
  /** Floats of column values that it reads from there, for each column of a tile. */
  readonly columnShare: number;
}

/** Columns of the tile from which shares are computed. */
const SHARE = 32;

/** Found once for a kernel, because each is checked against hundreds of schedules. */
const knownOf = oncePer((kernel: ContractionKernel, module: KernelModule): FactsOfKernel => {
  const problem = operandProblem(kernel, module);
  const segments = segmentsOf(kernel);
  const experts = expertsOf(kernel)?.count;
  const common = { problem, type: typeOf(kernel, module), experts, hasAdapters: adapterOf(kernel) !== undefined };
  if (problem !== undefined)
    return { ...common, steps: [], readsRounded: false, sumsHeads: false, rowValues: 0, columnShare: 0 };
  const extents = everyExtent(module.interface, 1);
  const operands = new CudaOperands(kernel, module, parametersOf(kernel, module), extents);
  const rowValues = rowPrologue(rowProgramsOf(kernel), operands).scalars.length;
  return {
    ...common,
    steps: segments.map(tileStep),
    readsRounded: kernel.anchor === 'gemm' && segments.every(readsRounded),
    sumsHeads: segments.some(({ outputs }) => groupWidth(outputs) !== undefined),
    rowValues,
    columnShare: columnValuesOf(kernel, operands, rowValues, SHARE) / SHARE,
  };
});

/** Row tiles of experts are found in tables, which lie where row values would. */
function expertProblem({ experts, rowValues }: FactsOfKernel, s: CudaGemmSchedule): string | undefined {
  if (experts === undefined) return undefined;
  if (s.mode !== 'pingpong') return 'row tiles of experts are multiplied by warpgroups in turn';
  if (s.cluster !== 1) return 'a cluster shares the weights of one expert, whose rows seldom fill it';
  return rowValues === 0 ? undefined : 'rows of experts have no values of their own';
}

const sharedBytesOf = (
  { type, rowValues, columnShare, experts, hasAdapters }: FactsOfKernel,
  schedule: CudaGemmSchedule,
): number => {
  const columnValues = columnShare * schedule.tn;
  const shrinks = schedule.adapters === 'shrinks';
  const kept = { rowValues, columnValues, experts, hasAdapters, shrinks };
  return wgmmaLayout(schedule, DTYPE_BYTES[type], kept).sharedBytes;
};

function sharedProblem(known: FactsOfKernel, schedule: CudaGemmSchedule, facts: WgmmaFacts): string | undefined {
  const bytes = sharedBytesOf(known, schedule);
  return bytes <= facts.sharedBytesPerBlock
    ? undefined
    : `a block needs ${bytes} bytes of shared memory, ${facts.sharedBytesPerBlock} are there`;
}
