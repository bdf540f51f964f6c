/** Default schedules for a GPU that has not been tuned: good, but not optimal. */
import { UserError } from '../../errors.js';
import type { CudaGemmSchedule, CudaSchedule } from '../../ir/cuda.js';
import { extentIn } from '../../ir/extents.js';
import type { Kernel, KernelModule, Segment } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { defaultAttentionSchedule } from './attentionSchedules.js';
import type { Contraction } from './text/contraction.js';
import { segmentsOf } from './text/contraction.js';
import { defaultGroupedSchedule, groupOfKernel } from './grouped/schedules.js';
import { mmaStep } from './gemmMma.js';
import { simtStep } from './gemmSimt.js';
import type { CudaFacts } from './legality.js';
import { contractionTypes, isLegalCuda, rowValuesOf } from './legality.js';
import { defaultSkinnySchedule, SKINNY_ROWS } from './skinny/candidates.js';
import { defaultWgmmaSchedule } from './wgmma/index.js';
import { WGMMA_TYPES } from './wgmma/instruction.js';

/** A legal schedule of `kernel` for micro-batches of `bucket`. Throws if the kernel has none on a GPU. */
export function defaultCudaSchedule(
  kernel: Kernel,
  module: KernelModule,
  facts: CudaFacts,
  bucket: Bucket,
): CudaSchedule {
  switch (kernel.anchor) {
    case 'gemm':
    case 'logprob':
      return contraction(kernel, module, facts, extentIn(kernel.rows, bucket.extents));
    case 'attention':
      return defaultAttentionSchedule(kernel, module, facts, {
        rows: extentIn(kernel.rows, bucket.extents),
        multiprocessors: facts.multiprocessors,
        continuesPaths: bucket.run !== undefined,
      });
    case 'loop':
      return { kind: 'loop', threads: 256 };
    case 'logprobReduce':
      return { kind: 'loop', threads: 128 };
    case 'route':
      return { kind: 'loop', threads: 128 };
    case 'sample':
    case 'sortByExpert':
      return { kind: 'loop', threads: 1024 };
    default:
      return kernel satisfies never;
  }
}

function contraction(kernel: Contraction, module: KernelModule, facts: CudaFacts, rows: number): CudaGemmSchedule {
  // Rows of one column lie one behind another, without the zeros that tiles of k read.
  if (kernel.k === 1)
    throw new UserError(`${kernel.path}: its matrix has one column; on GPUs two are the least`, 'use --target cpu');
  if (kernel.anchor === 'gemm' && groupOfKernel(kernel, module) !== undefined) {
    const grouped = defaultGroupedSchedule(kernel, module, facts, rowValuesOf(kernel, module), rows);
    if (grouped !== undefined) return grouped;
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
  kernel: Contraction,
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

/** Schedules to try, best first. */
function candidates(kernel: Contraction, rows: number): CudaGemmSchedule[] {
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
    ...[128, 64, 32, 16]
      .filter((tm) => tm === 16 || tm < 2 * rows)
      .flatMap((tm) => mmaWidths(segmentsOf(kernel)).map((width) => mma(tm, width))),
    ...simts(rows, simt),
  ];
}

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
