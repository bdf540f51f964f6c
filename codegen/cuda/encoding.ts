/** Schedules of the CUDA target: their encoding, and which ones are legal for a kernel. */
import { z } from 'zod';
import {
  ADAPTER_USES,
  CUDA_GEMM_MODES,
  CUDA_GEMM_SKELETONS,
  type CudaSchedule,
  LONE_BLOCKS,
  PART_COUNTS,
  RESIDENT_BLOCKS,
  ROUTING_USES,
  SCAN_LANES,
  SHRINK_ROWS,
} from '../../ir/cuda.js';
import { scheduleExtent as extent, type Scheduling } from '../scheduling.js';
import { settleAdapters } from './adapter/uses.js';
import { settleRouting, unrouted } from './routing.js';
import { type CudaFacts, defaultCudaSchedule, hasRoomBeside, isLegalCuda, shrinkingSchedule } from './schedules.js';

const ROUTES = { pairs: 'chooses experts', rows: 'chooses experts and makes their rows' } as const;
const ADAPTERS = { none: 'without adapters', shrinks: 'shrinks its rows' } as const;

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
      parts: z.literal(PART_COUNTS).exactOptional(),
      raster: extent,
      mode: z.enum(CUDA_GEMM_MODES),
      remainderTn: extent.exactOptional(),
      epilogueGroups: z.literal(1).exactOptional(),
      adapters: z.enum(ADAPTER_USES).exactOptional(),
      routes: z.enum(ROUTING_USES).exactOptional(),
    }),
    z.strictObject({
      kind: z.literal('attention'),
      skeleton: z.enum(['simt', 'mma', 'wgmma']),
      queries: extent,
      keys: extent,
      cluster: z.union([z.literal(2), z.literal(4), z.literal(8), z.literal(16)]).exactOptional(),
      teams: extent.exactOptional(),
      lone: z.literal(LONE_BLOCKS).exactOptional(),
      resident: z.literal(RESIDENT_BLOCKS).exactOptional(),
      sharesTiles: z.literal(true).exactOptional(),
    }),
    z.strictObject({
      kind: z.literal('loop'),
      threads: extent,
      rows: z.literal(SHRINK_ROWS).exactOptional(),
      lanes: z.literal(SCAN_LANES).exactOptional(),
      isIdle: z.literal(true).exactOptional(),
    }),
  ]),
  key: (s) => {
    switch (s.kind) {
      case 'gemm':
        return [
          `${s.skeleton} ${s.tm}×${s.tn}×${s.tk} s${s.stages} c${s.cluster} r${s.raster} ${s.mode}`,
          ...(s.parts === undefined ? [] : [`p${s.parts}`]),
          ...(s.remainderTn === undefined ? [] : [`rem${s.remainderTn}`]),
          ...(s.epilogueGroups === undefined ? [] : [`e${s.epilogueGroups}`]),
          ...(s.adapters === undefined ? [] : [`a-${s.adapters}`]),
          ...(s.routes === undefined ? [] : [`r-${s.routes}`]),
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
        return [
          `t${s.threads}`,
          ...(s.rows === undefined ? [] : [`m${s.rows}`]),
          ...(s.lanes === undefined ? [] : [`l${s.lanes}`]),
          ...(s.isIdle === undefined ? [] : ['idle']),
        ].join(' ');
      default:
        return s satisfies never;
    }
  },
  describe: (s) => {
    switch (s.kind) {
      case 'gemm': {
        const groups = s.epilogueGroups === undefined ? '' : ' by two warpgroups';
        const parts = s.parts === undefined ? '' : `, ${s.parts} blocks to a group`;
        const clusters = s.cluster > 1 ? `, clusters of ${s.cluster}` : parts;
        const more = s.skeleton === 'wgmma' ? `, ${s.mode}${groups}${clusters}, raster ${s.raster}` : clusters;
        const remainder = s.remainderTn === undefined ? '' : ` (remainder ×${s.remainderTn})`;
        const adapters = s.adapters === undefined ? '' : `, ${ADAPTERS[s.adapters]}`;
        const routes = s.routes === undefined ? '' : `, ${ROUTES[s.routes]}`;
        return `${s.skeleton}, tile ${s.tm}×${s.tn}${remainder}×${s.tk}, ${s.stages} stages${more}${adapters}${routes}`;
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
        if (s.isIdle === true) return 'not launched';
        return [
          `blocks of ${s.threads} threads${s.rows === undefined ? '' : ` for ${s.rows} rows`}`,
          ...(s.lanes === undefined ? [] : [`${s.lanes} lanes share columns`]),
        ].join(', ');
      default:
        return s satisfies never;
    }
  },
  default: defaultCudaSchedule,
  settle: (module, launches, schedules, bucket) => {
    const settled = settleAdapters(module, launches, unrouted(schedules), bucket, shrinkingSchedule);
    return settleRouting(module, launches, settled, bucket, hasRoomBeside);
  },
  legality: isLegalCuda,
};
