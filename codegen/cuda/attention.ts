/**
 * Attention on a GPU: one block for each tile of queries of each head, and one pass for each tree or path that the tile
 * meets.
 */
import type { CudaAttentionSchedule, LaunchShape } from '../../ir/cuda.js';
import type { AttentionKernel, Mask } from '../../ir/kernel.js';
import { maskBuffers } from '../../ir/kernelAccess.js';
import { MAX_HEAD_IN_REGISTERS, MAX_TOKENS, MMA_ROWS, SIMT_WARPS, tileOf } from './attentionTile.js';
import { floatLiteral } from './text/literals.js';
import type { CudaOperands, EmittedCuda, Operand } from './text/operands.js';
import { CUDA_TYPES, kernelHead } from './text/operands.js';
import { render } from './text/templates.js';

/**
 * Keys of a path that make one partial result. Partial results are merged in order of position. The size determines
 * rounding, so it is part of what an answer means.
 */
export const PATH_CHUNK = 128;

/**
 * Prints an attention kernel as CUDA, without the shared prelude. The schedule must be legal for it (isLegalAttention).
 * Throws if a batch may be longer than the kernel's static shared memory allows.
 */
export function emitAttention(
  kernel: AttentionKernel,
  operands: CudaOperands,
  schedule: CudaAttentionSchedule,
  symbol: string,
): EmittedCuda {
  const { heads, kvHeads, headDim: d, mask } = kernel;
  const { skeleton, queries, keys } = schedule;
  const isPath = mask.kind === 'path';
  // The keys of a path may lie in a state of fixed size. Its list of keys is an input, whose rows belong to the call.
  const keyRows = operands.rowsOf(isPath ? mask.key : kernel.k);
  if (skeleton === 'mma' && !isPath && keyRows.most > MAX_TOKENS) {
    throw new Error(
      `Kernel ${kernel.name} (${kernel.path}) cannot attend over ${keyRows.most} tokens in a batch, ` +
        `${MAX_TOKENS} at most: compile with a smaller --batch-tokens.`,
    );
  }
  const [q, k, v, out] = [
    operands.get(kernel.q),
    operands.get(kernel.k),
    operands.get(kernel.v),
    operands.get(kernel.out),
  ];
  const masks = maskBuffers(mask).map((name) => operands.get(name));
  const queryRow = kernel.queryRow === undefined ? undefined : operands.get(kernel.queryRow);
  const { rows, teams, isGrouped, threads, slots, blocks, dynamicBytes } = tileOf(kernel, schedule);
  const parameters = new Set(
    [q, k, v, out, ...masks, ...(queryRow === undefined ? [] : [queryRow])].map(({ name }) => name),
  ).size;
  const values = {
    head: kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads, blocks }),
    heads,
    kvHeads,
    group: heads / kvHeads,
    d,
    queries,
    keys,
    rows: kernel.rows,
    queryRows: operands.rowsOf(kernel.q).extent,
    keyRows: keyRows.extent,
    dtype: q.dtype,
    type: CUDA_TYPES[q.dtype],
    outDtype: out.dtype,
    outType: CUDA_TYPES[out.dtype],
    qIndex: q.index,
    kIndex: k.index,
    vIndex: v.index,
    outIndex: out.index,
    qStride: q.stride,
    kStride: k.stride,
    vStride: v.stride,
    outStride: out.stride,
    ...maskValues(mask, masks),
    hasQueryRow: queryRow !== undefined,
    queryRowIndex: queryRow?.index ?? -1,
  };
  const body =
    skeleton === 'mma'
      ? render(isPath ? 'attentionPathMma' : 'attentionMma', {
          ...values,
          warps: rows / MMA_ROWS,
          teams,
          chunk: PATH_CHUNK,
          tiles: Math.ceil(keyRows.most / keys),
          slots,
          ahead: slots > 2 ? 'two tiles' : 'a tile',
          scale: floatLiteral(kernel.scale * Math.LOG2E),
          queriesInRegisters: d <= MAX_HEAD_IN_REGISTERS,
          isWideOut: out.dtype === 'f32',
        })
      : render('attentionSimt', {
          ...values,
          warpQueries: queries / SIMT_WARPS,
          scale: floatLiteral(kernel.scale),
        });
  const launch: LaunchShape = {
    threads,
    sharedBytes: dynamicBytes,
    cluster: 1,
    // Heads are adjacent in the grid, so that blocks that run together read whole rows.
    gridX: { kind: 'constant', count: isGrouped ? kvHeads : heads },
    gridY: { kind: 'tiles', extent: kernel.rows, per: queries, times: 1 },
  };
  return { source: `${render('attentionWarp', {})}\n${body}`, tensorMaps: [], launch, waitsForPredecessor: true };
}

/** What templates read about a mask, whose buffers are `operands`. */
function maskValues(mask: Mask, [first, second, third]: readonly Operand[]): object {
  const none = { isColumn: false, isPath: false, maskIndex: -1, maskStride: -1 };
  const { index, stride } = first!;
  switch (mask.kind) {
    case 'column':
      return { ...none, isColumn: true, maskIndex: index };
    case 'bias':
      return { ...none, maskIndex: index, maskStride: stride };
    case 'path':
      return { ...none, isPath: true, beginIndex: index, positionIndex: second!.index, keyListIndex: third!.index };
    default:
      return mask satisfies never;
  }
}
