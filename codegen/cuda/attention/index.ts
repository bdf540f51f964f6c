/**
 * Attention on a GPU: one block for each tile of queries of each head, and one pass for each tree or path that the tile
 * meets.
 */
import type { CudaAttentionSchedule, LaunchShape } from '../../../ir/cuda.js';
import type { AttentionKernel } from '../../../ir/kernel.js';
import type { CudaOperands, EmittedCuda } from '../text/operands.js';
import { decodeText, isDecodeText } from './decode.js';
import { promptText } from './prompt.js';
import { isLatent, latentParts, tileOf } from './tile.js';

/**
 * Prints an attention kernel as CUDA. The schedule must be legal for it (isLegalAttention). Throws if a batch may be
 * longer than the kernel's static shared memory allows.
 */
export function emitAttention(
  kernel: AttentionKernel,
  operands: CudaOperands,
  schedule: CudaAttentionSchedule,
  symbol: string,
): EmittedCuda {
  const { mask } = kernel;
  const tile = tileOf(kernel, schedule);
  // The keys of a path may lie in a state of fixed size. Its list of keys is an input, whose rows belong to the call.
  const keyRows = operands.rowsOf(mask.kind === 'path' ? mask.key : kernel.k);
  const code = { kernel, operands, schedule, symbol, tile, keyRows };
  const { source, tensorMaps } = isDecodeText(kernel, schedule)
    ? { source: decodeText(code), tensorMaps: [] }
    : promptText(code);
  return { source, tensorMaps, launch: launchOf(kernel, schedule), waitsForPredecessor: true };
}

function launchOf(kernel: AttentionKernel, schedule: CudaAttentionSchedule): LaunchShape {
  const { skeleton, queries, cluster = 1 } = schedule;
  const parts = skeleton === 'mma' && isLatent(kernel) ? latentParts(kernel) : 1;
  const { isGrouped, threads, dynamicBytes } = tileOf(kernel, schedule);
  return {
    threads,
    sharedBytes: dynamicBytes,
    cluster,
    // Heads are adjacent in the grid, so that blocks that run together read whole rows. A grid may be 65,535 blocks
    // high, and a call over paths may have more queries of a block each: they lie along x.
    ...(isGrouped
      ? {
          gridX: {
            ...(skeleton === 'wgmma'
              ? ({ kind: 'persistent', blocksPerMultiprocessor: 1 } as const)
              : ({ kind: 'tiles' } as const)),
            extent: kernel.rows,
            per: queries,
            times: kernel.kvHeads * cluster * parts,
          },
          gridY: { kind: 'constant', count: 1 },
        }
      : {
          gridX: { kind: 'constant', count: kernel.heads },
          gridY: { kind: 'tiles', extent: kernel.rows, per: queries, times: 1 },
        }),
  };
}
