/** Attention of queries that each have a path of their own, and of those that share tiles of keys. */
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import type { AttentionKernel } from '../../../ir/kernel.js';
import { type AttentionCode, type PathSkeleton, pathUnit } from './path.js';
import { isLatent, tileOf } from './tile.js';

/** Whether decodeText prints a kernel under a schedule; otherwise promptText does. */
export function isDecodeText(kernel: AttentionKernel, schedule: CudaAttentionSchedule): boolean {
  const { isDecode, isLone } = tileOf(kernel, schedule);
  if (isLatent(kernel)) return schedule.skeleton === 'mma';
  return isDecode || isLone || (kernel.mask.kind === 'path' && schedule.sharesTiles === true);
}

/** A query of a path by teams of warps, and by one; queries whose paths begin alike, by one warp, and by several. */
const DECODE: PathSkeleton = { header: 'attention/decode.cuh', entry: 'decode_attention', readsAhead: true };
const LONE: PathSkeleton = { header: 'attention/lone.cuh', entry: 'lone_attention', readsAhead: true };
const STEMS: PathSkeleton = { header: 'attention/stems.cuh', entry: 'stems_attention', readsAhead: true };
const LATENT: PathSkeleton = { header: 'attention/latent.cuh', entry: 'latent_attention', readsAhead: false };
const LATENT_TEAMS: PathSkeleton = {
  ...{ header: 'attention/latentTeams.cuh', entry: 'latent_teams_attention' },
  readsAhead: true,
};
const BRANCHES: PathSkeleton = { header: 'attention/branches.cuh', entry: 'branches_attention', readsAhead: false };

/** Prints a kernel for which isDecodeText holds. */
export function decodeText(code: AttentionCode): string {
  const { kernel, operands, schedule, tile } = code;
  if (isLatent(kernel)) {
    const [q, k] = [operands.get(kernel.tail.q), operands.get(kernel.tail.k)];
    const fields = { tail: kernel.tail.headDim, qTailStride: q.stride, kTailStride: k.stride };
    return pathUnit(code, { ...(schedule.teams === undefined ? LATENT : LATENT_TEAMS), fields });
  }
  if (tile.isLone) return pathUnit(code, schedule.queries > 1 ? STEMS : LONE);
  return pathUnit(code, tile.isDecode ? DECODE : BRANCHES);
}
