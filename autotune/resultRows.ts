/** How many rows of a buffer or state one launch of a kernel writes or reads. */
import { extentIn } from '../ir/extents.js';
import type { BufferDecl, Kernel, KernelModule } from '../ir/kernel.js';
import { hasOwnKeys, outputsOf } from '../ir/kernelAccess.js';
import type { Bucket } from '../ir/plan.js';
import { pathRows, pathShape } from './pathShape.js';

/**
 * Rows of `buffer` that a launch on random inputs writes, from the first on. Slots count up from 0 (integersFor), so of
 * a state those are as many as the kernel has rows.
 */
export function resultRows(kernel: Kernel, buffer: Pick<BufferDecl, 'name' | 'rows'>, { extents }: Bucket): number {
  const rows = extentIn(buffer.rows, extents);
  return isScattered(kernel, buffer.name) ? Math.min(rows, extentIn(kernel.rows, extents)) : rows;
}

/**
 * Rows that a launch on random inputs needs of a buffer with `rows` rows in every call: of a state those that it writes
 * or that its paths lie in.
 */
export function stateRows(kernel: Kernel, module: KernelModule, name: string, rows: number, bucket: Bucket): number {
  const isRead = kernel.anchor === 'attention' && kernel.mask.kind === 'path' && !hasOwnKeys(kernel, module);
  if (isRead && (name === kernel.k || name === kernel.v))
    return Math.min(rows, Math.max(1, pathRows(pathShape(bucket))));
  return isScattered(kernel, name) ? Math.min(rows, Math.max(1, extentIn(kernel.rows, bucket.extents))) : rows;
}

const isScattered = (kernel: Kernel, name: string): boolean =>
  outputsOf(kernel).some((output) => output.kind === 'store' && output.via !== undefined && output.buffer === name);
