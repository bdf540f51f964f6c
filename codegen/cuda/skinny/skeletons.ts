/** What the two skeletons for few rows differ in: one record for defaults and for legality. */
import type { CudaArch, CudaGemmSchedule } from '../../../ir/cuda.js';
import type { WgmmaType } from '../wgmma/instruction.js';
import { SKINNY_STAGES, skinnyProblem, skinnySharedBytes } from './layout.js';
import { STAGES, skinnyWgmmaLayout, skinnyWgmmaProblem } from './wgmmaLayout.js';

export const FEW_ROWS = {
  skinny: {
    stages: SKINNY_STAGES,
    problem: skinnyProblem,
    sharedBytes: skinnySharedBytes,
    archProblem: (arch: CudaArch, isLogProb: boolean) =>
      isLogProb && arch !== 'sm_90a'
        ? `a vocabulary block is summed as wgmma does it, which ${arch} has not`
        : undefined,
  },
  skinnyWgmma: {
    stages: STAGES,
    problem: skinnyWgmmaProblem,
    sharedBytes: (schedule: CudaGemmSchedule, rowValues: number, _isLogProb: boolean, dtype: WgmmaType) =>
      skinnyWgmmaLayout(schedule, dtype, rowValues).sharedBytes,
    archProblem: (arch: CudaArch) => (arch === 'sm_90a' ? undefined : `wgmma needs sm_90a, the target is ${arch}`),
  },
} as const;
