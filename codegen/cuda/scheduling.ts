/** Schedules of the CUDA target: their encoding, and which ones are legal for a kernel. */
import { z } from 'zod';
import {
  CUDA_GEMM_MODES,
  CUDA_GEMM_SKELETONS,
  LONE_BLOCKS,
  RESIDENT_BLOCKS,
  type CudaSchedule,
} from '../../ir/cuda.js';
import { scheduleExtent as extent, type Scheduling } from '../scheduling.js';
import { defaultCudaSchedule } from './defaults.js';
import { isLegalCuda, type CudaFacts } from './legality.js';

export const cudaScheduling: Scheduling<CudaSchedule, CudaFacts> = {
  schema: z.discriminatedUnion('kind', [
    z.strictObject({
      kind: z.literal('gemm'),
      skeleton: z.enum(CUDA_GEMM_SKELETONS),
      tm: extent,
      tn: extent,
      tk: extent,
      stages: extent,
      cluster: z.union([z.literal(1), z.literal(2)]),
      raster: extent,
      mode: z.enum(CUDA_GEMM_MODES),
      remainderTn: extent.exactOptional(),
      epilogueGroups: z.literal(1).exactOptional(),
    }),
    z.strictObject({
      kind: z.literal('attention'),
      skeleton: z.enum(['simt', 'mma', 'wgmma']),
      queries: extent,
      keys: extent,
      cluster: z.union([z.literal(2), z.literal(4), z.literal(8)]).exactOptional(),
      teams: extent.exactOptional(),
      lone: z.literal(LONE_BLOCKS).exactOptional(),
      resident: z.literal(RESIDENT_BLOCKS).exactOptional(),
      sharesTiles: z.literal(true).exactOptional(),
    }),
    z.strictObject({ kind: z.literal('loop'), threads: extent }),
  ]),
  key: (s) => {
    switch (s.kind) {
      case 'gemm':
        return [
          `${s.skeleton} ${s.tm}×${s.tn}×${s.tk} s${s.stages} c${s.cluster} r${s.raster} ${s.mode}`,
          ...(s.remainderTn === undefined ? [] : [`rem${s.remainderTn}`]),
          ...(s.epilogueGroups === undefined ? [] : [`e${s.epilogueGroups}`]),
        ].join(' ');
      case 'attention':
        return [
          `${s.skeleton} q${s.queries} k${s.keys}`,
          ...(s.cluster === undefined ? [] : [`c${s.cluster}`]),
          ...(s.teams === undefined ? [] : [`t${s.teams}`]),
          ...(s.lone === undefined ? [] : [`lone${s.lone}`]),
          ...(s.resident === undefined ? [] : [`m${s.resident}`]),
          ...(s.sharesTiles === undefined ? [] : ['shared']),
        ].join(' ');
      case 'loop':
        return `t${s.threads}`;
      default:
        return s satisfies never;
    }
  },
  describe: (s) => {
    switch (s.kind) {
      case 'gemm': {
        const groups = s.epilogueGroups === undefined ? '' : ' by two warpgroups';
        const clusters = s.cluster > 1 ? `, clusters of ${s.cluster}` : '';
        const more = s.skeleton === 'wgmma' ? `, ${s.mode}${groups}${clusters}, raster ${s.raster}` : clusters;
        const remainder = s.remainderTn === undefined ? '' : ` (remainder ×${s.remainderTn})`;
        return `${s.skeleton}, tile ${s.tm}×${s.tn}${remainder}×${s.tk}, ${s.stages} stages${more}`;
      }
      case 'attention':
        return [
          `${s.skeleton}, ${s.queries} queries × ${s.keys} keys`,
          ...(s.cluster === undefined ? [] : [`clusters of ${s.cluster}`]),
          ...(s.teams === undefined ? [] : [`${s.teams} teams`]),
          ...(s.lone === undefined ? [] : [`a lone warp, ${s.lone} a multiprocessor`]),
          ...(s.resident === undefined ? [] : [`${s.resident} a multiprocessor`]),
          ...(s.sharesTiles === undefined ? [] : ['shared tiles']),
        ].join(', ');
      case 'loop':
        return `blocks of ${s.threads} threads`;
      default:
        return s satisfies never;
    }
  },
  default: defaultCudaSchedule,
  legality: isLegalCuda,
};
