/**
 * Decides which schedules are legal for a kernel: a pure function of the kernel, the schedule and facts about the
 * target.
 */
import { CACHE_FORMATS } from '../../ir/cacheFormat.js';
import type { AttentionKernel, BufferDecl, Kernel, KernelModule, WeightDecl } from '../../ir/kernel.js';
import { LOGPROB_BLOCK } from '../../ir/kernel.js';
import type { CpuGemmSchedule, CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { GROUP, MAX_WHOLE_ROW, QUAD_COLUMNS } from '../../ir/quads.js';
import { layoutProblem } from '../../ir/storage.js';
import type { BufferDType } from '../../ir/types.js';
import { KEY_STEP } from './attention.js';
import { VECTOR_ISAS } from './intrinsics.js';
import { columnStep } from './layout.js';
import { manyColumns } from './quadMany.js';
import { FEW_ROWS, QUAD_CHUNK } from './quadTile.js';

/** What a CPU target provides. */
export interface CpuFacts {
  readonly isas: readonly CpuIsa[];
  /** Bytes of a core's L1 and L2 data caches. */
  readonly l1: number;
  readonly l2: number;
}

export type Contraction = Extract<Kernel, { anchor: 'gemm' | 'logprob' }>;

export const weightNames = (kernel: Contraction): string[] =>
  kernel.anchor === 'gemm' ? kernel.segments.map((s) => s.weight) : [kernel.weight];

/** The number of columns of a work item of `kernel` must be a multiple of this. */
export function itemStep(kernel: Contraction): number[] {
  return kernel.anchor === 'gemm' ? kernel.segments.map(columnStep) : [LOGPROB_BLOCK];
}

const isCount = (value: number, step = 1): boolean => Number.isSafeInteger(value) && value > 0 && value % step === 0;

/**
 * Bounds on the rows and columns of a work item and on the bytes of its tile. They limit how much memory a plan can
 * make a worker allocate.
 */
const MAX_ITEM = 16384;
const MAX_TILE_BYTES = 64 << 20;

/** Rows of the highest register tile of codes, by instruction set: of few rows, and of many. */
const QUAD_ROWS: Readonly<Record<CpuIsa, number>> = { portable: 4, avx2: 6, avx512: 14, amx: 32 };

function quadContraction(
  kernel: Contraction,
  a: BufferDecl,
  weights: readonly WeightDecl[],
  s: CpuGemmSchedule,
): true | string {
  if (weights.some(({ layout }) => layout !== 'quads')) return 'the weights of one kernel differ in layout';
  if (a.dtype !== 'f32' && a.dtype !== 'bf16') return `codes are made of f32 or bf16, ${a.name} is ${a.dtype}`;
  const isAmx = s.isa === 'amx';
  const isWhole = weights.some(({ format }) => format === 'i8');
  if (isWhole && weights.some(({ format }) => format !== 'i8')) return 'scales are of rows or of groups, not both';
  if (isAmx && !isWhole) return 'amx has no scales for groups';
  if (kernel.rounding?.columns !== (isWhole ? kernel.k : GROUP)) return 'rows are rounded as weights are';
  if (isWhole && kernel.k > MAX_WHOLE_ROW) return `sums of ${kernel.k} products do not fit 32 bits`;
  if (!isCount(s.mr) || !isCount(s.mb, s.mr) || s.mb > MAX_ITEM)
    return `mb must be a multiple of mr, at most ${MAX_ITEM}`;
  if (s.kc !== QUAD_CHUNK) return `codes are widened ${QUAD_CHUNK} at a time`;
  if (!isCount(s.nb, 32) || s.nb > MAX_ITEM) return `nb must be a multiple of 32, at most ${MAX_ITEM}`;
  if (s.mb * (s.nb + 16) * 4 > MAX_TILE_BYTES) return 'the tile of a work item is too large';
  for (const step of itemStep(kernel))
    if (s.nb % step !== 0) return `nb must be a multiple of ${step}: whole heads, pairs and blocks of 32`;
  if (isAmx && s.mr !== 16 && s.mr !== 32) return 'amx tiles are 16 or 32 rows by 32 columns';
  const isFew = s.mb <= FEW_ROWS;
  const nr = isFew ? QUAD_COLUMNS : manyColumns(s.isa);
  const most = isFew ? FEW_ROWS : QUAD_ROWS[s.isa];
  return s.nr === nr && s.mr <= most ? true : `tiles of codes on ${s.isa} are up to ${most} rows by ${nr} columns`;
}

function contraction(kernel: Contraction, module: KernelModule, s: CpuGemmSchedule): true | string {
  const a = module.buffers.find((buffer) => buffer.name === kernel.a);
  if (a === undefined) return `the left operand ${kernel.a} is not declared`;
  const weights: WeightDecl[] = [];
  for (const name of weightNames(kernel)) {
    const weight = module.weights.find((w) => w.name === name);
    if (weight === undefined) return `the weight ${name} is not declared`;
    weights.push(weight);
  }
  if (weights.some(({ layout }) => layout === 'quads')) return quadContraction(kernel, a, weights, s);
  const isAmx = s.isa === 'amx';
  for (const weight of weights) {
    if (isAmx !== (weight.layout === 'vnni'))
      return `${s.isa} cannot read weight ${weight.name} in layout ${weight.layout}`;
    if (!isAmx && weight.layout !== 'panels')
      return `${s.isa} cannot read weight ${weight.name} in layout ${weight.layout}`;
    if (weight.format !== weights[0]!.format) return 'the weights of one kernel differ in format';
    const problem = layoutProblem(weight.layout, weight.format);
    if (problem !== undefined) return `${s.isa} cannot read weight ${weight.name}: ${problem}`;
  }
  const wanted = isAmx ? 'bf16' : 'f32';
  if (a.dtype !== wanted) return `${s.isa} wants its left operand in ${wanted}, ${a.name} is ${a.dtype}`;
  if (!isCount(s.mr) || !isCount(s.nr, 16) || !isCount(s.kc, 32))
    return 'mr, nr (a multiple of 16) and kc (a multiple of 32) must be positive';
  if (!isCount(s.mb, s.mr) || s.mb > MAX_ITEM) return `mb must be a multiple of mr, at most ${MAX_ITEM}`;
  if (!isCount(s.nb, 32) || s.nb > MAX_ITEM) return `nb must be a multiple of 32, at most ${MAX_ITEM}`;
  if (s.mb * (s.nb + 16) * 4 > MAX_TILE_BYTES) return 'the tile of a work item is too large';
  for (const step of itemStep(kernel))
    if (s.nb % step !== 0) return `nb must be a multiple of ${step}: whole heads, pairs and blocks of 32`;
  if (isAmx) return (s.mr === 32 || s.mr === 16) && s.nr === 32 ? true : 'amx tiles are 16 or 32 rows by 32 columns';
  const { lanes, registers } = VECTOR_ISAS[s.isa];
  if (s.mr > 32) return 'mr is at most 32';
  const columns = s.nr / lanes;
  if (s.mr * columns + columns + 1 > registers)
    return `${s.mr}×${s.nr} accumulators do not fit the ${registers} registers of ${s.isa}`;
  return true;
}

/** Why a kernel cannot read its keys and values: those without scales have the type of queries. */
function keysProblem({ q, k, v, scales }: AttentionKernel, { buffers }: KernelModule): string | undefined {
  const dtypeOf = (name: string): BufferDType | undefined => buffers.find((b) => b.name === name)?.dtype;
  const stored = dtypeOf(scales === undefined ? q : k);
  const isKnown = scales === undefined ? stored !== undefined : CACHE_FORMATS.some((format) => format === stored);
  if (isKnown && [k, v].every((name) => dtypeOf(name) === stored)) return undefined;
  return scales === undefined ? 'queries, keys and values must have one dtype' : 'keys and values must be codes';
}

/** `true`, or the reason why `schedule` cannot be used for `kernel` on a target with these facts. */
export function isLegal(kernel: Kernel, module: KernelModule, schedule: CpuSchedule, facts: CpuFacts): true | string {
  if (!facts.isas.includes(schedule.isa)) return `the target has no ${schedule.isa}`;
  switch (kernel.anchor) {
    case 'gemm':
    case 'logprob':
      return schedule.kind === 'gemm'
        ? contraction(kernel, module, schedule)
        : `a ${kernel.anchor} kernel has a gemm schedule, not ${schedule.kind}`;
    case 'attention':
      if (schedule.kind !== 'attention') return `an attention kernel has an attention schedule, not ${schedule.kind}`;
      if (!isCount(schedule.queries, 16) || schedule.queries > 256)
        return 'queries must be a multiple of 16, at most 256';
      if (!isCount(schedule.keys, KEY_STEP) || schedule.keys > MAX_ITEM)
        return `keys must be a multiple of ${KEY_STEP}, at most ${MAX_ITEM}`;
      return keysProblem(kernel, module) ?? true;
    case 'loop':
    case 'logprobReduce':
    case 'sample':
    case 'route':
    case 'sortByExpert':
      if (schedule.kind !== 'loop') return `a ${kernel.anchor} kernel has a loop schedule, not ${schedule.kind}`;
      return isCount(schedule.rows) ? true : 'rows must be positive';
    default:
      return kernel satisfies never;
  }
}
